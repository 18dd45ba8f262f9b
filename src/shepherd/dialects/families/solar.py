"""Solar: a control token marks the kind of a message, and calls carry ids. Spoken by Solar Open.

    <|begin|>assistant<|think|>It is about the weather.<|end|>
    <|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>look<|tool_call:args|>{"at": "Oslo"}
    <|tool_call:end|><|calls|>
    <|begin|>assistant<|content|>It rains.<|end|>

(No line breaks between them.) The prompt ends with `<|begin|>assistant`. Source: the template of Solar Open 100B.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, prefixes, read_named
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.call import Calls, Found
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import ARGUMENTS, Pattern, Spelling, json_call

CALLS, CALLS_END, CALL, CALL_END = "<|tool_calls|>", "<|calls|>", "<|tool_call:begin|>", "<|tool_call:end|>"
NAME, ARGS = "<|tool_call:name|>", "<|tool_call:args|>"
AGAIN = "<|begin|>assistant"
WORD = r"[\w.:/-]{0,128}"
GAP = r"\s{0,16}+"
AHEAD = rf"{GAP}(?:{re.escape(CALLS)})?{GAP}(?:{re.escape(CALL)})?{GAP}"
HEAD = re.compile(rf"{AHEAD}(?:({WORD}){GAP}{re.escape(NAME)}{GAP})?({WORD}){GAP}(?:{re.escape(ARGS)}|(?=[{{\[]))")
HEAD_BEGUN = re.compile(
    rf"{GAP}(?:{prefixes(CALLS)})?|{GAP}(?:{re.escape(CALLS)})?{GAP}(?:{prefixes(CALL)})?|"
    rf"{AHEAD}{WORD}{GAP}(?:{prefixes(NAME, ARGS)})?|"
    rf"{AHEAD}{WORD}{GAP}{re.escape(NAME)}{GAP}{WORD}{GAP}(?:{prefixes(ARGS)})?"
)


def call_head(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    head = HEAD.match(text, at)
    if head is None:
        is_open = HEAD_BEGUN.fullmatch(text[at : at + 512]) is not None
        if is_open and final and (not text[at:].strip() or not text[at].isspace()):
            return Header(len(text), inside=JsonBody if text[at:].strip() else None)
        return None if is_open and not final else Header(at, declined=opener)
    if not head[2]:
        return Header(head.end(), inside=JsonBody)
    call_id = head[1] or ""

    def read(spelled: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
        (call,) = read_named(head[2], spelled, tools, whole)
        return (replace(call, id=call_id) if isinstance(call, Found) else call,)

    return Header(head.end(), inside=partial(JsonBody, read=read))


HEADER = partial(HeaderBody, read=call_head)
SPELLED = json_call(CALL, Pattern("[a-z0-9]{10}"), f"{NAME}{{}}{ARGS}", ARGUMENTS, CALL_END)
SOLAR = family(
    "solar",
    ("<|begin|>", CALLS, ARGS),
    Block(CALLS, (CALL_END,), HEADER, "anywhere", "anywhere"),
    Block(CALL, (CALL_END,), HEADER, "anywhere", "anywhere"),
    stops=tuple(f"<|begin|>{role}" for role in ("user", "system", "tool")),
    thoughts=(Thought("<|think|>", ("<|end|>", AGAIN, "<|content|>")),),
    spelled=(Block(CALLS, (CALLS_END,), HEADER, "anywhere", "anywhere", spelling=Spelling(SPELLED, between="")),),
    skips=(AGAIN, "<|content|>", "<|end|>", CALLS_END),
    answer=("<|content|>", ""),
    declared=(),
)
