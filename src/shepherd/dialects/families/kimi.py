"""Kimi K2: calls in a section, each with an id that holds its name; K2-Thinking thinks in `<think>`.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.roll:0<|tool_call_argument_begin|>{"sides": 6}
    <|tool_call_end|><|tool_calls_section_end|>

The id is kept as it is: templates of this family print it before the tool's result. The section's markers may be
missing, or singular. Source: the models' chat templates and "Tool Use" guide.
"""

from __future__ import annotations

import re
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Json, Part, Pattern, Spelling
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect

SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
CALL, END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

BODY = partial(
    NamedBody,
    form=Form(
        header=re.compile(rf"(?P<id>(?:functions\.)?(?P<name>[^\s<]+?)(?::\d+)?)\s*(?:{re.escape(ARGUMENTS)})?"),
        separators=(ARGUMENTS,),
        openers=(*SECTIONS, CALL),
        ends=(END,),
        chained=True,
    ),
)


def call(tool: ToolSpec) -> tuple[Part, ...]:
    return (f"{CALL}functions.{tool.name}:", Pattern("[0-9]{1,3}"), ARGUMENTS, Json(tool.parameters), END)


def block(opener: str, spelling: Spelling | None = None) -> Block:
    return Block(opener, (*SECTION_ENDS, END), BODY, where="anywhere", within="anywhere", spelling=spelling)


KIMI = TagDialect(
    name="kimi-k2",
    markup=Markup(
        thoughts=(Thought("<think>", ("</think>",)),),
        blocks=(block(SECTIONS[0], Spelling(call, between="")), block(SECTIONS[1]), block(CALL)),
        declared=strays,
    ),
    marks=(SECTIONS[0],),
)

DIALECTS = (KIMI,)
