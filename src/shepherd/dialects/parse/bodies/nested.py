"""The inside of a call block whose tags all have a token before them, and whose values are tags all the way down.

    ¤<tool_call>
    ¤<invoke name="NAME">¤<K>TEXT¤</K>¤<K>¤<item>TEXT¤</item>¤</K>¤</invoke>
    ¤</tool_call>

The token never stands in a value, so nothing is guessed: a tag counts only behind the token, and an element ends with
its closer, or with that of an element around it. Not here: the meaning of a text (`values`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.machine import Machine, Step, kept_blanks
from shepherd.dialects.parse.call import Calls, Fault, Found, read_calls
from shepherd.dialects.parse.markup import Opening, markers_of
from shepherd.dialects.parse.spelling import Maybe, Part, Until, choices, members, resolved, whole_json
from shepherd.dialects.parse.values import (
    find_items,
    find_member,
    find_tool,
    is_complete,
    json_object,
    kinds_of,
    value_of,
)

HOW = "write every argument as an element of its own and close every element"
CUT = f"the output ended inside of the call; {HOW}"
TAG = re.compile(r"""<(/?)([^\s<>/][^<>]*?)(?:\s+name\s*=\s*["']?([^"'<>]*)["']?)?\s*(/?)>?""")
TAG_END = re.compile(r"[>\n\]]")
PLAIN = ("<invoke ", "</invoke>", "</tool_call>")
"""The tags between calls; there the token is sometimes missing."""
DEEPEST = 64
"""So many elements may stand in each other; further ones are text."""
DEEPEST_SPELT = 2
MOST_ITEMS = 16
"""So deep do objects stand in each other, and so many items in an array, where a call is spelt as tags."""


@dataclass(slots=True)
class Element:
    """An element of a call, or the call itself."""

    tag: str
    name: str
    schema: Any = None
    children: list[Element] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    """The text behind its last child."""
    before: str = ""
    """The text before and between its children."""

    def add(self, child: Element) -> None:
        self.before += "".join(self.tail)
        self.tail = []
        self.children.append(child)


class NestedBody(Machine):
    """Calls as elements; the block's opener is the token that stands before every tag."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._step = self._tag
        self._tokens = markers_of(self._block.opener)
        self._between_calls = markers_of(self._block.opener, *PLAIN)
        self._pieces: list[str] = []  # of the tag that comes in
        self._path: list[Element] = []  # the open call and its open elements
        self._call: Element | None = None  # the last one, open or closed
        self._tool: ToolSpec | None = None
        self._whole = False  # the call has been closed
        self._begun = False  # a call is due
        self._cut = False  # the output has ended
        self._found: Calls = ()  # in JSON

    def _settle(self, *, cut: bool) -> None:
        if self._call or self._begun:
            self._cut = cut
            self._end_call(len(self.declined))

    def _between(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        mark = self._between_calls.standing(text, after)
        if mark:
            self._expect(self._tag)
            return after + (len(mark) if mark == self._block.opener else 0)
        if self._between_calls.is_open(text, after):
            self.ended = final
            return len(text) if final else kept_blanks(at, after)
        if text[after] == "{" and self._begun:
            self._expect(self._in_json)
            return after
        self.ended = True
        return kept_blanks(at, after)

    def _in_json(self, text: str, at: int, final: bool) -> int:
        stop, token = self._tokens.find_settled(text, at, final)
        self._pieces.append(text[at:stop])
        if token or final:
            self._found = read_calls("".join(self._pieces), tools=self._tools)
            self._expect(self._tag)
            self.ended = final and not token
        return stop + len(token)

    def _expect(self, step: Step) -> None:
        self._step, self._pieces = step, []

    def _text(self, text: str, at: int, final: bool) -> int:
        stop, token = self._tokens.find_settled(text, at, final=False)  # the beginning of the token is never text
        self._note(text[at:stop])
        self._path[-1].tail.append(text[at:stop])
        if token:
            self._expect(self._tag)
        elif final:
            self._whole = self._is_complete()
            self.ended = True
            return len(text)
        return stop + len(token)

    def _tag(self, text: str, at: int, final: bool) -> int:
        if not self._pieces and text[at : at + 1] != "<":
            if at < len(text):
                self._step = self._text
            self.ended = final if at == len(text) else not self._path
            self._whole = self._whole or self._is_complete()
            return at
        end = TAG_END.search(text, at)
        stop = len(text) if end is None else end.end() if end[0] == ">" else end.start()
        self._pieces.append(text[at:stop])
        if end or final:
            self._step = self._tagged
        return stop

    def _tagged(self, text: str, at: int, final: bool) -> int:
        written = "".join(self._pieces)
        tag = TAG.fullmatch(written)
        self._step = self._text if self._path else self._between
        if final and at == len(text) and not written.endswith(">"):
            closing = written.startswith("</") and self._call and self._call.children and len(self._path) < 2
            self._whole = self._whole or bool(closing) or self._is_complete()
            self._begun = self._begun or not (self._call or written.startswith("</"))
            self.declined = "" if self._call or self._begun or "</tool_call>".startswith(written) else written
            self.ended = True
        elif tag and tag[1]:
            self._close_element(tag[2], written)
        elif tag and tag[2] == "tool_call":
            self._begun = self._begun or not self._call
        elif tag and tag[2] == "invoke":
            self._begin(tag[3] or "", written)
        elif tag and (self._path or self._begun) and len(self._path) < DEEPEST:
            self._open(tag[2], tag[3] or tag[2], written)
            if tag[4]:
                self._path.pop()
        elif self._path:
            self._note(self._block.opener + written)
            self._path[-1].tail.append(written)
        else:
            self.declined = written
            self.ended = True
        return at

    def _note(self, written: str) -> None:
        for element in self._path:
            element.text.append(written)

    def _begin(self, name: str, written: str) -> None:
        if self._call:
            self._whole = self._whole or bool(self._call.children)
            self._end_call(len(self._block.opener + written))
        self._tool = find_tool(self._tools, name)
        self._call = Element("invoke", name, self._tool.parameters if self._tool else None)
        self._path, self._whole, self._step = [self._call], False, self._text

    def _open(self, tag: str, name: str, written: str) -> None:
        if not self._path:
            self._call = self._call or Element("invoke", "")
            self._path, self._whole = [self._call], False
        kinds = kinds_of(self._path[-1].schema, self._root())
        if len(self._path) > 1 and kinds and not kinds & {"object", "array"}:
            self._path.pop()  # its closer is missing
        self._note(self._block.opener + written)
        element = Element(tag, name, self._schema_of(tag, name))
        self._path[-1].add(element)
        self._path.append(element)
        self._step = self._text

    def _root(self) -> Mapping[str, Any]:
        return self._tool.parameters if self._tool else {}

    def _schema_of(self, tag: str, name: str) -> Any:
        around = self._path[-1].schema
        items = find_items(around, self._root()) if tag == "item" else None
        return items if items is not None else find_member(around, name, self._root())

    def _close_element(self, tag: str, written: str) -> None:
        if tag == "tool_call":
            self._whole = self._whole or self._call is not None
            self.ended = self.closed = True
        elif not (self._call or self._begun):
            self.declined, self.ended = written, True
        elif tag == "invoke":
            self._path, self._whole, self._step = [], self._call is not None, self._between
        elif any(element.tag == tag for element in self._path[1:]):
            while self._path.pop().tag != tag:
                pass
            self._note(self._block.opener + written)
        elif self._path and (tail := "".join(self._path[-1].tail)).strip():
            # M3 leaves out the opener of the first argument.
            element = Element(tag, tag, self._schema_of(tag, tag), text=[tail], tail=[tail])
            self._path[-1].tail = []
            self._path[-1].add(element)

    def _is_complete(self) -> bool:
        children = self._call.children if self._call and len(self._path) == 1 else ()
        return is_complete(self._tool, (child.name for child in children))

    def _end_call(self, keep: int = 0) -> None:
        self._report(self._found or (self._read(),), keep)
        self._call, self._begun, self._found = None, False, ()

    def _read(self) -> Found | Fault:
        call = self._call
        if call is None:
            return Fault(CUT if self._cut else f"the block holds no call; {HOW}")
        if not call.name:
            return Fault(f"the call names no tool; {HOW}")
        if not self._whole:
            return Fault(CUT, call.name)
        if (call.before + "".join(call.tail)).strip():
            return Fault(f"something in the call of {call.name!r} is no argument; {HOW}", call.name)
        return Found(call.name, read_members(call, self._root()))


def read_members(element: Element, root: Mapping[str, Any]) -> str:
    """The JSON object of an element's children; several of one name are a list, if that may be."""
    made: list[tuple[str, str]] = []
    for name in dict.fromkeys(child.name for child in element.children):
        same = [child for child in element.children if child.name == name]
        kinds = kinds_of(same[0].schema, root)
        if len(same) > 1 and (not kinds or "array" in kinds):
            items = find_items(same[0].schema, root)
            made.append((name, read_items([replace(child, schema=items) for child in same], root)))
        else:
            made.append((name, read_element(same[-1], root)))
    return json_object(made)


def read_items(elements: Sequence[Element], root: Mapping[str, Any]) -> str:
    return "[" + ", ".join(read_element(element, root) for element in elements) + "]"


def read_element(element: Element, root: Mapping[str, Any]) -> str:
    """The JSON of an element's value. A value that may be a string is one, even with tags in it."""
    kinds = kinds_of(element.schema, root)
    children, text = element.children, "".join(element.text)
    if "string" in kinds or (element.before + "".join(element.tail)).strip():
        return value_of(text, kinds)
    if not children:
        return "[]" if "array" in kinds else "{}" if "object" in kinds else value_of(text, kinds)
    if "object" not in kinds and ("array" in kinds or all(child.tag == "item" for child in children)):
        return read_items(children, root)
    if "array" in kinds and all(child.tag == "item" for child in children):
        return read_items(children, root)
    return read_members(element, root)


def spelled(token: str) -> Callable[[ToolSpec], tuple[Part, ...]]:
    """How the call of a tool is written whose tags have this token before them."""

    def call(tool: ToolSpec) -> tuple[Part, ...]:
        inside = spelled_members(token, tool, tool.parameters, 0)
        return (f'{token}<invoke name="{tool.name}">', *inside, f"{token}</invoke>\n")

    return call


def spelled_members(token: str, tool: ToolSpec, schema: Mapping[str, Any], depth: int) -> tuple[Part, ...]:
    return members(schema, lambda name: spelled_element(token, name, tool, schema["properties"][name], depth))


def spelled_element(token: str, name: str, tool: ToolSpec, schema: Any, depth: int) -> tuple[Part, ...]:
    """One element with its tags. What is too deep for tags is JSON."""
    schema = resolved(tool, schema)
    kinds, opener, closer = kinds_of(schema, tool.parameters), f"{token}<{name}>", f"{token}</{name}>"
    if chosen := choices(schema):
        return (opener, chosen, closer)
    if not kinds or "string" in kinds:
        return (opener, Until(closer))
    if kinds == {"object"} and schema.get("properties") and depth < DEEPEST_SPELT:
        return (opener, *spelled_members(token, tool, schema, depth + 1), closer)
    if kinds == {"array"} and schema.get("items") and depth < DEEPEST_SPELT:
        item = spelled_element(token, "item", tool, schema["items"], depth + 1)
        parts: tuple[Part, ...] = ()
        least = min(schema.get("minItems", 0), MOST_ITEMS)
        for number in range(min(schema.get("maxItems", MOST_ITEMS), MOST_ITEMS), 0, -1):
            parts = (*item, *parts) if number <= least else (Maybe((*item, *parts)),)
        return (opener, *parts, closer)
    return (opener, whole_json(tool, schema), closer)
