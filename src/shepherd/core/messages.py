"""Messages made of parts, and the tools that a model may call.

A message is a role and a tuple of parts in the order in which they were generated; tool calls are parts, so their
place among the text is never lost. Nothing here knows a provider, a template or a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text."""

    text: str
    aside: bool = False
    """Added by Shepherd: a notice, a recalled memory. The model reads it; it is not archived."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image, by value or by reference: exactly one of `data` and `url` is given."""

    media_type: str = ""
    """MIME type, such as `image/png`; empty when only a URL is known."""
    data: bytes | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking that is not part of the answer."""

    text: str
    signature: str | None = None
    """Opaque proof by the provider; goes back only to the origin it came from."""
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
    """The answer to one call."""

    call_id: str
    parts: tuple[Text | Image, ...]
    name: str = ""
    is_error: bool = False


Part = Text | Image | Reasoning | ToolCall | BadCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    parts: tuple[Part, ...] = ()
    origin: str | None = None
    """The model that generated it (`backend:model`); `None` for what a client sent."""

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


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool offered to the model."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments object, passed through unflattened."""
    strict: bool = False
    """A schema that the model cannot be held to is refused, not loosened."""
