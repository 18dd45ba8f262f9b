"""The inside of a tool section in XTML: tags of control tokens, values as they are.

    <|open|>tools<|sep|>                                     between   the calls of a section
    <|open|>call tool="NAME" index="1"<|sep|>                call      between arguments
    <|open|>argument key="K" type="string"<|sep|>            value
    VALUE<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|>

Instead of arguments a call may hold one object: `<|open|>json type="object"<|sep|>{...}<|close|>json<|sep|>`; the model
sometimes leaves out that tag. A value ends at its closer, or at another tag of the call if the closer is missing; all
other tags belong to the value. `type` counts where the tool's schema says no more. A call that was cut off is a
`Fault` unless all its declared arguments are there.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.machine import HandingOver
from shepherd.dialects.parse.call import Calls, Fault, Found, read_arguments
from shepherd.dialects.parse.markup import Block, Markers, Opening
from shepherd.dialects.parse.values import (
    argument,
    find_tool,
    is_complete,
    json_object,
    json_text,
    json_value,
    kind_of,
    kinds,
)

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
ENDS = ("<|close|>message<|sep|>", "<|end_of_msg|>")
"""The message is over, and what is still open in it."""
MARKS = Markers((OPEN, CLOSE, ENDS[1]))
TAG = re.compile(r'\s*(\w+)((?:\s+[\w-]+\s*=\s*"[^"]*")*)\s*')
ATTRIBUTE = re.compile(r'([\w-]+)\s*=\s*"([^"]*)"')
TAG_BEGUN = re.compile(
    r'\s*(?:\w+(?:\s+[\w-]+\s*=\s*"[^"]*")*(?:\s+[\w-]*(?:\s*=\s*(?:"[^"]*)?)?)?)?\s*(?:<(?:\|(?:s(?:ep?\|?)?)?)?)?'
)
LONGEST = 512
"""So many characters of a tag are waited for."""
HOW = "write every argument in a tag of its own and close every tag"


class Tag(NamedTuple):
    name: str
    """Of a closing tag with `/` before it."""
    attributes: dict[str, str]
    stop: int
    """Where it ends."""


class XtmlBody(HandingOver):
    """Calls from `<|open|>tools` on, or from the first `<|open|>call` if that is missing."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._step = self._head
        self._state: Literal["tag", "between", "call", "value"] = "tag"
        self._name = ""  # of the open call
        self._key: tuple[str, str] = ("", "")  # name and type of the open argument; no name is the json tag
        self._text: list[str] = []  # of the open value, or of what stands in a call beside its arguments
        self._given: dict[str, str] = {}
        self._object: str | None = None
        self._reported = False  # a call has been reported

    def _head(self, text: str, at: int, final: bool) -> int:
        """The rest of the tag that the block's opener begins."""
        found = read_tag(self._block.opener, text, at)
        if isinstance(found, Tag):
            self._state, self._step = "between", self._inside
            if found.name == "call":
                self._begin(found)
            return found.stop
        if found and not final:
            return at
        self.ended = True
        if not found or text[at : at + 1].isalnum():
            self.declined = self._block.opener
            return at
        if self._block.opener.endswith("call"):
            self._end_cut(text[at:])
        return len(text)

    def _inside(self, text: str, at: int, final: bool) -> int:
        stop, mark = MARKS.find_settled(text, at, final=False)
        if self._state == "between" and text[at:stop].strip():
            return self._between(text, at, stop)
        self._text.append(text[at:stop])
        if not mark and final:
            self._end_cut(text[at:])
            return len(text)
        if not mark or stop > at:
            return stop
        if mark in ENDS:
            self._end()
            return at
        after = at + len(mark)
        found = read_tag(mark, text, after)
        if found is True:
            if final:
                self._end_cut(text[at:], closing=mark == CLOSE)
            return len(text) if final else at
        if isinstance(found, Tag) and self._take(found):
            return at if self.ended and not self.closed else found.stop
        self._text.append(mark)
        return after

    def _between(self, text: str, at: int, stop: int) -> int:
        """Something visible stands where a call should."""
        visible = stop - len(text[at:stop].lstrip())
        if text[visible] in "{[`" and not self._reported:
            opener = "".join(self._written) + text[at:visible]
            self._hand_over(JsonBody, Block(opener, ("<|close|>tools<|sep|>",), XtmlBody))
        else:
            self.ended = True
        return visible

    def _take(self, tag: Tag) -> bool:
        """Reads a tag; false if it is none here, but text."""
        if self._state == "value":
            closer = "/argument" if self._key[0] else "/json"
            if tag.name not in (closer, "argument", "call", "/call", "/tools", "/message"):
                return False
            self._end_value()
            if tag.name == closer:
                return True
        match tag.name:
            case "argument" | "json" if self._state == "call":
                self._text = []
                self._key = (tag.attributes.get("key", ""), tag.attributes.get("type", ""))
                self._state = "value"
            case "call":
                self._end_call(whole=True)
                self._begin(tag)
            case "/call":
                self._step = self._call_ended
            case "/tools":
                self._end()
                self.closed = True
            case "/message" | "response" | "think" | "message":
                self._end()
            case "argument" | "json" | "/argument" | "/json" | "tools":
                pass
            case _:
                return False
        return True

    def _call_ended(self, text: str, at: int, final: bool) -> int:
        self._end_call(whole=True)
        self._step = self._inside
        return at

    def _begin(self, tag: Tag) -> None:
        self._state = "call"
        self._name = tag.attributes.get("tool") or tag.attributes.get("name") or ""
        self._text, self._given, self._object = [], {}, None

    def _end_value(self) -> None:
        value = "".join(self._text)
        self._text = []
        self._state = "call"
        if self._key[0]:
            self._given[self._key[0]] = value_of(find_tool(self._tools, self._name), *self._key, value)
        else:
            self._object = value

    def _end(self) -> None:
        self._end_call(whole=True)
        self.ended = True

    def _end_cut(self, rest: str, *, closing: bool = False) -> None:
        """The output ends behind this rest, perhaps within a tag; `closing`: within a closing one."""
        self._written.append(rest)
        tool = find_tool(self._tools, self._name)
        whole = self._state == "call" and (closing or is_complete(tool, self._given))
        if self._state != "between":
            self._end_call(whole=whole)
        elif not self._reported:
            self._report((Fault(f"the output ended before the call; {HOW}"),))
        self.ended = True

    def _end_call(self, *, whole: bool) -> None:
        if self._state != "between":
            self._report(self._calls(whole))
            self._reported = True
        self._state = "between"
        self._text = []

    def _calls(self, whole: bool) -> Calls:
        loose = "".join(self._text).strip()
        spelled = self._object if self._object is not None else loose
        if not self._name and whole:
            return (Fault(f"the call names no tool; {HOW}"),)
        if not whole and not (spelled and self._state == "call"):
            return (Fault(f"the output ended inside of the call; {HOW}", self._name),)
        if not spelled:
            return (Found(self._name, json_object(self._given.items())),)
        return read_arguments(self._name, spelled, whole=whole)


def read_tag(mark: str, text: str, at: int) -> Tag | bool:
    """The tag that `mark` opens, or has begun; otherwise whether more text could make one of it."""
    opens = mark.startswith(OPEN)
    head = mark.removeprefix(OPEN if opens else CLOSE)
    end = text.find(SEP, at, at + LONGEST)
    if end < 0:
        return len(text) - at < LONGEST and TAG_BEGUN.fullmatch(head + text[at:]) is not None
    found = TAG.fullmatch(head + text[at:end])
    if found is None:
        return False
    values = {name: value.replace("&quot;", '"').replace("&amp;", "&") for name, value in ATTRIBUTE.findall(found[2])}
    return Tag(found[1] if opens else "/" + found[1], values, end + len(SEP))


def value_of(tool: ToolSpec | None, name: str, kind: str, text: str) -> str:
    allowed = kinds(tool, name)
    if kind == "string" and (not allowed or "string" in allowed):
        return json_text(text)
    value = json_value(text.strip()) if kind and kind != "string" else ""
    return value if value and (not allowed or kind_of(value) in allowed) else argument(tool, name, text)
