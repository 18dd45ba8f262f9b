"""Messages made of parts, and the tools that a model may call.

A message is a role and a tuple of parts in the order in which they were generated; tool calls are parts, so their
place among the text is never lost. Nothing here knows a provider, a template or a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from shepherd.core.dataclasses import dataclass, field, replace

Role = Literal["system", "user", "assistant", "tool"]

TRANSIENT: Mapping[str, bool] = {"transient": True}
"""Marks the fields of a part that belong to one request, and are not saved with a conversation."""


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text."""

    text: str
    aside: bool = False
    """Added by Shepherd: a notice, a recalled memory. The model reads it; it is not archived."""
    refused: bool = field(default=False, compare=False)
    """The model refuses in these words, where a provider reports it."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image, by value or by reference: `data`, or `url`; both once the address was fetched here."""

    media_type: str = ""
    """MIME type, such as `image/png`; empty when only a URL is known."""
    data: bytes | None = None
    url: str | None = None
    detail: str = ""
    """How closely a provider's model looks, in the words of OpenAI's protocols (`low`, `high`); empty = not given."""
    left_out: str = field(default="", metadata=TRANSIENT)
    """Why a model that sees images does not see this one, as the end of a sentence; a note stands in its place."""
    path: str = field(default="", compare=False, repr=False, metadata=TRANSIENT)
    """Where it stands in the body of its request, for errors; empty = the request came from no body."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording, by value."""

    media_type: str
    """MIME type, such as `audio/wav`."""
    data: bytes
    left_out: str = field(default="", metadata=TRANSIENT)
    """As that of `Image`, for a model that hears."""
    path: str = field(default="", compare=False, repr=False, metadata=TRANSIENT)
    """As that of `Image`."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file that only some models read, such as a PDF: exactly one of `data` and `url` is given. A document of plain
    text is a `Text`: every model reads it."""

    name: str
    media_type: str = ""
    data: bytes | None = None
    url: str | None = None

    @property
    def note(self) -> str:
        """What a model reads that cannot read the file."""
        if self.url is not None:
            return f"[document: {self.name}, {self.url}; only its address was sent, so it cannot be read here]"
        size = f"{max(1, round(len(self.data or b'') / 1000))} kB"
        facts = ", ".join(fact for fact in (self.name, self.media_type, size) if fact)
        return f"[document: {facts}; it cannot be read here]"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking that is not part of the answer."""

    text: str
    signature: str | None = None
    """Opaque proof by the provider, with its protocol in front (`wire.signature`); goes back only to where it came
    from."""
    redacted: bool = False
    """The provider hid the text; `signature` carries what it wants back."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that parsed. Every call gets exactly one `ToolResult`."""

    id: str
    name: str
    arguments: str
    """JSON object text, exactly as the model wrote it: 64-bit integers and key order survive."""
    raw: str | None = None
    """The whole block as the model wrote it, markup included; replayed byte for byte to the same origin."""
    signature: str | None = None
    """As that of `Reasoning`, where a provider signs its calls."""


@dataclass(frozen=True, slots=True)
class BadCall:
    """Text that looked like a call and did not parse: shown and answerable, never silently text, never `{}`."""

    raw: str
    error: str
    """One sentence that the model can act on."""
    id: str = ""
    name: str = ""
    """Empty when not even the name could be read."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    parts: tuple[Text | Image | Audio, ...]
    name: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block that only one protocol has, such as a search that the provider ran, or a compaction. It passes through
    where both sides speak that protocol; elsewhere `parts` take its place."""

    protocol: str
    body: str
    """JSON text, as it came."""
    parts: tuple[Text | ToolCall | ToolResult, ...] = ()
    """What any other model reads."""

    @property
    def result(self) -> ToolResult | None:
        """The result of a call, where the block is nothing else."""
        match self.parts:
            case (ToolResult() as result,):
                return result
            case _:
                return None


Part = Text | Image | Audio | Document | Reasoning | ToolCall | BadCall | ToolResult | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...] = ()
    origin: str | None = None
    """The model that generated it (`backend:model`); `None` for what a client sent."""
    digests: bytes = field(default=b"", init=False, repr=False, compare=False)
    """Of its content, once they are computed: a history is hashed many times (`backends/local/prefix_hash.py`)."""

    @property
    def text(self) -> str:
        """The visible text, parts joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def own_text(self) -> str:
        """The visible text without asides."""
        return "".join(part.text for part in self.parts if isinstance(part, Text) and not part.aside)

    @property
    def reasoning(self) -> str:
        """The reasoning text, parts joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that parsed, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of calls, those in the blocks of one protocol included."""
        found = (part.result if isinstance(part, Opaque) else part for part in self.parts)
        return tuple(part for part in found if isinstance(part, ToolResult))

    @property
    def is_input(self) -> bool:
        """Whether it is a user's message, and not the result of a call."""
        return self.role == "user" and not any(isinstance(part, ToolResult) for part in self.parts)

    @classmethod
    def system(cls, text: str) -> Message:
        return cls("system", (Text(text),))

    @classmethod
    def user(cls, text: str) -> Message:
        return cls("user", (Text(text),))

    @classmethod
    def assistant(cls, text: str) -> Message:
        return cls("assistant", (Text(text),))


def leading_systems(messages: Sequence[Message]) -> int:
    """How many system messages stand before all others."""
    return next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))


def newest_input(messages: Sequence[Message]) -> int | None:
    """The index of the user's newest message, if the model is to answer it: neither an earlier one, nor what a client
    sends beside the result of a call."""
    at = len(messages) - 1
    while at >= 0 and messages[at].role == "system":
        at -= 1
    if at < 0 or not messages[at].is_input or any(message.results for message in messages[max(0, at - 1) : at]):
        return None
    return at


def with_aside(message: Message, text: str) -> Message:
    """The message with words of ours at its end; in its last result of a call where it ends with one."""
    said, last = Text(text, aside=True), message.parts[-1] if message.parts else None
    if isinstance(last, ToolResult):
        return replace(message, parts=(*message.parts[:-1], replace(last, parts=(*last.parts, said))))
    return replace(message, parts=(*message.parts, said))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments object, passed through unflattened."""
    strict: bool = False
    """A schema that the model cannot be held to is refused, not loosened."""
