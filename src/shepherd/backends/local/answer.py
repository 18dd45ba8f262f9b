"""One answer in the making: token ids in, events out. Pure; no I/O, no engine, no clock.

    token ─ bytes ─ incremental UTF-8 ─ role stops ─ parser ─ client's stops ─▶ events

Role stops (`<|im_start|>user` and the like, when a vocabulary spells them in ordinary tokens) look at the raw text and
end the turn as the end token would. The client's stop strings look at the visible text only: neither reasoning nor the
arguments of a call can trigger them. How likely the tokens were that become visible goes out with them (`scores`).
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator, Sequence

from shepherd.backends.local.completion import Echo
from shepherd.backends.local.logprobs import Scores, told
from shepherd.backends.local.stop import StopFilter
from shepherd.core import (
    Assembler,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Message,
    Progress,
    ReasoningDelta,
    Started,
    StopReason,
    TextDelta,
    ToolCall,
    Traced,
    Usage,
)
from shepherd.dialects import Parser
from shepherd.engine.base import Admitted, Done, Prefill, Read, Scored, Step, Vocabulary


class Answer:
    """Turns the steps of one job into the events of one answer."""

    def __init__(
        self,
        parser: Parser,
        vocabulary: Vocabulary,
        *,
        model: str,
        cache: str = "",
        stops: Sequence[str] = (),
        role_stops: Sequence[str] = (),
        end_token: int | None = None,
        marks: Collection[int] = (),
        trace: str | None = None,
        echo: Echo | None = None,
        is_silent: bool = False,
    ) -> None:
        """`end_token` ends the answer as the engine's own end tokens do, which are never seen here. `marks` are the
        protocol's tokens.

        `trace`: the prompt, if what the model reads and writes is to be told word for word. `echo`: what is said before
        the answer. `is_silent`: nothing else is, for an answer of no tokens at all.
        """
        self.tokens: list[int] = []
        """Generated so far, without the end token."""
        self.ended = False
        """`Finished` has been yielded: what follows is of no interest."""
        self._model = model
        self._cache = cache
        self._trace = trace
        self._echo = echo
        self._is_silent = is_silent
        self._scores: Scores | None = None
        """There from the first scored token on."""
        self._end_token = end_token
        self._marks = marks
        self._vocabulary = vocabulary
        self._parser = parser
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._role_stops = StopFilter(role_stops)
        self._stops = StopFilter(stops)
        self._admitted = Admitted(0, 0)
        self._n_output = 0
        self._n_reasoning = 0
        self._reasons = self._has_calls = False
        self._takes_notices = False
        self._notices: list[Progress | Evicted] = []
        self._assembler = Assembler()

    @property
    def message(self) -> Message | None:
        """What was said; None before the answer has ended, and when a stop string has cut it."""
        return self._assembler.reply().message if self.ended and self._stops.found is None else None

    @property
    def usage(self) -> Usage:
        """What the model has read and written so far; what had left before it was asked counts nowhere."""
        return Usage(
            input=self._admitted.n_new,
            cache_read=self._admitted.n_cached,
            output=self._n_output,
            reasoning=self._n_reasoning,
        )

    def take(self, step: Step) -> Iterator[Event]:
        """The events that one more step of the job brings; often none."""
        for event in self._taken(step):
            self._assembler.feed(event)
            yield event

    def _taken(self, step: Step) -> Iterable[Event]:
        match step:
            case int():
                return self._token(step)
            case Scored():
                return self._token(step.token, step)
            case Admitted():
                return self._begin(step)
            case Prefill(done, total):
                return self._told(Progress(done, total))
            case Read(scores):
                return self._say_again(scores)
            case Evicted():
                return self._told(step)
            case Done():
                return self._end(step)

    def _begin(self, admitted: Admitted) -> Iterator[Event]:
        self._admitted = admitted
        self._takes_notices = True
        yield Started(self._model, f"local:{self._model}", self.usage, self._cache)
        if self._trace is not None:
            yield Traced("prompt", self._trace)
        yield from self._told()

    def _say_again(self, scores: Sequence[Scored] = ()) -> Iterator[Event]:
        """The prompt, before the first token, with the scores of its tokens if there are any."""
        echo, self._echo = self._echo, None
        if echo is not None and echo.text:
            yield TextDelta(echo.text, tuple(told(s, self._vocabulary) for s in scores[echo.start : echo.stop]))

    def _told(self, *notices: Progress | Evicted) -> Sequence[Event]:
        """The notices that may come now: behind `Started`, and not within a call."""
        self._notices += notices
        if not self._takes_notices:
            return ()
        told, self._notices = self._notices, []
        return told

    def _token(self, token: int, scored: Scored | None = None) -> Iterator[Event]:
        if self._echo is not None:
            yield from self._say_again()
        if self._is_silent:
            yield from self._finish("length")
            return
        if token == self._end_token:
            yield from self._end(Done("end", token))
            return
        self.tokens.append(token)
        self._n_output += 1
        written = self._utf8.decode(self._vocabulary.piece(token))
        if self._trace is not None and written:
            yield Traced("output", written)
        if scored is not None:
            self._scores = self._scores or Scores(self._vocabulary)
            self._scores.write(scored, written, is_open=bool(self._utf8.getstate()[0]))
        if text := self._role_stops.feed(written):
            yield from self._show(self._parser.feed(text))
        if scored is not None and token in self._marks and self._scores:
            self._scores.mark()
        self._n_reasoning += self._reasons
        if self._stops.found is None and self._role_stops.found is not None:
            yield from self._settle(truncated=False)
            yield from self._finish("end")
        elif self._stops.found is not None:
            yield from self._finish("stop")

    def _end(self, done: Done) -> Iterator[Event]:
        """The last events: everything that is open is settled."""
        if self._echo is not None:
            yield from self._say_again()
        if self._is_silent:
            yield from self._finish("length" if done.reason == "end" else done.reason)
            return
        if done.end_token is not None:
            self._n_output += 1  # it was generated, though nobody sees it
        written = self._utf8.decode(b"", True)
        if self._trace is not None and written:
            yield Traced("output", written)
        if self._scores:
            self._scores.close(written)
        if text := self._role_stops.feed(written) + self._role_stops.close():
            yield from self._show(self._parser.feed(text))
        yield from self._settle(truncated=done.reason != "end")
        yield from self._finish(done.reason)

    def _settle(self, *, truncated: bool) -> Iterator[Event]:
        if self._stops.found is None:
            yield from self._show(self._parser.close(truncated=truncated))
            yield from self._said(self._stops.close())

    def _said(self, text: str) -> Iterator[TextDelta]:
        if text:
            yield TextDelta(text, self._scores.show(text)) if self._scores else TextDelta(text)

    def _show(self, events: Iterable[Event]) -> Iterator[Event]:
        """The parser's events, with the client's stop strings applied to the visible text."""
        for event in events:
            match event:
                case TextDelta(text):
                    self._reasons = False
                    yield from self._said(self._stops.feed(text))
                    if self._stops.found is not None:
                        return
                case _:
                    # Whatever is not text ends a run of text: what was held back can become no stop string any more.
                    yield from self._said(self._stops.close())
                    if self._stops.found is not None:
                        return
                    self._reasons = isinstance(event, ReasoningDelta)
                    if self._scores:
                        self._hide(event)
                    if isinstance(event, CallStarted):
                        self._takes_notices = False
                    yield event
                    if isinstance(event, CallEnded):
                        self._has_calls |= isinstance(event.call, ToolCall)
                        self._takes_notices = True
                        yield from self._told()

    def _hide(self, event: Event) -> None:
        assert self._scores is not None
        match event:
            case ReasoningDelta(text):
                self._scores.hide(text)
            case CallEnded():
                self._scores.hide_old()
            case _:
                pass

    def _finish(self, reason: StopReason) -> Iterator[Event]:
        self.ended = True
        if self._stops.found is not None:
            reason = "stop"
        elif reason == "end" and self._has_calls:
            reason = "tool_calls"
        yield Finished(reason, self.usage, self._stops.found)
