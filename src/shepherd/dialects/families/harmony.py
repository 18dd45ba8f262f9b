"""Harmony: every message has a header with its kind. Spoken by gpt-oss.

    <|start|>assistant<|channel|>analysis<|message|>It is about the weather.<|end|>
    <|start|>assistant<|channel|>commentary<|message|>I will look.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"at": "Oslo"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It rains.<|return|>

The prompt ends with `<|start|>assistant`. The recipient stands before or behind the channel, or in its place; a message
with a recipient is a call, on any channel. A message on the commentary channel without a recipient is for the user. The
model's own tools (`python`, `browser.search`, `container.exec`) have no `functions.` before their names and may be sent
other text than JSON; the model sometimes leaves out `functions.` before other tools, too. Output without a header is
text. Source: the template of gpt-oss-120b and the Harmony cookbook; the slips come from users' reports of llama.cpp,
vLLM and openai-harmony.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import (
    LONGEST,
    Header,
    HeaderBody,
    HeaderFields,
    HeaderFormat,
    prefixes,
    read_named,
    read_program,
)
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.text_body import TextBody, dropped
from shepherd.dialects.parse.call import Calls, Fault, Found
from shepherd.dialects.parse.markup import Block, MakeBody, Thought
from shepherd.dialects.parse.spelling import ARGUMENTS, Spelling, json_call
from shepherd.dialects.parse.values import find_tool

ENDS = ("<|end|>", "<|call|>", "<|return|>")
ANALYSIS = Thought("<|channel|>analysis<|message|>", ENDS)
CHANNELS = ("analysis", "commentary", "final")
CHANNEL = "|".join(CHANNELS)
STUCK = ("json", "code", "text", *CHANNELS)
"""Words that models write behind a tool's name without a blank."""
HEADLESS = {
    "assistant<|channel|>": ("<|start|>", "assistant<|channel|>"),
    **{f"assistant{channel}": ("<|channel|>", channel) for channel in CHANNELS},
    **{f"{channel}<|message|>": ("<|channel|>", f"{channel}<|message|>") for channel in CHANNELS},
}
"""Headers without some of their markers, and the marker and the words that should stand there. Without all markers an
output is `analysisWe need...assistantfinalIt rains.`"""
JSON_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[^\S \t\n\r]|[\u200b\u2060\ufeff]', re.DOTALL)
"""Strings as they are, and outside of them blanks that JSON does not know; gpt-oss writes narrow ones."""
RECIPIENT = re.compile(r"[\w.:-]{1,90}(?: (?:json|code))? ?")
RECIPIENT_BEGUN = re.compile(rf"[\w.:-]{{0,90}}(?: (?:{prefixes('json', 'code')})?)? ?")
ROLE = re.compile(
    rf"""\s{{0,16}}+ (?:{prefixes("assistant")})?
    | \s{{0,16}}+ (?:assistant){{1,3}} (?:{prefixes("assistant")})?
    | \s{{0,16}}+ (?:assistant){{0,3}} \s{{0,16}}+ (?:{prefixes("to=", *CHANNELS)})?
    | \s{{0,16}}+ (?: (?:assistant){{0,3}} | user | system | developer | tool | functions\.[\w.-]{{0,64}} ) \s{{0,16}}+
      (?:{CHANNEL})? \s{{0,16}}+
      (?:{prefixes("to=", "json", "code")} | to=[^\s{{}}]{{0,90}} (?:\s+[\w.-]{{0,16}}){{0,2}})?
    | \s{{0,16}}+ (?:{prefixes("user", "system", "developer", "tool", "functions.")})
    """,
    re.VERBOSE,
)


def about(fields: HeaderFields, at: int, tools: Sequence[ToolSpec]) -> Header:
    if fields.role:
        return Header(at, inside=partial(TextBody, read=dropped))
    to = fields.to or next((word for word in fields.others if find_tool(tools, word)), "")
    if to:
        return Header(at, inside=call_of(to, tools))
    return Header(at, then=ANALYSIS if fields.channel == "analysis" else None)


