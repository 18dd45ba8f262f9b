"""The stream of events that every back end yields, and its grammar.

    stream := Started notice* ( TextDelta | ReasoningDelta | call | notice )* Finished
    call   := CallStarted CallDelta* CallEnded(ToolCall | BadCall)
    notice := Progress | Evicted
    Traced may come anywhere in between: it is about the answer, not of it

Streaming is the only path; a whole reply is the fold of its events. `Assembler.feed` *is* the grammar: it raises on any
other order. Failures are exceptions, never events.

Laws, tested: `fold(replay(m)).message == m` for every assistant message in normal form (no empty text, no two mergeable
neighbours); the deltas of a call that parsed spell its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import Literal

from shepherd.core.messages import BadCall, Message, Part, Reasoning, Text, ToolCall

StopReason = Literal["end", "stop", "length", "tool_calls", "filtered", "cancelled"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. The three inputs are disjoint; their sum is the prompt."""

    input: int = 0
    """Prompt tokens that were neither read from nor written to a cache of the provider."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    """How many of `output` were reasoning."""
    recalled: int = 0
    """How many of the prompt were quotes from the memory."""

    def __add__(self, other: Usage) -> Usage:
        """Of two requests together."""
        return Usage(*map(operator.add, astuple(self), astuple(other)))

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Recalled:
    """Earlier messages that the memory has put in front of a question."""

    messages: int
    tokens: int
    oldest_s: float
    newest_s: float
    """Unix times of the messages."""


@dataclass(frozen=True, slots=True)
class Started:
    """The request was accepted and fits: the first event, once."""

    model: str
    origin: str | None = None
    usage: Usage = Usage()
    """As known before the prefill: exact for local models."""
    cache: str = field(default="", compare=False)
    """The name of the cache that answers."""
    archived: bool = True
    """False: the messages of the request should have been stored in the memory, and could not be."""
    recalled: Recalled | None = None
    """In front of the last message, if that is a question; quotes in front of earlier ones are only in `usage`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Prefill so far, in prompt tokens that had to be computed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Evicted:
    """Old turns left the context to make room."""

    messages: int
    tokens: int
    gone: tuple[int, ...] = field(default=(), compare=False)
    """Indexes of the request's messages that have left the context completely, as far as is known."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The exact input of the model (`prompt`), or the next piece of its output; only for requests with `trace`."""

    stage: Literal["prompt", "output"]
    text: str


@dataclass(frozen=True, slots=True)
class TokenScore:
    """The probability of one token, before sampling parameters change it."""

    id: int
    piece: bytes
    """May end inside of a character."""
    logprob: float
    """Natural logarithm of the probability."""
    top: tuple[tuple[int, bytes, float], ...] = ()
    """The likeliest tokens there: id, bytes, logprob; the likeliest first."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    scores: tuple[TokenScore, ...] = field(default=(), compare=False)
    """Of the tokens that have become visible text since the last delta, if the request wants them. Together they spell
    the answer's text; those of one delta need not spell that delta."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More thinking. A delta that carries a signature ends its part."""

    text: str
    signature: str | None = None
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class CallStarted:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next piece of the arguments' text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    call: ToolCall | BadCall


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event, once."""

    reason: StopReason
    usage: Usage = Usage()
    stop: str | None = None
    """The stop string that ended it, when `reason` is `stop`."""


Event = (
    Started | Progress | Evicted | Traced | TextDelta | ReasoningDelta | CallStarted | CallDelta | CallEnded | Finished
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole stream, folded."""

    message: Message
    reason: StopReason
    usage: Usage
    model: str
    stop: str | None = None
    evicted: int = 0
    """Messages that left the context for this reply."""
    scores: tuple[TokenScore, ...] = ()
    """Of the tokens of the visible text, if the request wanted them."""


class GrammarError(AssertionError):
    """A producer broke the event grammar: a bug of ours, never of a user."""


