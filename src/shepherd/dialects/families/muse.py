"""Muse: a header says whom a message is for: the user, the model itself, or a tool. Spoken by Muse Glimmer.

    <|start|>assistant to=self<|message|>It is about the weather.<|eom|>
    <|start|>assistant to=look<|message|><atem:function_calls>
    <atem:invoke name="look">
    <atem:parameter name="at">Oslo</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eom|>
    <|start|>assistant to=user<|message|>It rains.<|eot|>

The prompt ends with `<|start|>assistant`. The tags make a call only in a message to a tool; what stands in one to the
user is an example. Models leave their thoughts without ending them: ` to=look<|message|>` follows at once. Source: the
template of Muse Glimmer 30B; the slips are those that users have reported of vLLM and others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.grammar.spelling import Part, Pattern, Spelling, members, value
from shepherd.dialects.parse.bodies.header import (
    MAX_BLANKS,
    Fields,
    Head,
    HeaderBody,
    Headers,
    TextBody,
    prefixes,
    read_named,
    unsaid,
)
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.call import Fault, Found, read_calls
from shepherd.dialects.parse.markup import Block, Markers, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.parse.values import find_tool

MESSAGE = "<|message|>"
ENDS = ("<|eom|>", "<|eot|>")
CALLS_END = "</atem:function_calls>"
NOBODY = ("user", "assistant")
"""Recipients that are no tools."""
TO_SELF = Thought(f" to=self{MESSAGE}", ENDS)
INVOKE = "<atem:invoke"
ECHO = re.compile(rf'({INVOKE} name="[\w.:/-]+)<\|message\|>(?:">)?')
"""Models echo the header in the tag, and swallow the tag behind it: `name="look.at">Oslo</atem:parameter>`."""
VISIBLE = re.compile(r"\S")
NAME = re.compile(r"[\w.:/-]{0,128}")
ROLE = re.compile(
    rf"""\s{{0,16}}+ (?: (?:assistant){{0,3}} (?:{prefixes("assistant")})? | {prefixes("user", "system", "tool")} )
    | \s{{0,16}}+ (?: (?:assistant){{0,3}} | user | system | tool ) \s{{0,16}}+
      (?:{prefixes("to=")} | to={NAME.pattern})?
    \s{{0,16}}+""",
    re.VERBOSE,
)


def about(fields: Fields, at: int, tools: Sequence[ToolSpec]) -> Head:
    """What a header with these words heads."""
    if fields.role:
        return Head(at, inside=partial(TextBody, read=unsaid))
    if fields.to and fields.to != "self":
        return Head(at, inside=partial(HeaderBody, read=partial(message, tool=fields.to)))
    return Head(at, then=TO_SELF if fields.to else None)


def message(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec], *, tool: str) -> Head | None:
    """A `ReadHead` of what a tool is sent: tags, or just the arguments, or nothing."""
    visible = VISIBLE.search(text, at, at + MAX_BLANKS)
    if visible is None and not final and len(text) - at < MAX_BLANKS:
        return None
    begin = visible.start() if visible else at
    if text.startswith(("{", "`"), begin):
        return Head(at, inside=partial(JsonBody, read=partial(read_json, tool, tools)))
    if HEADERS.markers.standing(text, begin):
        return Head(at, inside=partial(TextBody, read=lambda text, whole: (read_named(tool, tools, text, whole),)))
    is_open = HEADERS.markers.begun(text, begin) == len(text) - begin
    return None if is_open and not final else Head(at, inside=partial(TagsBody, tool=tool))


def read_json(tool: str, tools: Sequence[ToolSpec], text: str, whole: bool) -> tuple[Found | Fault, ...]:
    """The calls that JSON spells: whole ones, or the arguments of the tool."""
    calls = read_calls(text, tools=tools, whole=whole)
    return calls if all(call.name for call in calls) else (read_named(tool, tools, text, whole),)


class TagsBody:
    """The tags of a call, read once more with the slips of their heads mended if they cannot be read."""

    def __init__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, tool: str) -> None:
        self.ended = False
        self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._tool = tool
        self._tools = tools
        self._tags = TaggedBody(replace(block, closers=(CALLS_END,)), openers, tools)

    def feed(self, text: str, at: int, final: bool) -> int:
        at = self._tags.feed(text, at, final)
        self.ended, self.closed = self._tags.ended, self._tags.closed
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        return [(written, self._mended(written, calls)) for written, calls in self._tags.take_calls()]

    def _mended(self, written: str, calls: tuple[Found | Fault, ...]) -> tuple[Found | Fault, ...]:
        if not all(isinstance(call, Found) for call in calls):
            tags = TaggedBody(Block("<atem:function_calls>", (CALLS_END,), TaggedBody), (), self._tools)
            tags.feed(mended(written[max(written.find(INVOKE), 0) :], self._tools), 0, True)
            again = tuple(call for _, found in tags.take_calls() for call in found)
            calls = again if again and all(isinstance(call, Found) for call in again) else calls
        # Whom the header names is surer.
        is_known = find_tool(self._tools, self._tool) is not None
        return tuple(
            replace(call, name=self._tool)
            if isinstance(call, Fault) or (is_known and not find_tool(self._tools, call.name))
            else call
            for call in calls
        )


def mended(tags: str, tools: Sequence[ToolSpec]) -> str:
    """The tags with what models swallow at their head put back."""
    tags = ECHO.sub(r'\1">', tags)
    for tool in tools:
        names = "|".join(map(re.escape, tool.parameters.get("properties", {})))
        swallowed = rf'({INVOKE} name="{re.escape(tool.name)})\.({names})">(?!\s*<)'
        tags = re.sub(swallowed, r'\1">\n<atem:parameter name="\2">', tags)
    return tags


def to(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Head | None:
    """A `ReadHead` of a header whose beginning is forgotten."""
    name = NAME.match(text, at)
    end = name.end() if name else at
    if MARKERS.standing(text, end) and end > at:
        return about(Fields(to="" if text[at:end] in NOBODY else text[at:end]), end + len(MESSAGE), tools)
    is_open = MARKERS.begun(text, end) == len(text) - end
    return None if is_open and not final else Head(at, declined=opener)


def arguments(tool: ToolSpec) -> tuple[Part, ...]:
    def spell(name: str) -> tuple[Part, ...]:
        return (f'<atem:parameter name="{name}">', *value(tool, name, "</atem:parameter>\n"))

    return (f'<atem:invoke name="{tool.name}">\n', *members(tool, spell), "</atem:invoke>\n")


def spelled(tool: ToolSpec) -> tuple[Part, ...]:
    return ("\n", *arguments(tool))


def spelled_whole(tool: ToolSpec) -> tuple[Part, ...]:
    # In one piece: its blank is the beginning of a thought, too, and the lexer of the grammar never goes back.
    header = re.sub(r"[^\w\s<>=]", r"\\\g<0>", f" to={tool.name}{MESSAGE}")
    return (Pattern(header), "<atem:function_calls>\n", *arguments(tool))


MARKERS = Markers((MESSAGE,))
HEADERS = Headers(start="<|start|>", message=MESSAGE, ends=ENDS, role=ROLE, about=about, nobody=NOBODY)
HEADER = partial(HeaderBody, read=HEADERS.read)
MUSE = TagDialect(
    name="muse",
    markup=Markup(
        headed=(Thought(TO_SELF.opener, ("<|eom|><|start|>assistant",)),),
        blocks=(
            *(Block(opener, ENDS, HEADER, "anywhere", "anywhere") for opener in ("<|start|>", *ENDS)),
            Block("to=", ENDS, partial(HeaderBody, read=to), "anywhere", "anywhere"),
            Block("assistant to=", ENDS, partial(HeaderBody, read=to), "start", "never"),
            Block(MESSAGE, ENDS, HEADER, "line", "never", starts=r"(?!)"),
        ),
        spelled=(
            Block("", (CALLS_END,), HEADER, "never", "never", spelling=Spelling(spelled_whole)),
            Block("<atem:function_calls>", (CALLS_END,), HEADER, "anywhere", "anywhere", spelling=Spelling(spelled)),
        ),
        answer=(f" to=user{MESSAGE}", ""),
    ),
    marks=("<|start|>", "<|message|>", "to=self", "<atem:"),
    stops=tuple(f"<|start|>{role}" for role in ("user", "system", "tool")),
    thinks=True,
)

DIALECTS: tuple[TagDialect, ...] = (MUSE,)
