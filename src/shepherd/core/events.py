"""The stream of events that every back end yields, and its grammar.

    stream := Started notice* ( TextDelta | ReasoningDelta | OpaqueBlock | call | notice )* Finished
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
from typing import Literal

from shepherd.core.dataclasses import astuple, dataclass, field, replace
from shepherd.core.edits import AppliedEdit
from shepherd.core.messages import BadCall, Message, Opaque, Part, Reasoning, Text, ToolCall
from shepherd.core.request import Sampling

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
    drafted: int = 0
    """Tokens that were proposed from what the conversation holds already, and checked together ..."""
    accepted: int = 0
    """... and how many of these are in `output`."""

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
    words: tuple[str, ...] = field(default=(), compare=False)
    """Of the question, or near them: what the messages were found by."""
    ids: tuple[int, ...] = field(default=(), compare=False)
    """In the archive."""


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """How a prompt was read, and how its answer is drawn."""

    text: str
    """Of its tokens, control tokens included."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """By token; minus infinity for the end tokens of an answer that ignores them."""
    sampling: Sampling = field(default_factory=Sampling)
    """Every value that holds; None for a seed that is drawn."""


@dataclass(frozen=True, slots=True)
class Started:
    """The request was accepted and fits: the first event, once."""

    model: str
    origin: str | None = None
    usage: Usage = Usage()
    """As known before the prefill: exact for local models."""
    cache: str = field(default="", compare=False)
    """The name of the cache, or of the provider, that answers."""
    archived: bool = True
    """False: the messages of the request should have been stored in the memory, and could not be."""
    recalled: Recalled | None = None
    """In front of the last message, if that is a question; quotes in front of earlier ones are only in `usage`."""
    edits: tuple[AppliedEdit, ...] = field(default=(), compare=False)
    """What the request's edits have done."""
    instead_of: tuple[str, ...] = field(default=(), compare=False)
    """Back ends that have precedence and could not answer, or rest after a failure."""
    request_id: str = field(default="", compare=False)
    """The provider's."""
    read: ReadPrompt | None = None
    """If the request wants a report."""
    n_changed: int = field(default=0, compare=False)
    """Lines of the system prompt that have changed since the conversation began: the prompt says so at its end."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """The parts of the request's schema, by their paths, that the answer is not held to."""
    at_ns: int = field(default=0, compare=False)
    """When the prompt left the queue, or was sent to a provider, by `time.perf_counter_ns`; 0 = now."""
    own: Opaque | None = field(default=None, compare=False)
    """A JSON object of what a provider's protocol reports besides, for a surface of the same protocol."""


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
    partly: tuple[int, ...] = field(default=(), compare=False)
    """Of those of which a part has left: a long result, a thought."""


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
    tokens: tuple[int, ...] = field(default=(), compare=False)
    """The tokens written since the last delta, if the request wants a report."""
    refused: bool = field(default=False, compare=False)
    """As `Text.refused`."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More thinking. A delta that carries a signature ends its part."""

    text: str
    signature: str | None = None
    redacted: bool = False
    id: str = field(default="", compare=False)
    """The provider's name of the thought, where it has one: a surface of the same protocol begins with it."""


@dataclass(frozen=True, slots=True)
class OpaqueBlock:
    """A whole block that only one protocol has; the encoders of others leave it out."""

    block: Opaque


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
    own: Opaque | None = field(default=None, compare=False)
    """As that of `Started`: how the answer ended, and what was counted."""


