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

from shepherd.dialects.families.generic import family
from shepherd.dialects.grammar.spelling import Spelling, tagged_call
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, Thought

CALL = tagged_call("\n<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n")
CLOSERS = ("</seed:tool_call>", "</tool_call>")

SEED = family(
    "seed",
    ("<seed:tool_call>",),
    Block("<seed:tool_call>", CLOSERS, TaggedBody, starts=r"[<{\[]", spelling=Spelling(CALL)),
    Block("<tool_call>", CLOSERS, TaggedBody, starts=r"[<{\[]"),
    Block("<function=", CLOSERS, TaggedBody, starts=r"\w", tight=True),
    thoughts=(Thought("<seed:think>", ("</seed:think>",)),),
    # The model counts its tokens aloud.
    skips=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
)
