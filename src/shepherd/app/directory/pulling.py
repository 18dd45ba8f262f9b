"""A pull for this configuration: its memory chooses the format, its environment the folder, `[network]` the way.

Not here: the pull itself (`models/pull`). Imported only where something is pulled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shepherd.app.directory.entries import capacity_of
from shepherd.config import Config, KeyStore
from shepherd.core import NotAllowed, Unreachable
from shepherd.models.pull.network import Network, Reach
from shepherd.models.pull.plan import Plan
from shepherd.models.pull.pull import Show, plan_of, pull
from shepherd.models.pull.source import HubSource, Source
from shepherd.models.pulled import PulledModel, models_folder
from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.network import Address, NetworkPolicy, UnknownHost

HUB_KEY = "huggingface"
"""What the token of the hub is called among the keys of providers: it is the one of Hugging Face's own inference."""


def network_of(config: Config, keys: KeyStore) -> Network:
    """How the sources of models are reached. Raises: `ConfigError` where the keys cannot be read."""
    found = keys.find(HUB_KEY)
    return Network(config.network.proxy, config.network.ca_file, found.key if found else "")


async def plan_model(config: Config, source: Source, *, env: Mapping[str, str], keys: KeyStore, show: Show) -> Plan:
    """What `pull_model` would get. Raises: `ShepherdError`."""
    memory_bytes, network = await _memory_bytes(config, source), await asyncio.to_thread(network_of, config, keys)
    return await plan_of(source, env=env, memory_bytes=memory_bytes, show=show, network=network)


async def pull_model(
    config: Config, source: Source, *, env: Mapping[str, str], keys: KeyStore, show: Show, is_of_client: bool = False
) -> tuple[PulledModel, bool]:
    """As `models.pull.pull.pull`, into the folder of models. `is_of_client`: the address is checked, and each one that
    it leads to; the hub is the operator's own choice."""
    memory_bytes, network = await _memory_bytes(config, source), await asyncio.to_thread(network_of, config, keys)
    if is_of_client and not isinstance(source, HubSource):
        network = replace(network, reach=_reach(config.server.pull_hosts))
    root = models_folder(env, Path.home())
    return await pull(source, root=root, env=env, memory_bytes=memory_bytes, show=show, network=network)


def _reach(hosts: Sequence[str]) -> Reach:
    """The addresses that a client may have called: those that a tool may call without more rights."""
    policy = NetworkPolicy(allow_hosts=tuple(hosts), key="server.pull_hosts")

    async def reach(url: str) -> Sequence[str]:
        try:
            return await policy.addresses(Address.of(url))
        except UnknownHost as error:
            raise Unreachable(error.message, backend=url) from error
        except ToolError as error:
            raise NotAllowed(error.message, status=403) from error

    return reach


async def _memory_bytes(config: Config, source: Source) -> int | None:
    """What models may take here, where that chooses the format: it loads the native library to ask for GPUs."""
    if isinstance(source, HubSource) and not source.label:
        return await asyncio.to_thread(capacity_of, config)
    return None
