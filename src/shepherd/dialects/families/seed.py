"""Seed-OSS.

    <seed:think>A thought.</seed:think>
    <seed:tool_call>
    <function=get_weather>
    <parameter=city>Paris</parameter>
    </function>
    </seed:tool_call>

Values are raw, exactly what stands between their tags; other things than strings are as Python prints them. From the
model's own template.
"""

from __future__ import annotations

from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Spelling, tagged_call
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect

CALL = tagged_call("\n<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n")
CLOSERS = ("</seed:tool_call>", "</tool_call>")

SEED = TagDialect(
    name="seed",
    markup=Markup(
        thoughts=(Thought("<seed:think>", ("</seed:think>",)),),
        blocks=(
            Block("<seed:tool_call>", CLOSERS, TaggedBody, starts=r"[<{\[]", spelling=Spelling(CALL)),
            Block("<tool_call>", CLOSERS, TaggedBody, starts=r"[<{\[]"),
            Block("<function=", CLOSERS, TaggedBody, starts=r"\w", tight=True),
        ),
        declared=strays,
        # The model counts its tokens aloud.
        skips=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    ),
    marks=("<seed:tool_call>",),
)

DIALECTS = (SEED,)
