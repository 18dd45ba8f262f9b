"""One answer as it is generated: the engine's steps in, events out. Pure; no I/O, no engine, no clock.

    token ─ bytes ─ incremental UTF-8 ─ role stops ─ parser ─ client's stops ─▶ events

Role stops (`<|im_start|>user` and the like, when a vocabulary spells them in ordinary tokens) look at the raw text and
end the turn as the end token does. The client's stop strings look at the visible text only: neither reasoning nor the
arguments of a call can trigger them. The log probabilities of visible tokens go out with their text (`logprobs.py`).
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Sequence

from shepherd.backends.local.completion import Echo
from shepherd.backends.local.logprobs import Scores, score_of
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
    ReadPrompt,
    ReasoningDelta,
    Started,
    StopReason,
    TextDelta,
    ToolCall,
    Traced,
    Usage,
)
from shepherd.core.events import as_text
from shepherd.dialects import Parser
from shepherd.engine.base import Admitted, Done, Prefill, PromptScores, Scored, Step, Vocabulary


class Answer:
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
        read: ReadPrompt | None = None,
        has_tools: bool = True,
        n_prompt: int | None = None,
        n_quoted: int = 0,
        n_changed: int = 0,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """`end_token` ends the answer as the engine's own end tokens do, which never come here. `marks`: the protocol's
        tokens. `trace`: the prompt, if `Traced` events are wanted. `echo`: the text that is repeated before the answer.
        `is_silent`: the answer has no tokens of its own (`max_tokens = 0`). `has_tools`: without tools to call, a call
        is text, as the model wrote it. `read`, `n_changed`, `left_out`: what `Started` reports. `n_prompt`: its tokens
        in a window larger than the cells, where those that have left count as read from the cache; None: they do not
        count. `n_quoted`: tokens of the prompt that are quotes.
        """
        self.tokens: list[int] = []
        """Generated so far, without the end token."""
        self.has_ended = False
        """`take` has returned `Finished`: later steps do not count."""
        self._model = model
        self._cache = cache
        self._trace = trace
        self._echo = echo
        self._is_silent = is_silent
        self._read = read
        self._n_prompt = n_prompt
        self._n_quoted = n_quoted
        self._has_tools = has_tools
        self._n_changed = n_changed
        self._left_out = left_out
        self._unshown: list[int] | None = None if read is None else []
        """Tokens since the last text, if they are wanted."""
        self._scores: Scores | None = None
        """Set from the first scored token on."""
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
        self._events: list[Event] = []
        """Of the current step, so far."""

    @property
    def message(self) -> Message | None:
        """The whole answer; None before it has ended, and when a stop string has cut it."""
        return self._assembler.reply().message if self.has_ended and self._stops.found is None else None

    @property
    def usage(self) -> Usage:
        """Tokens that the model has read and written so far; what was evicted before it began is not in it, unless the
        window is larger than the cells."""
        n_new = self._admitted.n_new
        return Usage(
            input=n_new,
            cache_read=self._admitted.n_cached if self._n_prompt is None else max(0, self._n_prompt - n_new),
            output=self._n_output,
            reasoning=self._n_reasoning,
            recalled=self._n_quoted,
        )

    def take(self, step: Step) -> list[Event]:
        """The events of the next step of the job; often none."""
        match step:
            case int():
                self._token(step)
            case Scored():
                self._token(step.token, step)
            case Admitted():
                if self._takes_notices:  # the engine knows its figures better by now
                    self._admitted = step
                else:
                    self._begin(step)
            case Prefill(done, total):
                self._notice(Progress(done, total))
            case PromptScores(scores):
                self._repeat_prompt(scores)
            case Evicted():
                self._notice(step)
            case Done():
                self._end(step)
        events, self._events = self._events, []
        return events

    def _emit(self, event: Event) -> None:
        self._assembler.feed(event)
        self._events.append(event)

    def _begin(self, admitted: Admitted) -> None:
        self._admitted = admitted
        self._takes_notices = True
        origin, at_ns = f"local:{self._model}", admitted.at_ns
        self._emit(
            Started(
                self._model,
                origin,
                self.usage,
                self._cache,
                read=self._read,
                n_changed=self._n_changed,
                at_ns=at_ns,
                left_out=self._left_out,
            )
        )
        if self._trace is not None:
            self._emit(Traced("prompt", self._trace))
        self._notice()

    def _repeat_prompt(self, scores: Sequence[Scored] = ()) -> None:
        """The prompt, before the first token, with the scores of its tokens if there are any."""
        echo, self._echo = self._echo, None
        if echo is not None and echo.text:
            own = scores[echo.start : echo.stop]
            self._emit(TextDelta(echo.text, tuple(score_of(each, self._vocabulary) for each in own)))

    def _notice(self, *notices: Progress | Evicted) -> None:
        """Emit the notices where the grammar allows it: behind `Started`, and not within a call."""
        self._notices += notices
        if self._takes_notices:
            for notice in self._notices:
                self._emit(notice)
            self._notices = []

    def _token(self, token: int, scored: Scored | None = None) -> None:
        if self._echo is not None:
            self._repeat_prompt()
        if self._is_silent:
            self._finish("length")
            return
        if token == self._end_token:
            self._end(Done("end", token))
            return
        self.tokens.append(token)
        if self._unshown is not None:
            self._unshown.append(token)
        self._n_output += 1
        written = self._utf8.decode(self._vocabulary.piece(token))
        if self._trace is not None and written:
            self._emit(Traced("output", written))
        if scored is not None:
            self._scores = self._scores or Scores(self._vocabulary)
            self._scores.write(scored, written, is_open=bool(self._utf8.getstate()[0]))
        if text := self._role_stops.feed(written):
            self._parsed(self._parser.feed(text))
        if scored is not None and token in self._marks and self._scores:
            self._scores.mark()
        self._n_reasoning += self._reasons
        if self._stops.found is None and self._role_stops.found is not None:
            self._close(truncated=False)
            self._finish("end")
        elif self._stops.found is not None:
            self._finish("stop")

    def _end(self, done: Done) -> None:
        """The last events: what was held back comes out."""
        if self._echo is not None:
            self._repeat_prompt()
        if self._is_silent:
            self._finish("length" if done.reason == "end" else done.reason)
            return
        if done.end_token is not None:
            self._n_output += 1  # the model generated it, though it is never shown
        written = self._utf8.decode(b"", True)
        if self._trace is not None and written:
            self._emit(Traced("output", written))
        if self._scores:
            self._scores.close(written)
        if text := self._role_stops.feed(written) + self._role_stops.close():
            self._parsed(self._parser.feed(text))
        self._close(truncated=done.reason != "end")
        self._finish(done.reason)

    def _close(self, *, truncated: bool) -> None:
        if self._stops.found is None:
            self._parsed(self._parser.close(truncated=truncated))
            self._show(self._stops.close())

    def _show(self, text: str) -> None:
        if text:
            tokens: tuple[int, ...] = ()
            if self._unshown:
                tokens = tuple(self._unshown)
                self._unshown.clear()
            self._emit(TextDelta(text, self._scores.show(text) if self._scores else (), tokens))

    def _parsed(self, events: Iterable[Event]) -> None:
        """The parser's events, with the client's stop strings applied to the visible text."""
        for event in events:
            event = event if self._has_tools else as_text(event)
            if isinstance(event, TextDelta):
                self._reasons = False
                self._show(self._stops.feed(event.text))
                if self._stops.found is not None:
                    return
                continue
            # Any other event ends a run of text: what was held back can no longer become a stop string.
            self._show(self._stops.close())
            if self._stops.found is not None:
                return
            self._reasons = isinstance(event, ReasoningDelta)
            if self._scores and isinstance(event, ReasoningDelta):
                self._scores.hide(event.text)
            elif self._scores and isinstance(event, CallEnded):
                self._scores.hide_old()
            if isinstance(event, CallStarted):
                self._takes_notices = False
            self._emit(event)
            if isinstance(event, CallEnded):
                self._has_calls |= isinstance(event.call, ToolCall)
                self._takes_notices = True
                self._notice()

    def _finish(self, reason: StopReason) -> None:
        self.has_ended = True
        if self._stops.found is not None:
            reason = "stop"
        elif reason == "end" and self._has_calls:
            reason = "tool_calls"
        self._emit(Finished(reason, self.usage, self._stops.found))
