"""A raw value as it streams in, and the tags that may end it.

    </parameter>  ends it if markup of its call follows          </parameter></function>
                  ... unless the value has opened one, too        <parameter>x</parameter></parameter>
    </function>   ends it for want of its own closer              1</function></tool_call>
                  ... unless the value's closer follows           </function></parameter>
    <parameter=K> ends it for want of its own closer, if K is a parameter of the tool

Inside of a whole call that the value quotes, nothing ends it. Not here: the other parts of a call (`tagged`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from shepherd.core.dataclasses import dataclass, field
from shepherd.dialects.parse.bodies.tag import TAG_END, Kind, Tag, read_tag
from shepherd.dialects.parse.markup import Markers, markers_of
from shepherd.dialects.parse.values import json_value

LONGEST_HEAD = 200
"""So many characters of a tag are held back to read its name."""
MOST_JSON_CHECKS = 20
ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos);")
ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'"}
CDATA, CDATA_END = "<![CDATA[", "]]>"

Following = Literal["unknown", "end", "text"] | tuple[Kind, bool]
"""What follows a closer; a tuple is a tag of this kind, closing or not."""


@dataclass(frozen=True, slots=True)
class PossibleEnd:
    kind: Kind | Literal["cdata"]
    exact: bool = True
    on_margin: bool = False
    """It stands at the very start of a line, as templates write it."""


@dataclass(slots=True)
class Value:
    """A value, and the state that finds its end."""

    tag: Tag | None
    """The tag that opened it; `None` for text of a call outside of its parameters."""
    labels: dict[str, Kind]
    """The tags that may end it."""
    known: Sequence[str] = ()
    """The declared parameters."""
    marks: Markers = field(default_factory=markers_of)
    """The beginnings of all tags that matter."""
    own_marks: Markers = field(default_factory=markers_of)
    """The same without a wrong closer that has the parameter's name."""
    text: list[str] = field(default_factory=list)
    nested: list[Kind] = field(default_factory=list)
    """The calls and blocks that the value itself has opened."""
    inner: int = 0
    """The parameters that the value itself has opened."""
    line_start: bool = True
    last: str = ""
    n_json_checks: int = 0
    is_sealed: bool = False
    """It is exactly what stands in its CDATA section."""

    @classmethod
    def opened(cls, tag: Tag | None, head: Tag, wrappers: Sequence[str], known: Sequence[str]) -> Value:
        labels: dict[str, Kind] = dict.fromkeys(wrappers, "wrapper")
        for prefix in (head.prefix, tag.prefix if tag else head.prefix):
            labels[prefix + head.word] = "call"
            for word in (tag.word,) if tag else ("parameter", "param"):
                labels[prefix + word] = "parameter"
        own = tags(labels)
        named = (f"</{tag.name}>",) if tag and tag.name else ()
        return cls(tag, labels, known, markers_of(*own, *named), markers_of(*own))

    @property
    def so_far(self) -> str:
        return "".join(self.text)

    def add(self, text: str) -> None:
        self.text.append(text)
        self.last = text[-1:] or self.last
        self.line_start = not text[text.rfind("\n") + 1 :].strip() and (self.line_start or "\n" in text)

    def kind(self, tag: Tag | None) -> Kind | None:
        return self.labels.get(tag.label) if tag else None

    def closer(self, tag: Tag | None, written: str) -> PossibleEnd | None:
        """The possible end that this tag is; `None` if it is none."""
        kind = self.kind(tag)
        if "call" in self.nested:
            return None
        if tag is None or kind is None:
            return PossibleEnd("parameter", exact=False) if self.tag and written == f"</{self.tag.name}>" else None
        if not tag.closing or kind in self.nested:
            return None
        return PossibleEnd(kind, written == f"</{tag.label}>", self.last == "\n")

    def is_ended_by(self, tag: Tag, written: str) -> bool:
        """Whether this is the next parameter, and the value's own closer is missing."""
        if tag.closing or self.kind(tag) != "parameter" or not tag.name:
            return False
        if "call" in self.nested or not written.endswith(">"):
            return False
        return tag.name in self.known if self.known else self.line_start

    def take_in(self, tag: Tag | None, written: str, behind: str) -> None:
        """Takes in a tag that belongs to the value; `behind` is the character behind it."""
        kind = self.kind(tag)
        if tag and kind and tag.closing and kind in self.nested:
            while self.nested.pop() != kind:
                pass
        elif tag and not tag.closing and kind == "parameter":
            self.inner += 1
        elif tag and kind and not (tag.closing or tag.empty) and self.line_start and behind in "\n<{[":
            self.nested.append(kind)
        self.add(written)

    def following(self, text: str, at: int, final: bool) -> Following:
        marks = self.own_marks
        mark = marks.standing(text, at)
        behind = text[at + len(mark) : at + len(mark) + 1]
        if marks.is_open(text, at) or (mark and not behind):
            return "end" if final else "unknown"
        if not mark:
            return "text"
        kind, closing = self.labels[mark.lstrip("</")], mark.startswith("</")
        if not closing and behind not in (">" if kind == "wrapper" else "= \t"):
            return "text"
        if not (self.inner and self.known) or closing or kind != "parameter":
            return kind, closing
        end = TAG_END.search(text, at + 1)
        if end is None and not final and len(text) - at < LONGEST_HEAD:
            return "unknown"
        tag = read_tag(text[at : end.end() if end else len(text)])
        return (kind, closing) if tag and tag.name in self.known else "text"

    def ends(self, closer: PossibleEnd, following: Following) -> bool:
        match closer.kind, following:
            case _, "end":
                return True
            case "parameter" | "cdata", "text":
                return False
            case "call", "text" if self.tag is None and self.is_json():
                return True
            case _, "text":
                return closer.on_margin
            case "cdata", (_, closing):
                return closing
            case "parameter", ("parameter", True):
                return closer.exact and not self.inner
            case "call" | "wrapper", ("parameter", _):
                return False
            case "wrapper", ("call", True):
                return False
        return True

    def is_json(self) -> bool:
        """Whether it is complete JSON; after a few checks always false, for a check may be expensive."""
        self.n_json_checks += 1
        return self.n_json_checks <= MOST_JSON_CHECKS and bool(json_value(self.so_far.strip()))

    def tail(self) -> re.Match[str] | None:
        """The closers at its end that it took in."""
        parameter, call, wrapper = (
            "|".join(re.escape(label) for label, kind in self.labels.items() if kind == wanted) or "(?!)"
            for wanted in ("parameter", "call", "wrapper")
        )
        closers = rf"</(?:{parameter})[^<>\n]*>?\s*(?P<call></(?:{call})[^<>\n]*>?\s*)?(?:</(?:{wrapper})>\s*)?\Z"
        text = self.so_far
        return re.compile(closers).search(text, max(0, len(text) - 400))

    def is_whole(self) -> bool:
        """Whether it is complete although the output ends in it, and the call, too."""
        tail, text = self.tail(), self.so_far.strip()
        is_json = self.tag is None and text.startswith("{") and bool(json_value(text))
        return is_json or (tail is not None and tail["call"] is not None)

    def spelt(self, unclosed: bool, *, padded: bool, cdata: bool) -> str:
        """Its text; `unclosed` if its closer was missing or was taken in."""
        text = self.so_far
        if unclosed and (tail := self.tail()):
            text = text[: tail.start()]
        if self.is_sealed:
            return text.replace("]]]]><![CDATA[>", CDATA_END)
        if cdata:
            text = ENTITY.sub(lambda entity: ENTITIES[entity[0]], text)
        if padded:
            text = text.removeprefix("\n")
        return text.removesuffix("\n") if padded or unclosed else text


def tags(labels: Iterable[str]) -> tuple[str, ...]:
    """The beginnings of the tags of these labels."""
    return tuple(f"<{slash}{label}" for label in labels for slash in ("", "/"))
