"""How much memory models need and may use, and which idle models must be unloaded for another one. Pure.

The header says what a model needs before it is loaded: its weights, the cells of its caches and, roughly, the buffers
of a computation. Not here: loading and unloading (`app/model_pool.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from shepherd.core import ConfigError
from shepherd.models import gguf

logger = logging.getLogger(__name__)

LARGEST_DEFAULT_CONTEXT = 131_072
"""Tokens; the largest context that is chosen if the configuration gives none."""
RESERVE_BYTES, RESERVE_SHARE = 2**30, 16
"""Left to other programs by default: the smaller of this many bytes and this fraction (1/16) of what is free."""
PADDING = 256
"""The number of cells is a multiple of this."""


@dataclass(frozen=True, slots=True)
class IdleModel:
    """A loaded model that no request uses; a later request loads it again."""

    name: str
    n_bytes: int
    used_s: float
    """Time of its last use, on any clock."""


def budget_bytes(setting: int | float | None, *, free: int, total: int) -> int:
    """Bytes that all models may use together: `setting` bytes (int), a share of `total` (float), or, for None, all of
    `free` but a reserve."""
    if setting is None:
        return free - min(RESERVE_BYTES, free // RESERVE_SHARE)
    return setting if isinstance(setting, int) else int(total * setting)


def to_unload(needed: int, room: int, idle: Iterable[IdleModel]) -> tuple[str, ...] | None:
    """The names of the models to unload, the longest unused first and as few as possible; None if all are not enough.

    needed: bytes of the model to be loaded. room: bytes that are free.
    """
    leaving = []
    for holding in sorted(idle, key=lambda holding: holding.used_s):
        if needed <= room:
            break
        leaving.append(holding.name)
        room += holding.n_bytes
    return tuple(leaving) if needed <= room else None


def cache_bytes(header: gguf.Header, n_ctx: int, types: tuple[str, str]) -> int:
    """Bytes of one cache beside the weights: its cells and, roughly, the buffers of a computation."""
    return gguf.memory_needed(header, n_ctx, *types) - header.size_bytes


def context_size(
    header: gguf.Header, *, cache: str, asked: int, types: tuple[str, str], is_loaded: bool, room: int
) -> int:
    """Tokens of the context: `asked`, or as many as the memory allows if that is 0.

    types: of the cached keys and values. is_loaded: whether the weights are in memory already. room: bytes that are
    free.

    Raises: `ConfigError` if there is not enough memory, with the key of the cache's configuration.
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
    # Half of what the weights leave: other programs and the buffers of the computation need memory too.
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
    """The number of cells of a context of `n_ctx` tokens."""
    return -(-n_ctx // PADDING) * PADDING


def gib(size_bytes: int) -> str:
    """A size in words, such as `1.5 GiB`."""
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 / 10 else f"{size_bytes / 2**20:.1f} MiB"
