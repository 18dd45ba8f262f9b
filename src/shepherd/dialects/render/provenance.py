"""Strings that remember which characters came from a request, through everything that templates do to strings.

Only the template's own text may become control tokens: a message with `<|im_start|>` stands for those characters and
nothing else. Templates trim, split, join and format freely, so the string itself carries its origin. An `OriginStr` is
a `str` with spans, and every operation on it returns spans again. Where an operation cannot be followed exactly, the
whole result counts as request text, which is the safe side.

    "<|im_start|>user\\n" + content + "<|im_end|>\\n"
     └── no span ────────┘ └ (17, 22, 3): message 3
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from shepherd.core import Audio, EngineError, Image
from shepherd.dialects.base import Piece

Span = tuple[int, int, int]
"""`[start, stop)` of the string, and its origin. The spans of a string are sorted, disjoint and not empty."""


class MediaOrigin(int):
    """The origin of a name that stands for an image or a recording: the index of the message, as of its texts."""


def standing(part: Image | Audio, index: int) -> OriginStr:
    """An image or a recording in a text of message `index`: its name, of an origin that no text has."""
    name = name_of(part)
    return OriginStr(name, ((0, len(name), MediaOrigin(index)),))


def name_of(part: Image | Audio) -> str:
    """What stands for a file by value in the text of a prompt. Other files have other names: prompts are compared by
    their text."""
    kind = "image" if isinstance(part, Image) else "sound"
    return f"[{kind} {hashlib.sha256(part.data or b'').hexdigest()[:HASH_LENGTH]}]"


HASH_LENGTH = 32
NAME_LENGTH = HASH_LENGTH + len("[image ]")


def mapped(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """A method that changes the string, followed character by character where `change` looks at no neighbours."""

    def changed(self: OriginStr) -> OriginStr:
        text = change(plain(self))
        return OriginStr(text, self.spans) if len(text) == len(self) else whole(text, self)

    return changed


def unfollowed(change: Callable[..., str]) -> Callable[..., Any]:
    return lambda self, *args, **given: whole(change(self, *args, **given), self, args, given)


class OriginStr(str):
    """Text with some characters from a request. Compares, hashes and tests like the plain string."""

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, text: str = "", spans: tuple[Span, ...] = ()) -> OriginStr:
        self = super().__new__(cls, text)
        self.spans = spans
        return self

    def __str__(self) -> str:
        # Jinja makes text of a value with `str(x)`; the plain copy of `str` would lose the spans.
        return self

    def cut(self, start: int, stop: int) -> OriginStr:
        """The characters `[start, stop)`; both within bounds."""
        spans = ((max(a, start) - start, min(b, stop) - start, o) for a, b, o in self.spans if a < stop and b > start)
        return OriginStr(super().__getitem__(slice(start, stop)), tuple(spans))

    def __getitem__(self, key: SupportsIndex | slice) -> OriginStr:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self.cut(start, max(start, stop)) if step == 1 else whole(super().__getitem__(key), self)
        super().__getitem__(key)  # raises IndexError
        index = key.__index__() % len(self)
        return self.cut(index, index + 1)

    def __iter__(self) -> Iterator[str]:
        return (self.cut(at, at + 1) for at in range(len(self)))

    def __add__(self, other: Any) -> OriginStr:
        if type(other) is str:  # most of what templates add is their own markup
            return OriginStr(super().__add__(other), self.spans)
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> OriginStr:
        if type(other) is str:
            n = len(other)
            moved = [(start + n, stop + n, origin) for start, stop, origin in self.spans]
            return OriginStr("".join((other, self)), tuple(moved))
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> OriginStr:
        return join([self] * times.__index__())

    __rmul__ = __mul__

    def join(self, parts: Iterable[str], /) -> OriginStr:
        between: list[str] = []
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"only strings can be joined, not {type(part).__name__}")
            between += (self, part)
        return join(between[1:])

    def strip(self, chars: str | None = None, /) -> OriginStr:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> OriginStr:
        return self.cut(len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> OriginStr:
        return self.cut(0, len(super().rstrip(chars)))

    def removeprefix(self, prefix: str, /) -> OriginStr:
        return self.cut(len(self) - len(super().removeprefix(prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> OriginStr:
        return self.cut(0, len(super().removesuffix(suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return list(self.found(super().split(sep, maxsplit), sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return list(self.found(super().rsplit(sep, maxsplit), sep))

    def splitlines(self, keepends: bool = False) -> list[str]:
        with_ends = self.found(super().splitlines(True), "")
        return [line.cut(0, len(kept)) for line, kept in zip(with_ends, super().splitlines(keepends), strict=True)]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, _ = super().partition(sep)
        return self.divided(len(head), len(middle))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, _ = super().rpartition(sep)
        return self.divided(len(head), len(middle))

    def divided(self, at: int, width: int) -> tuple[OriginStr, OriginStr, OriginStr]:
        return self.cut(0, at), self.cut(at, at + width), self.cut(at + width, len(self))

    def found(self, parts: Iterable[str], sep: str | None) -> Iterator[OriginStr]:
        """The `parts`, which are substrings in order with `sep` (or any whitespace) between them, with their spans."""
        at = 0
        for part in parts:
            start = self.index(part, at)
            at = start + len(part) + len(sep or "")
            yield self.cut(start, start + len(part))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> OriginStr:
        if not old:
            return whole(super().replace(old, new, count), self, new)
        return OriginStr.join(as_origin_str(new), self.split(old, count))

    lower, upper, casefold = mapped(str.lower), mapped(str.upper), mapped(str.casefold)
    swapcase, title, capitalize = mapped(str.swapcase), mapped(str.title), mapped(str.capitalize)

    expandtabs, translate = unfollowed(str.expandtabs), unfollowed(str.translate)
    center, zfill = unfollowed(str.center), unfollowed(str.zfill)

    def ljust(self, width: SupportsIndex, fillchar: str = " ", /) -> OriginStr:
        return join((self, as_origin_str(fillchar) * (width.__index__() - len(self))))

    def rjust(self, width: SupportsIndex, fillchar: str = " ", /) -> OriginStr:
        return join((as_origin_str(fillchar) * (width.__index__() - len(self)), self))


class Arguments(dict[str, Any]):
    """The arguments of a call: a mapping for templates that walk it, the model's exact text for those that print it."""

    def __init__(self, items: Mapping[str, Any], text: OriginStr) -> None:
        super().__init__(items)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Any) -> OriginStr:
        return join((self.text, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> OriginStr:
        return join((other, self.text)) if isinstance(other, str) else NotImplemented


def plain(text: str) -> str:
    return str.__str__(text) if type(text) is not str else text


def as_origin_str(text: str) -> OriginStr:
    """The text itself when it knows its origins, else the same characters as markup."""
    return text if isinstance(text, OriginStr) else OriginStr(text)


def join(parts: Iterable[str]) -> OriginStr:
    texts: list[str] = []
    spans: list[Span] = []
    at = end = 0
    last: int | None = None
    """Of the last span: where it ends, and its origin."""
    for part in parts:
        if isinstance(part, OriginStr):
            for start, stop, origin in part.spans:
                if end == at + start and last == origin and type(origin) is type(last) is int:
                    spans[-1] = (spans[-1][0], at + stop, origin)
                else:
                    spans.append((at + start, at + stop, origin))
                end, last = at + stop, origin
        texts.append(part)
        at += len(part)
    return OriginStr("".join(texts), tuple(spans))


def origins(value: Any) -> set[int]:
    match value:
        case OriginStr():
            return {int(origin) for _, _, origin in value.spans}
        case Arguments():
            return origins(value.text)
        case Mapping():
            return set().union(*map(origins, value.keys()), *map(origins, value.values()))
        case list() | tuple() | set() | frozenset():
            return set().union(*map(origins, value))
        case _:
            return set()


def whole(text: str, *sources: Any) -> OriginStr:
    """The whole text as request text if any of its sources holds request text."""
    found = origins(sources)
    if not found or not text:
        return OriginStr(text)
    return OriginStr(text, ((0, len(text), min(found)),))  # `TOOLS` if it is one of them, else the first message


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = str(value)
    return text if isinstance(text, OriginStr) or not isinstance(value, Mapping | list | tuple) else whole(text, value)


def with_origin(value: Any, origin: int) -> Any:
    """The value with every string inside of it, keys too, marked as request text of this origin."""
    match value:
        case OriginStr() | Arguments():
            return value
        case str():
            return OriginStr(value, ((0, len(value), origin),) if value else ())
        case Mapping():
            return {with_origin(key, origin): with_origin(item, origin) for key, item in value.items()}
        case list() | tuple():
            return [with_origin(item, origin) for item in value]
        case _:
            return value


def pieces(text: str) -> tuple[Piece, ...]:
    """The text in pieces of one origin each, in order. Raises: `EngineError` where a file's name is in two."""
    spelled = plain(text)
    made: list[Piece] = []
    at = 0
    for start, stop, origin in text.spans if isinstance(text, OriginStr) else ():
        if at < start:
            made.append(Piece(spelled[at:start], None))
        is_media = isinstance(origin, MediaOrigin)
        if is_media and stop - start != NAME_LENGTH:
            raise EngineError("the model's chat template cuts the place of an image or a recording in two")
        made.append(Piece(spelled[start:stop], int(origin), is_media))
        at = stop
    if at < len(spelled):
        made.append(Piece(spelled[at:], None))
    return tuple(made)
