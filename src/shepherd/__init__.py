"""Shepherd: language models on your own machine.

    async with shepherd.open("embedded") as session:
        async for event in session.chat("Hello!"):
            ...

`shepherd.core` is the vocabulary, `shepherd.dialects` the protocols of model families; everything is imported on first
use, so that `import shepherd` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shepherd.app.alone import open_reranker
    from shepherd.app.app import open_session as open
    from shepherd.core import Event, Message, Reply, Request, Sampling, ShepherdError, fold

__all__ = [
    "Event", "Message", "Reply", "Request", "Sampling", "ShepherdError", "__version__", "fold", "open", "open_reranker",
]  # fmt: skip

_HOMES = dict.fromkeys(__all__, "shepherd.core") | {
    "open": "shepherd.app.app", "open_reranker": "shepherd.app.alone",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - reading the metadata costs more than this module

        return version("shepherd")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), "open_session" if name == "open" else name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
