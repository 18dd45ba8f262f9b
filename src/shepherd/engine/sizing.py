"""How large a context may be: what was asked for, or what the memory of this machine holds beside the weights."""

from __future__ import annotations

import logging

import psutil

from shepherd.core import ConfigError
from shepherd.engine import gguf

logger = logging.getLogger(__name__)

LARGEST_DEFAULT_CONTEXT = 131_072
"""Tokens. What a cache gets at most when nobody says how large it should be."""


def context_size(header: gguf.Header, *, cache: str, asked: int, types: tuple[str, str], is_loaded: bool) -> int:
    """The tokens to make room for, `asked` or, for 0, as many as there is memory for.

    `types` are those of the cached keys and values; `is_loaded`: the weights are in memory already.

    Raises: `ConfigError` when the memory does not suffice, with the key of the cache's configuration.
    """
    available = psutil.virtual_memory().available
    weights = 0 if is_loaded else header.size_bytes

    def needed(n_ctx: int) -> int:
        return weights + gguf.kv_bytes(header, n_ctx, *types)

    if asked:
        if needed(asked) > available:
            raise ConfigError(
                f"{header.path.name} with a context of {asked} tokens needs {_gib(needed(asked))} of memory, "
                f"{_gib(available)} is free; choose a smaller context size or smaller cache types",
                key=f"caches.{cache}.n_ctx",
            )
        return asked
    trained = header.n_ctx_train or 4096
    n_ctx = min(trained, LARGEST_DEFAULT_CONTEXT)
    # Half of what the weights leave: other programs, and the computation's own buffers, live there too.
    while n_ctx > 1024 and needed(n_ctx) - weights > (available - weights) // 2:
        n_ctx //= 2
    if needed(n_ctx) > available:
        raise ConfigError(
            f"{header.path.name} needs {_gib(needed(n_ctx))} of memory, {_gib(available)} is free; "
            "choose a smaller model",
            key=f"caches.{cache}.model",
        )
    if n_ctx < trained:
        logger.info("cache %r holds %d of the %d tokens the model was trained for", cache, n_ctx, trained)
    return n_ctx


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
