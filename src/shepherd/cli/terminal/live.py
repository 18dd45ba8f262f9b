"""An answer for a person at a terminal: Markdown as it comes, calls as they run.

Finished blocks are written once; the rest is live (`screen.py`) and redrawn when more text comes. Reasoning is dim,
calls and evictions have lines of their own, a long prefill shows a bar, a running call a spinner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from rich.text import Text

from shepherd.agent.turn import CallProgress, CallReturned, TurnEvent
from shepherd.cli.terminal import call_view, markdown
from shepherd.cli.terminal.answer import LINE_WIDTH, Evictions, OpenCall, OpenCalls, call_line, recall_line
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import bar, clean, output_line
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
)

_FRAME_S = 1 / 15
"""Time between two drawings of the live lines."""
_PATIENCE_S = 0.25
"""A faster prefill shows no progress bar."""
_SILENCE_S = 1.5
"""After this silence a spinner appears: a call is held back until it is complete, a provider thinks."""

BlockKind = Literal["", "text", "reasoning", "call"]


class MarkdownAnswer:
    def __init__(
        self,
        screen: Screen,
        *,
        show_thinking: bool = True,
        folds: call_view.Folds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folds`: takes what is folded; None = thoughts are shown whole, and no key unfolds results."""
        self._folds = folds
        self._hint = folds.HINT if folds is not None else ""
        self._screen = screen
        self._show_thinking = show_thinking
        self._clock = clock
        self._began = clock()
        self._kind: BlockKind = ""
        """The kind of the open part: `call` while the model writes a call."""
        most = None if folds is None else call_view.HEAD_LINES
        self._thoughts = markdown.PlainFlow(screen.console, "dim italic", most, self._hint)
        self._flows: dict[BlockKind, markdown.Flow] = {
            "text": markdown.MarkdownFlow(screen.console),
            "reasoning": self._thoughts,
        }
        self._n_thoughts = 0
        """Pieces of reasoning."""
        self._calls = OpenCalls()
        self._running_since: float | None = None
        """When the calls started to run; None while none runs."""
        self._written: tuple[str, int] = ("", 0)
        """The tool of the call that the model writes, and the pieces of it so far."""
        self._finished: list[str] = []
        """Finished lines for the next drawing."""
        self._above: BlockKind | Literal["notice"] = ""
        """The kind of the last finished block. An empty line precedes the next block, except between calls."""
        self._evictions = Evictions()
        """Shown at the end of a part, so that a paragraph or a code block is not interrupted."""
        self._progress: Progress | None = None
        self._last_event = self._began
        self._is_open = True
        self._is_stale = False
        self._next_frame = 0.0

    def feed(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._open("text")
                self._flows["text"].feed(clean(text))
            case ReasoningDelta(text=text):
                self._open("reasoning")
                self._n_thoughts += 1
                if self._show_thinking:
                    self._flows["reasoning"].feed(clean(text))
            case CallStarted(name=name):
                self._open("call")
                self._written = output_line(name), 0
            case CallDelta():
                self._written = self._written[0], self._written[1] + 1
            case CallEnded(call=call):
                self._settle()
                self._calls.add(call)
            case Finished():
                self._settle()
                self._running_since = self._clock() if self._calls.calls else None
            case CallProgress():
                self._calls.work(event)
            case CallReturned():
                self._settle()
                self._calls.end(event)
                self._add_results()
            case Evicted():
                self._evictions.add(event)
                if not self._kind:
                    self._show_evictions()
            case Progress():
                self._progress = event if not self._kind else None
            case Started(recalled=recalled):
                self._show_calls()
                self._calls = OpenCalls()
                self._running_since = None
                if recalled is not None:
                    self._add("notice", self._lines(Text(recall_line(recalled), "dim")))
            case _:
                return
        self._is_stale = True
        self._last_event = now = self._clock()
        if now >= self._next_frame:
            self.tick()

    def tick(self) -> None:
        is_silent = self._clock() - self._last_event > _SILENCE_S
        if self._is_stale or self._running_since is not None or (is_silent and self._is_open):
            self._paint()

    def close(self) -> None:
        self._is_open = False
        self._settle()
        self._show_calls()
        self._running_since = None
        self._calls = OpenCalls()
        self._progress = None
        self._paint()

    # what is finished

    def _open(self, kind: BlockKind) -> None:
        if kind != self._kind:
            self._settle()
            if kind != "call":
                self._show_calls()
            self._kind = kind
        self._progress = None

    def _settle(self) -> None:
        if (flow := self._flows.get(self._kind)) is not None:
            text = self._thoughts.text
            self._add_pieces(flow.end())
            if self._folds is not None and flow is self._thoughts and self._thoughts.was_folded:
                self._folds.add(lambda: [call_view.row(text.strip(), "dim italic", wraps=True)])
        self._kind = ""
        self._show_evictions()

    def _add_pieces(self, pieces: Sequence[markdown.Piece]) -> None:
        for piece in pieces:
            self._add(self._kind, piece.lines, goes_on=piece.goes_on)

    def _add_results(self) -> None:
        for call, returned in self._calls.take():
            lines = [] if call.is_shown else self._call(call)
            for line in call_view.outcome(returned, self._screen.console.width, self._hint):
                lines += self._lines(line)
            if self._folds is not None and call_view.is_folded(returned):
                self._folds.add(partial(call_view.unfolded, returned))
            self._add("call", lines)
        if not self._calls.calls:
            self._running_since = None

    def _show_calls(self) -> None:
        """Show the lines of calls before other output that comes before their results."""
        for call in self._calls.take_unshown():
            self._add("call", self._call(call))

    def _show_evictions(self) -> None:
        if line := self._evictions.take():
            self._add("notice", self._lines(Text(line, "dim")))

    def _add(self, kind: BlockKind | Literal["notice"], lines: Sequence[str], *, goes_on: bool = False) -> None:
        if lines:
            self._finished += [*self._gap(kind, goes_on=goes_on), *lines]
            self._above = kind

    def _gap(self, kind: str, *, goes_on: bool = False) -> list[str]:
        return [""] if self._above and not goes_on and not self._above == kind == "call" else []

    # the picture

    def _paint(self) -> None:
        began = self._clock()
        live = self._live()
        finished, self._finished = self._finished, []
        self._screen.update(finished, live)
        self._is_stale = False
        now = self._clock()
        self._next_frame = now + max(_FRAME_S, 4 * (now - began))  # a block that draws slowly is drawn less often

    def _live(self) -> list[str]:
        lines = self._live_part()
        silence = self._clock() - self._last_event
        if self._is_open and self._running_since is None and silence > _SILENCE_S:
            gap = [""] if lines else self._gap("notice")
            lines += [*gap, *self._lines(call_view.spinning(silence))]
        return lines

    def _live_part(self) -> list[str]:
        """The live lines of the open part; its finished blocks are added to the finished lines."""
        if self._progress is not None:
            if self._clock() - self._began < _PATIENCE_S:
                return []
            done, total = self._progress.done, self._progress.total
            return self._line(f"Reading the prompt {bar(done, total)} {done}/{total} tokens")
        if self._kind == "reasoning" and not self._show_thinking:
            return self._line(f"Thinking ... ({self._n_thoughts} tokens)", "dim italic")
        if (flow := self._flows.get(self._kind)) is not None:
            return self._live_flow(flow)
        lines = [line for call in self._calls.calls for line in self._live_call(call)]
        if self._kind == "call":
            lines += self._line(f"Calling {self._written[0]} ... ({self._written[1]} tokens)")
        return [*self._gap("call"), *lines] if lines else []

    def _live_flow(self, flow: markdown.Flow) -> list[str]:
        finished, live = flow.picture()
        self._add_pieces(finished)
        lines: list[str] = []
        for piece in (piece for piece in live if piece.lines):
            gap = self._gap(self._kind, goes_on=piece.goes_on) if not lines else [""] * (not piece.goes_on)
            lines += [*gap, *piece.lines]
        return lines

    def _live_call(self, call: OpenCall) -> list[str]:
        lines = [] if call.is_shown else self._call(call)
        if call.returned is not None:
            for line in call_view.outcome(call.returned, self._screen.console.width, self._hint):
                lines += self._lines(line)
        elif self._running_since is not None:
            seconds = self._clock() - self._running_since
            name = call.call.name if call.is_shown else ""  # else its own line is right above
            lines += self._lines(call_view.spinning(seconds, name, call.line))
        return lines

    def _call(self, call: OpenCall) -> list[str]:
        width = min(LINE_WIDTH, self._screen.console.width)
        return self._lines(Text(call_line(call.call, width), "cyan"))

    def _line(self, text: str, style: str = "dim") -> list[str]:
        return self._lines(call_view.row(text, style))

    def _lines(self, text: Text) -> list[str]:
        return markdown.to_lines(text, self._screen.console)