Event = (
    Started
    | Progress
    | Evicted
    | Traced
    | TextDelta
    | ReasoningDelta
    | OpaqueBlock
    | CallStarted
    | CallDelta
    | CallEnded
    | Finished
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
    read: ReadPrompt | None = None
    """As `Started` has it."""
    edits: tuple[AppliedEdit, ...] = field(default=(), compare=False)
    """What the request's edits have done."""
    own: tuple[Opaque | None, Opaque | None] = field(default=(None, None), compare=False)
    """As `Started` and `Finished` have it."""


class GrammarError(AssertionError):
    """A producer broke the event grammar: a bug of ours, never of a user."""


class Assembler:
    """Folds events into a message, and refuses any order that the grammar does not allow. One per stream; not for
    sharing. After an error it stays failed."""

    def __init__(self) -> None:
        self._state: Literal["new", "open", "call", "done"] = "new"
        self._started = Started("")
        self._finished = Finished("end")
        self._parts: list[Part] = []
        self._open: Text | Reasoning | None = None
        """The part that grows, without its text, which is in `_pieces`: joined once, in time proportional to it."""
        self._pieces: list[str] = []
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
            case "open", OpaqueBlock():
                self._add(event.block)
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
            message=self.partial(),
            reason=self._finished.reason,
            usage=self._finished.usage,
            model=self._started.model,
            stop=self._finished.stop,
            evicted=self._evicted,
            scores=tuple(self._scores),
            read=self._started.read,
            edits=self._started.edits,
            own=(self._started.own, self._finished.own),
        )

    def partial(self) -> Message:
        """The answer so far, complete parts only: what to keep of an answer that was cancelled."""
        return Message("assistant", (*self._parts, *self._grown()), self._started.origin)

    def _grown(self) -> Iterator[Part]:
        """The part that grows, as far as it has come."""
        if self._open is not None:
            yield replace(self._open, text="".join(self._pieces))

    def _add(self, *parts: Part) -> None:
        """What follows on the part that has grown."""
        self._parts += (*self._grown(), *parts)
        self._open, self._pieces = None, []

    def _add_text(self, event: TextDelta) -> None:
        if not event.text:
            raise GrammarError("a TextDelta is never empty")
        self._scores += event.scores
        if not (isinstance(self._open, Text) and self._open.refused == event.refused):
            self._add()
            self._open = Text("", refused=event.refused)
        self._pieces.append(event.text)

    def _add_reasoning(self, event: ReasoningDelta) -> None:
        last = self._open
        if isinstance(last, Reasoning) and last.signature is None and not last.redacted and not event.redacted:
            self._open = replace(last, signature=event.signature)
        else:
            self._add()
            self._open = Reasoning("", event.signature, event.redacted)
        self._pieces.append(event.text)

    def _end_call(self, call: ToolCall | BadCall) -> None:
        if call.id != self._call.id:
            raise GrammarError(f"call {self._call.id!r} was open, {call.id!r} ended")
        if isinstance(call, ToolCall):
            if call.name != self._call.name:
                raise GrammarError(f"call {call.id!r} started as {self._call.name!r} and ended as {call.name!r}")
            if "".join(self._arguments) != call.arguments:
                raise GrammarError(f"the deltas of call {call.id!r} do not spell its arguments")
        self._add(call)


def fold(events: Iterable[Event]) -> Reply:
    """The reply that a whole stream spells. Raises: `GrammarError` on any other order than the grammar's."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.reply()


def as_text(event: Event) -> Event:
    """A call as the text that the model wrote, which comes with its end; any other event as it is."""
    if isinstance(event, CallStarted | CallDelta | CallEnded):
        return TextDelta((isinstance(event, CallEnded) and event.call.raw) or "")
    return event


def replay(message: Message, *, model: str = "replay", reason: StopReason | None = None) -> Iterator[Event]:
    """The stream that would have produced an assistant `message`. Raises: `ValueError` for parts that no model
    generates (images, tool results)."""
    yield Started(model, message.origin)
    for part in message.parts:
        match part:
            case Text():
                yield TextDelta(part.text, refused=part.refused)
            case Reasoning():
                yield ReasoningDelta(part.text, part.signature, part.redacted)
            case Opaque():
                yield OpaqueBlock(part)
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


class Measured:
    """Counts the tokens of a stream, of one answer or of a whole turn, while it comes. An answer that has not finished
    counts one token for each piece that came."""

    def __init__(self) -> None:
        self.usage = Usage()
        """Of the newest answer."""
        self.total = Usage()
        """Of all answers that have finished."""

    def feed(self, event: object) -> None:
        """Take the next event; events without tokens are passed over."""
        match event:
            case TextDelta() | CallDelta() | ReasoningDelta():
                usage, is_thought = self.usage, isinstance(event, ReasoningDelta)
                self.usage = replace(usage, output=usage.output + 1, reasoning=usage.reasoning + is_thought)
            case Started(usage=usage):
                self.usage = usage
            case Finished(usage=usage):
                self.usage, self.total = usage, self.total + usage
            case _:
                pass
