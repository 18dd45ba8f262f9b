"""The interface of every back end: messages in, events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from shepherd.core import Event, Request
from shepherd.core.edits import Edit, Edited


class Backend(Protocol):
    """Answers requests: a cache of our own engine, a provider, a wrapper around another back end. Safe for concurrent
    use from one event loop."""

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer, in the grammar of `core.events`.

        The first event, `Started`, comes when the request is known to fit, before any long work. Closing the iterator
        (`aclosing`) cancels the work at once.

        Raises: `InvalidRequest`, `ContextFull`, `UnknownModel` before `Started`; `EngineError`, `BackendError` at any
        time.
        """
        ...


@runtime_checkable
class EditingBackend(Backend, Protocol):
    """A back end that can leave parts out of a prompt without computing what stands behind them again."""

    async def edit(self, request: Request, edits: Sequence[Edit]) -> Edited:
        """What the edits clear, in their order, with exact counts of tokens; nothing changes.

        `request.cleared` with what `Edited` adds is honoured by `stream` and `count`. An edit without a trigger acts on
        prompts beyond a share of the window; a compaction with the trigger 0 acts on every prompt.

        Raises: as `stream`, before `Started`; `InvalidRequest` for a compaction beyond the window.
        """
        ...
