"""How much memory models may take and do take, and which of them leave for another: numbers only.

What a model needs is known from its header, before anything of it is loaded: its weights, the cells of its caches, and
about what computing takes besides. Not here: who loads and unloads (`fleet`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from shepherd.core import ConfigError
from shepherd.models import gguf

logger = logging.getLogger(__name__)

LARGEST_DEFAULT_CONTEXT = 131_072
"""Tokens. What a cache gets at most when nobody says how large it should be."""
RESERVE_BYTES, RESERVE_SHARE = 2**30, 16
"""What is left to other programs by default: at most so much, and one part in so many of what is free."""
PADDING = 256
"""Cells come in multiples of this."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A loaded model that could leave: nobody uses it now, and it comes back when it is asked for."""

    name: str
    n_bytes: int
    used_s: float
    """When it was used last, on any clock."""


def budget_bytes(said: int | float | None, *, free: int, total: int) -> int:
    """What all models may take together, of `total` bytes of which `free` are free: so many bytes, such a share of the
    total, or, when nothing is said, what is free but for a reserve."""
    if said is None:
        return free - min(RESERVE_BYTES, free // RESERVE_SHARE)
    return said if isinstance(said, int) else int(total * said)


def to_unload(needed: int, room: int, idle: Iterable[Holding]) -> tuple[str, ...] | None:
    """Which models leave, the longest unused first and no more than it takes; None when all of them are not enough.

    needed, room: bytes that a model takes, and that are free.
    """
    leaving = []
    for holding in sorted(idle, key=lambda holding: holding.used_s):
        if needed <= room:
            break
        leaving.append(holding.name)
        room += holding.n_bytes
    return tuple(leaving) if needed <= room else None


def cache_bytes(header: gguf.Header, n_ctx: int, types: tuple[str, str]) -> int:
    """What one cache takes beside the weights: its cells, and about what a computation needs."""
    return gguf.memory_needed(header, n_ctx, *types) - header.size_bytes


def context_size(
    header: gguf.Header, *, cache: str, asked: int, types: tuple[str, str], is_loaded: bool, room: int
) -> int:
    """The tokens to make room for, `asked` or, for 0, as many as there is memory for.

    `types` are those of the cached keys and values; `is_loaded`: the weights are in memory already; `room`: bytes that
    are free.

    Raises: `ConfigError` when the memory does not suffice, with the key of the cache's configuration.
    """
    weights = 0 if is_loaded else header.size_bytes

    def needed(n_ctx: int) -> int:
        return weights + gguf.kv_bytes(header, n_ctx, *types)

    if asked:
        if needed(asked) > room:
            raise ConfigError(
                f"{header.path.name} with a context of {asked} tokens needs {gib(needed(asked))} of memory, "
                f"{gib(room)} is free; choose a smaller context size or smaller cache types",
                key=f"caches.{cache}.n_ctx",
            )
        return padded(asked)
    trained = header.n_ctx_train or 4096
    n_ctx = min(trained, LARGEST_DEFAULT_CONTEXT)
    # Half of what the weights leave: other programs, and the computation's own buffers, live there too.
    while n_ctx > 1024 and needed(n_ctx) - weights > (room - weights) // 2:
        n_ctx //= 2
    if needed(n_ctx) > room:
        raise ConfigError(
            f"{header.path.name} needs {gib(needed(n_ctx))} of memory, {gib(room)} is free; choose a smaller model",
            key=f"caches.{cache}.model",
        )
    if n_ctx < trained:
        logger.info("cache %r holds %d of the %d tokens the model was trained for", cache, n_ctx, trained)
    return padded(n_ctx)


def padded(n_ctx: int) -> int:
    """The cells that a context of so many tokens has."""
    return -(-n_ctx // PADDING) * PADDING


def gib(size_bytes: int) -> str:
    """For people."""
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 / 10 else f"{size_bytes / 2**20:.1f} MiB"
