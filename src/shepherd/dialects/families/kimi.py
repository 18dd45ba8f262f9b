"""Kimi K2: calls in a section, each with an id that holds its name; K2-Thinking thinks in `<think>`.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.roll:0<|tool_call_argument_begin|>{"sides": 6}
    <|tool_call_end|><|tool_calls_section_end|>

The id is kept as it is: templates of this family print it before the tool's result. The section's markers may be
missing, or singular. Source: the models' chat templates and "Tool Use" guide.
"""

from __future__ import annotations

import re
from functools import partial

from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import ARGUMENTS, Pattern, Spelling, json_call

SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
CALL, END = "<|tool_call_begin|>", "<|tool_call_end|>"
SEP = "<|tool_call_argument_begin|>"

BODY = partial(
    NamedBody,
    form=Form(
        header=re.compile(rf"(?P<id>(?:functions\.)?(?P<name>[^\s<]+?)(?::\d+)?)\s*(?:{re.escape(SEP)})?"),
        separators=(SEP,),
        openers=(*SECTIONS, CALL),
        ends=(END,),
        chained=True,
    ),
)


def block(opener: str, spelling: Spelling | None = None) -> Block:
    return Block(opener, (*SECTION_ENDS, END), BODY, where="anywhere", within="anywhere", spelling=spelling)


SPELLING = Spelling(json_call(f"{CALL}functions.{{}}:", Pattern("[0-9]{1,3}"), SEP, ARGUMENTS, END), between="")
KIMI = family("kimi-k2", (SECTIONS[0],), block(SECTIONS[0], SPELLING), block(SECTIONS[1]), block(CALL), thoughts=THINK)
