"""An answer for a person at a terminal: markdown as it comes.

Finished blocks are written once, for good; the unfinished one is live (`screen.py`), and drawn anew when the text goes
on. Reasoning is dim, calls and evictions have lines of their own, a long prefill shows a bar. Not here: what markdown
looks like and where it may be cut (`markdown.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from rich.text import Text

from shepherd.agent.session import Returned
from shepherd.cli import markdown
from shepherd.cli.answer import Evictions, bar, call_line, clean, result_line
from shepherd.cli.screen import Screen
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
)

_FRAME_S = 1 / 15
"""Time between two pictures of the live block."""
_PATIENCE_S = 0.25
"""A prompt that is read faster than this shows no progress bar."""


class MarkdownAnswer:
    """Markdown on a terminal, as it comes."""

    def __init__(
        self, screen: Screen, *, show_thinking: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._show_thinking = show_thinking
        self._clock = clock
        self._began = clock()
        self._kind: Literal["", "text", "reasoning"] = ""
        self._pending = ""
        """Of the open part, what may still change."""
        self._finished: list[str] = []
        """Lines to be written for good in the next picture."""
        self._gap = False
        """Something stands above, so that the next block needs an empty line before it."""
        self._evictions = Evictions()
        """Told where a part ends: a paragraph or a code block goes on undisturbed."""
        self._progress: Progress | None = None
        self._n_thoughts = 0
        self._is_stale = False
        self._next_frame = 0.0

    def feed(self, event: Event | Returned) -> None:
        match event:
            case TextDelta(text=text):
                self._open("text")
                self._pending += clean(text)
            case ReasoningDelta(text=text):
                self._open("reasoning")
                self._n_thoughts += 1
                if self._show_thinking:
                    self._pending += clean(text)
            case CallEnded(call=call):
                self._settle()
                self._add(self._styled(clean(call_line(call)), "cyan"))
            case Returned(result=result):
                self._settle()
                self._add(self._styled(clean(result_line(result)), "red" if result.is_error else "dim cyan"))
            case Evicted():
                self._evictions.add(event)
                if not self._kind:
                    self._tell_evictions()
            case Progress():
                self._progress = event if not self._kind else None
            case Started() | CallStarted() | CallDelta() | Finished():
                return
        self._is_stale = True
        if self._clock() >= self._next_frame:
            self.tick()

    def tick(self) -> None:
        if self._is_stale:
            self._paint()

    def close(self) -> None:
        self._settle()
        self._progress = None
        self._kind = ""
        self._paint()

    # what is finished, what is live

    def _open(self, kind: Literal["text", "reasoning"]) -> None:
        if kind != self._kind:
            self._settle()
            self._kind = kind
        self._progress = None

    def _settle(self) -> None:
        """The open part has come to its end."""
        if self._kind == "text":
            for block in markdown.blocks(self._pending):
                self._add(markdown.draw(block, self._screen.console))
        elif self._pending.strip():
            self._add(self._thought(self._pending.strip("\n")))
        self._pending = ""
        self._kind = ""
        self._tell_evictions()

    def _tell_evictions(self) -> None:
        if line := self._evictions.take():
            self._add(self._styled(line, "dim"))

    def _add(self, lines: list[str]) -> None:
        if lines:
            self._finished += [""] * self._gap + lines
            self._gap = True

    def _paint(self) -> None:
        began = self._clock()
        if self._kind == "text":
            blocks, self._pending = markdown.cut(self._pending)
            for block in blocks:
                self._add(markdown.draw(block, self._screen.console))
        live = self._live()
        finished, self._finished = self._finished, []
        self._screen.update(finished, live)
        self._is_stale = False
        now = self._clock()
        self._next_frame = now + max(_FRAME_S, 4 * (now - began))  # a block that is slow to draw is drawn less often

    def _live(self) -> list[str]:
        if self._progress is not None:
            if self._clock() - self._began < _PATIENCE_S:
                return []
            done, total = self._progress.done, self._progress.total
            return self._styled(f"Reading the prompt {bar(done, total)} {done}/{total} tokens", "dim")
        if self._kind == "reasoning" and not self._show_thinking:
            return self._styled(f"Thinking ... ({self._n_thoughts} tokens)", "dim italic")
        lines: list[str] = []
        gap = self._gap
        if self._kind == "reasoning":
            blocks = [self._thought(self._pending.strip("\n"))] if self._pending.strip() else []
        else:
            blocks = [markdown.draw(block, self._screen.console) for block in markdown.blocks(self._pending)]
        for block in blocks:
            if block:
                lines += [""] * gap + block
                gap = True
        return lines

    def _thought(self, text: str) -> list[str]:
        return self._styled(text, "dim italic")

    def _styled(self, text: str, style: str) -> list[str]:
        return markdown.to_lines(Text(text, style=style), self._screen.console)