class Assembler:
    """Folds events into a message, and refuses any order that the grammar does not allow.

    One per stream; not for sharing. After an error it stays failed.
    """

    def __init__(self) -> None:
        self._state: Literal["new", "open", "call", "done"] = "new"
        self._started = Started("")
        self._finished = Finished("end")
        self._parts: list[Part] = []
        self._call = CallStarted("", "")
        self._arguments: list[str] = []
        self._evicted = 0
        self._scores: list[TokenScore] = []

    def feed(self, event: Event) -> None:
        """Take the next event. Raises: `GrammarError` when it may not come here."""
        match self._state, event:
            case "new", Started():
                self._started = event
                self._state = "open"
            case ("open" | "call", Traced()) | ("open", Progress()):
                pass
            case "open", Evicted():
                self._evicted += event.messages
            case "open", TextDelta():
                self._add_text(event)
            case "open", ReasoningDelta():
                self._add_reasoning(event)
            case "open", CallStarted():
                self._call, self._arguments = event, []
                self._state = "call"
            case "call", CallDelta():
                self._arguments.append(event.text)
            case "call", CallEnded():
                self._end_call(event.call)
                self._state = "open"
            case "open", Finished():
                self._finished = event
                self._state = "done"
            case state, _:
                self._state = "done"
                self._started = Started("")
                raise GrammarError(f"{type(event).__name__} cannot come in state {state!r}")

    def reply(self) -> Reply:
        """The folded stream. Raises: `GrammarError` before `Finished`."""
        if self._state != "done" or not self._started.model:
            raise GrammarError(f"the stream has not finished properly (state {self._state!r})")
        return Reply(
            message=Message("assistant", tuple(self._parts), self._started.origin),
            reason=self._finished.reason,
            usage=self._finished.usage,
            model=self._started.model,
            stop=self._finished.stop,
            evicted=self._evicted,
            scores=tuple(self._scores),
        )

    def partial(self) -> Message:
        """The answer so far, complete parts only: what to keep of an answer that was cancelled."""
        return Message("assistant", tuple(self._parts), self._started.origin)

    def _add_text(self, event: TextDelta) -> None:
        if not event.text:
            raise GrammarError("a TextDelta is never empty")
        self._scores += event.scores
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Text):
            self._parts[-1] = Text(last.text + event.text)
        else:
            self._parts.append(Text(event.text))

    def _add_reasoning(self, event: ReasoningDelta) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Reasoning) and last.signature is None and not last.redacted and not event.redacted:
            self._parts[-1] = replace(last, text=last.text + event.text, signature=event.signature)
        else:
            self._parts.append(Reasoning(event.text, event.signature, event.redacted))

    def _end_call(self, call: ToolCall | BadCall) -> None:
        if call.id != self._call.id:
            raise GrammarError(f"call {self._call.id!r} was open, {call.id!r} ended")
        if isinstance(call, ToolCall):
            if call.name != self._call.name:
                raise GrammarError(f"call {call.id!r} started as {self._call.name!r} and ended as {call.name!r}")
            if "".join(self._arguments) != call.arguments:
                raise GrammarError(f"the deltas of call {call.id!r} do not spell its arguments")
        self._parts.append(call)


def fold(events: Iterable[Event]) -> Reply:
    """The reply that a whole stream spells. Raises: `GrammarError` on any other order than the grammar's."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.reply()


def replay(message: Message, *, model: str = "replay", reason: StopReason | None = None) -> Iterator[Event]:
    """The stream that would have produced an assistant `message`.

    Raises: `ValueError` for parts that no model generates (images, tool results).
    """
    yield Started(model, message.origin)
    for part in message.parts:
        match part:
            case Text():
                yield TextDelta(part.text)
            case Reasoning():
                yield ReasoningDelta(part.text, part.signature, part.redacted)
            case ToolCall():
                yield CallStarted(part.id, part.name)
                yield CallDelta(part.arguments)
                yield CallEnded(part)
            case BadCall():
                yield CallStarted(part.id, part.name)
                yield CallEnded(part)
            case _:
                raise ValueError(f"an assistant message cannot hold {type(part).__name__}")
    yield Finished(reason or ("tool_calls" if message.calls else "end"))
