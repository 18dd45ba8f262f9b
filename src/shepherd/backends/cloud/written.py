"""Thoughts and calls that a provider leaves in the text as its model wrote them: they are read as those of a model on
this machine.

    events ─ TextDelta ─ dialect's parser ─▶ text, thoughts, calls

vLLM without `--tool-call-parser` or `--reasoning-parser`, or with one for another model, is such a provider.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace

from shepherd.core import CallEnded, Event, Finished, Request, Started, TextDelta, ToolCall, Traced
from shepherd.core.events import TokenScore, as_text
from shepherd.dialects import Parser, TagDialect


async def read(
    events: AsyncGenerator[Event, None], dialect: TagDialect, request: Request
) -> AsyncGenerator[Event, None]:
    """The events of an answer to `request`, with what its text spells. The caller closes `events`.

    What the provider itself reports as a thought or a call ends a run of text, and markup that is open in it. A call is
    text where the request has no tools to call.
    """
    run: _Run | None = None
    has_calls = False
    async for event in events:
        spelled: list[Event] = []
        match event:
            case TextDelta(refused=False):
                run = run or _Run(dialect, request)
                spelled = run.feed(event)
            case Finished(reason=reason) if run:
                spelled = run.close(truncated=reason not in ("end", "tool_calls"))
                has_calls |= run.has_calls
                event = replace(event, reason="tool_calls" if has_calls and reason == "end" else reason)
            case Started() | Traced():
                pass
            case _ if run:
                spelled = run.close()
                has_calls |= run.has_calls
                run = None
        for each in spelled:
            yield each
        if not isinstance(event, TextDelta) or event.refused:
            yield event


class _Run:
    """Text that the provider reports without anything else in between."""

    def __init__(self, dialect: TagDialect, request: Request) -> None:
        self.has_calls = False
        self._can_call = bool(request.tools) and not request.forbids_calls
        self._parser: Parser = dialect.parser(
            tools=request.tools, reasoning="keep" if request.keeps_thoughts else "split"
        )
        self._scores: tuple[TokenScore, ...] = ()
        """Of text that is held back."""

    def feed(self, delta: TextDelta) -> list[Event]:
        self._scores += delta.scores
        return self._shown(self._parser.feed(delta.text))

    def close(self, *, truncated: bool = False) -> list[Event]:
        return self._shown(self._parser.close(truncated=truncated))

    def _shown(self, events: Iterable[Event]) -> list[Event]:
        shown: list[Event] = []
        for event in events:
            event = event if self._can_call else as_text(event)
            self.has_calls |= isinstance(event, CallEnded) and isinstance(event.call, ToolCall)
            if isinstance(event, TextDelta):
                if not event.text:
                    continue
                event = replace(event, scores=self._scores)
            self._scores = ()
            shown.append(event)
        return shown
