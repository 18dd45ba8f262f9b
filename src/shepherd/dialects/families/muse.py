"""Muse: a header names the recipient of a message: the user, the model itself, or a tool. Spoken by Muse Glimmer.

    <|start|>assistant to=self<|message|>It is about the weather.<|eom|>
    <|start|>assistant to=look<|message|><atem:function_calls>
    <atem:invoke name="look">
    <atem:parameter name="at">Oslo</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eom|>
    <|start|>assistant to=user<|message|>It rains.<|eot|>

The prompt ends with `<|start|>assistant`. The tags make a call only in a message to a tool; in a message to the user
they are an example. Models leave thoughts open: ` to=look<|message|>` follows at once. Source: the template of Muse
Glimmer 30B; the slips come from users' reports of vLLM and others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, HeaderFields, HeaderFormat, prefixes, read_named
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.bodies.text_body import TextBody, dropped
from shepherd.dialects.parse.call import Calls, Fault, is_found, read_calls
from shepherd.dialects.parse.markup import MAX_BLANKS, Block, Body, Markers, Opening, Thought
from shepherd.dialects.parse.spelling import Part, Pattern, Spelling, tagged_call
from shepherd.dialects.parse.values import find_tool

MESSAGE = "<|message|>"
ENDS = ("<|eom|>", "<|eot|>")
CALLS_END = "</atem:function_calls>"
NO_TOOLS = ("user", "assistant")
TO_SELF = Thought(f" to=self{MESSAGE}", ENDS)
INVOKE = "<atem:invoke"
ECHO = re.compile(rf'({INVOKE} name="[\w.:/-]+)<\|message\|>(?:">)?')
"""Models repeat the header in the tag and leave out the tag behind it: `name="look.at">Oslo</atem:parameter>`."""
VISIBLE = re.compile(r"\S")
NAME = re.compile(r"[\w.:/-]{0,128}")
ROLE = re.compile(
    rf"""\s{{0,16}}+ (?: (?:assistant){{0,3}} (?:{prefixes("assistant")})? | {prefixes("user", "system", "tool")} )
    | \s{{0,16}}+ (?: (?:assistant){{0,3}} | user | system | tool ) \s{{0,16}}+
      (?:{prefixes("to=")} | to={NAME.pattern})?
    \s{{0,16}}+""",
    re.VERBOSE,
)


def about(fields: HeaderFields, at: int, tools: Sequence[ToolSpec]) -> Header:
    if fields.role:
        return Header(at, inside=partial(TextBody, read=dropped))
    if fields.to and fields.to != "self":
        return Header(at, inside=partial(HeaderBody, read=partial(message, tool=fields.to)))
    return Header(at, then=TO_SELF if fields.to else None)


def message(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec], *, tool: str) -> Header | None:
    """A `ReadHeader` of a message to a tool: tags, or only the arguments, or nothing."""
    visible = VISIBLE.search(text, at, at + MAX_BLANKS)
    if visible is None and not final and len(text) - at < MAX_BLANKS:
        return None
    begin = visible.start() if visible else at
    if text.startswith(("{", "`"), begin):
        return Header(at, inside=partial(JsonBody, read=partial(read_json, tool)))
    if HEADERS.markers.standing(text, begin):
        return Header(at, inside=partial(TextBody, read=partial(read_named, tool)))
    return None if HEADERS.markers.is_open(text, begin) and not final else Header(at, inside=partial(tags, tool=tool))


def read_json(tool: str, text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """The calls that JSON spells: whole ones, or the arguments of the tool."""
    calls = read_calls(text, tools=tools, whole=whole)
    return calls if all(call.name for call in calls) else read_named(tool, text, tools, whole)


def tags(opening: Opening, *, tool: str) -> Body:
    block = replace(opening.block, closers=(CALLS_END,))
    return TaggedBody(opening._replace(block=block), repair=partial(repaired, tool, opening.tools))


def repaired(tool: str, tools: Sequence[ToolSpec], written: str, calls: Calls) -> Calls:
    """The calls in a message to this tool; tags that cannot be read are read again with the slips of their heads
    mended."""
    if not is_found(calls):
        body = TaggedBody(Opening(Block("<atem:function_calls>", (CALLS_END,), TaggedBody), (), tools))
        body.feed(mended(written[max(written.find(INVOKE), 0) :], tools), 0, True)
        again = tuple(call for _, found in body.take_calls() for call in found)
        calls = again if again and is_found(again) else calls
    # The name in the header is surer than the one in the tag.
    is_known = find_tool(tools, tool) is not None
    return tuple(
        replace(call, name=tool) if isinstance(call, Fault) or (is_known and not find_tool(tools, call.name)) else call
        for call in calls
    )


def mended(tags: str, tools: Sequence[ToolSpec]) -> str:
    tags = ECHO.sub(r'\1">', tags)
    for tool in tools:
        names = "|".join(map(re.escape, tool.parameters.get("properties", {})))
        swallowed = rf'({INVOKE} name="{re.escape(tool.name)})\.({names})">(?!\s*<)'
        tags = re.sub(swallowed, r'\1">\n<atem:parameter name="\2">', tags)
    return tags


def to(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of a header that lacks its beginning."""
    name = NAME.match(text, at)
    end = name.end() if name else at
    if MARKERS.standing(text, end) and end > at:
        return about(HeaderFields(to="" if text[at:end] in NO_TOOLS else text[at:end]), end + len(MESSAGE), tools)
    return None if MARKERS.is_open(text, end) and not final else Header(at, declined=opener)


CALL = tagged_call('<atem:invoke name="{}">\n', '<atem:parameter name="{}">', "</atem:parameter>\n", "</atem:invoke>\n")


def spelled_whole(tool: ToolSpec) -> tuple[Part, ...]:
    # In one piece: its blank is the beginning of a thought, too, and the lexer of the grammar never goes back.
    header = re.sub(r"[^\w\s<>=]", r"\\\g<0>", f" to={tool.name}{MESSAGE}")
    return (Pattern(header), "<atem:function_calls>\n", *CALL(tool))


MARKERS = Markers((MESSAGE,))
HEADERS = HeaderFormat(start="<|start|>", message=MESSAGE, ends=ENDS, role=ROLE, about=about, no_tools=NO_TOOLS)
HEADER = partial(HeaderBody, read=HEADERS.read)
MUSE = family(
    "muse",
    ("<|start|>", "<|message|>", "to=self", "<atem:"),
    *(Block(opener, ENDS, HEADER, "anywhere", "anywhere") for opener in ("<|start|>", *ENDS)),
    Block("to=", ENDS, partial(HeaderBody, read=to), "anywhere", "anywhere"),
    Block("assistant to=", ENDS, partial(HeaderBody, read=to), "start", "never"),
    Block(MESSAGE, ENDS, HEADER, "line", "never", starts=r"(?!)"),
    stops=tuple(f"<|start|>{role}" for role in ("user", "system", "tool")),
    thinks=True,
    headed=(Thought(TO_SELF.opener, ("<|eom|><|start|>assistant",)),),
    spelled=(
        Block("", (CALLS_END,), HEADER, "never", "never", spelling=Spelling(spelled_whole)),
        Block("<atem:function_calls>", (CALLS_END,), HEADER, "anywhere", "anywhere", spelling=Spelling(CALL, "\n")),
    ),
    answer=(f" to=user{MESSAGE}", ""),
    declared=(),
)