def call_of(to: str, tools: Sequence[ToolSpec]) -> MakeBody:
    name = tool_name(to, tools)
    if not name:
        return JsonBody
    own = not to.startswith("function")
    body = TextBody if name == "python" and own else JsonBody
    return partial(body, read=partial(read_call, name, own))


def tool_name(to: str, tools: Sequence[ToolSpec]) -> str:
    bare = re.sub(r"^(?:functions?(?:[.:/]|$))+|[.,:;?]+$", "", to)
    stuck = (bare.removesuffix(word) for word in STUCK)
    return next((name for name in (to, bare, *stuck) if find_tool(tools, name)), bare)


def read_call(name: str, own: bool, text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """The call that the text of a message spells; `own` if the tool may be one that the model was trained on."""
    (call,) = read_named(name, text, tools, whole)
    if isinstance(call, Fault) and (plain := JSON_OR_SPACE.sub(lambda found: found[1] or " ", text)) != text:
        (call,) = read_named(name, plain, tools, whole)
    if isinstance(call, Found) or not own:
        return (call,)
    program = read_program(find_tool(tools, name), text) if whole else None
    return (program or replace(call, idle=not tools),)


def headless(
    opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec], *, mark: str, words: str
) -> Header | None:
    """A `ReadHeader` of a header that lacks what stands before `words`: read as if `mark` did."""
    rest = text[at : at + LONGEST]
    head = HEADERS.read(mark, words + rest, 0, final or len(rest) == LONGEST, tools)
    if head and head.declined:
        return about(HeaderFields(channel=words if words in CHANNELS else ""), at, tools)
    return head._replace(stop=head.stop + at - len(words)) if head else None


def inline(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of a header that lacks its beginning up to the recipient."""
    name = RECIPIENT.match(text, at)
    end = name.end() if name else at
    if name and HEADERS.markers.standing(text, end) in (HEADERS.message, *HEADERS.marks):
        return headless(opener, text, at, final, tools, mark=HEADERS.start, words=opener)
    begun = HEADERS.markers.begun(text, end)
    is_open = RECIPIENT_BEGUN.fullmatch(text, at, len(text) - begun) is not None
    return None if is_open and not final else Header(at, declined=opener)


def recipient(opener: str, channel: str) -> Block:
    spelling = Spelling(json_call(f"{{}}{channel} <|constrain|>json<|message|>", ARGUMENTS))
    return Block(opener, ENDS[1:], HEADER, "anywhere", "anywhere", spelling=spelling)


HEADERS = HeaderFormat(
    start="<|start|>",
    message="<|message|>",
    ends=ENDS,
    role=ROLE,
    about=about,
    marks=("<|channel|>", "<|constrain|>"),
    channel=re.compile(rf"(?:[^\w<]*({CHANNEL}))+"),
    no_tools=("assistant", "user", "self", "all"),
)
HEADER = partial(HeaderBody, read=HEADERS.read)
HARMONY = family(
    "harmony",
    ("<|start|>", "<|channel|>", "<|message|>"),
    *(Block(opener, ENDS, HEADER, "anywhere", "anywhere", mute=True) for opener in ("<|start|>", "<|channel|>", *ENDS)),
    Block("<|message|>", ENDS, HEADER, "line", "never", starts=r"(?!)"),
    Block("to=", ENDS, partial(HeaderBody, read=inline), "anywhere", "anywhere"),
    *(
        Block(opener, ENDS, partial(HeaderBody, read=partial(headless, mark=mark, words=words)), "start", "anywhere")
        for opener, (mark, words) in HEADLESS.items()
    ),
    stops=tuple(f"<|start|>{role}" for role in ("user", "system", "developer", "tool", "functions.")),
    thinks=True,
    headed=(Thought("<|channel|>analysis<|message|>", ("<|end|><|start|>assistant",)),),
    spelled=(
        recipient("<|channel|>commentary to=functions.", ""),
        recipient("<|start|>assistant to=functions.", "<|channel|>commentary"),
    ),
    answer=("<|channel|>final<|message|>", ""),
    declared=(),
)
