"""Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, thoughts in `<think>`.

Spoken by Hermes 2 and 3, Qwen 2.5 and 3, QwQ, MiMo, Granite 4, Reka, Bielik and many fine-tunes of them.
"""

from __future__ import annotations

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Json, Part, Spelling
from shepherd.dialects.parse.bodies.chosen import AnyBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect


def call(tool: ToolSpec) -> tuple[Part, ...]:
    return ("\n", f'{{"name": "{tool.name}", "arguments": ', Json(tool.parameters), "}\n")


HERMES = TagDialect(
    name="hermes",
    markup=Markup(
        thoughts=(Thought("<think>", ("</think>",)),),
        blocks=(Block("<tool_call>", ("</tool_call>",), AnyBody, starts=r"[{\[<]", spelling=Spelling(call)),),
        declared=strays,
    ),
    marks=("<tool_call>",),
    # The same tag around other insides: Qwen3-Coder, GLM and its kin, MiniMax; and Apriel's list of calls.
    foreign=("<function=", "<arg_key", "]<]minimax[>[", "<tool_calls>"),
)

DIALECTS = (HERMES,)
