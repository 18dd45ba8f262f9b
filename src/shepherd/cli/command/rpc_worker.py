"""`shepherd rpc-worker`: lends memory and processors to models of other machines, until it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import platformdirs

from shepherd.cli import logs, render, signals
from shepherd.cli.text import format_size
from shepherd.config import kinds
from shepherd.core import ConfigError

WARNING = (
    "the protocol has neither passwords nor encryption: a client that may connect can use the memory of this worker as "
    "it likes, and the network sees what is computed; use it in a network that you trust"
)


def run(options: Mapping[str, Any], *, allow: Sequence[str], devices: Sequence[str], memory: str, cache: str) -> None:
    from shepherd.engine.llamacpp import rpc
    from shepherd.engine.llamacpp.rpc_worker import HOST, Lent, Worker, address_of, networks_of

    logs.set_up({**options, "server": True})
    address = address_of(options.get("host") or HOST, options.get("port", rpc.PORT))
    allowed = networks_of(allow, address[0])
    folder = Path(platformdirs.user_cache_dir("shepherd")) / "rpc" if cache else None
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lent = Lent(
        options.get("threads") or 0,
        tuple(devices or ()),
        _size("--memory", memory) if memory else 0,
        folder,
        _size("--cache", cache) if cache else 0,
    )
    render.show_warning(WARNING)
    worker = Worker(address, allowed, lent)
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM, signals.HANG_UP):
            stack.enter_context(signals.handling(number, lambda *_: worker.stop()))
        stack.callback(worker.close)  # before the handlers: a second signal does not interrupt it
        stack.enter_context(signals.writing_to(worker.stopper))
        free = worker.free_bytes
        most = f", of which a client may take {format_size(lent.memory_bytes)}" if lent.memory_bytes else ""
        render.write(f"Devices: {len(free)}, with {format_size(sum(free))} of memory{most}\n")
        render.write(f"Clients: {', '.join(map(str, allowed))}\n")
        render.write(f"Listening on: {address[0]}:{worker.port}\n")
        worker.serve()


def _size(flag: str, text: str) -> int:
    """Bytes. Raises: `ConfigError`."""
    try:
        found = kinds.memory(text)
    except ValueError:
        found = 0.0
    if not isinstance(found, int):
        raise ConfigError(f"got {text!r}, expected a number of bytes, or a text such as 24GiB", key=flag)
    return found
