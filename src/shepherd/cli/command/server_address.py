"""Where a running server is found from here, and how to ask it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

import click
import httpx2

from shepherd.cli.command.serve import url
from shepherd.server.http.auth import is_loopback

if TYPE_CHECKING:
    from shepherd.config import Config

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """A server's."""

    url: str
    """Without `/v1` and without a slash at its end."""
    key: str | None = None


def find_address(config: Config, given: str | None, keys: tuple[str, ...]) -> Address:
    """The server at `given`, or else the one that `config` would start on this machine.

    `keys`: what the user said for this call; those of the configuration are our own server's and go nowhere else.

    Raises: `UsageError` for what is no address of a server.
    """
    if given is not None:
        return Address(_checked(given), next(iter(keys), None))
    return Address(url(_from_here(config.server.host.strip("[]")), config.server.port), own_key(config))


def own_key(config: Config) -> str | None:
    """A key that the configured server takes, if one is known: of some only a hash is."""
    named = (entry.key for entry in config.server.keys or ())
    return next((key for key in (*(config.server.api_keys or ()), *named) if key), None)


def has_keys(config: Config) -> bool:
    """Whether the configured server asks for a key, and be it that it takes none."""
    return config.server.api_keys is not None or config.server.keys is not None


def local(address: str) -> str:
    """The address that a server says it listens on, as it is reached from this machine."""
    found = httpx2.URL(address)
    return url(_from_here(found.host.strip("[]")), found.port or 80)


def connect(address: Address, timeout_s: float = TIMEOUT_S) -> httpx2.Client:
    """A client of the server. A proxy of the environment cannot know what runs on this machine."""
    key = address.key
    headers = {b"authorization": b"Bearer " + key.encode("utf-8", "surrogateescape")} if key else {}
    host = httpx2.URL(address.url).host.strip("[]")
    return httpx2.Client(base_url=address.url, headers=headers, timeout=timeout_s, trust_env=not is_loopback(host))


def _from_here(host: str) -> str:
    """Where a server that listens on `host` can be found on this machine."""
    try:
        found = ip_address(host)
    except ValueError:
        return host
    return ("127.0.0.1" if found.version == 4 else "::1") if found.is_unspecified else host


def _checked(address: str) -> str:
    """`address` with its scheme, without what users put behind it. Raises: `UsageError`."""
    text = address if "://" in address else f"http://{address}"
    try:
        found = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        found = httpx2.URL("")
    if found.scheme not in {"http", "https"} or not found.host or len(text.split()) != 1:
        raise click.UsageError(f"{address!r} is no address of a server; write one such as http://127.0.0.1:8000.")
    return str(found.copy_with(query=None, fragment=None)).rstrip("/").removesuffix("/v1").rstrip("/")
