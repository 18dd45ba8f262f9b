"""Qwen3-Coder and what is trained on its form: Qwen3.5 and later, Nemotron 3, Step 3.5.

    <think>A thought.</think>
    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Values are raw, each on lines of its own; objects and arrays are JSON, other things as Python prints them. From the
models' own templates. Qwen3-Coder forgets `<tool_call>` in about one call of five, Nemotron the last `</parameter>`.
"""

from __future__ import annotations

from functools import partial

from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.grammar.spelling import Spelling, tagged_call
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block

CALL = tagged_call("\n<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>\n")
body = partial(TaggedBody, padded=True)

QWEN_XML = family(
    "qwen-xml",
    ("<function=", "<parameter="),
    Block("<tool_call>", ("</tool_call>",), body, starts=r"[<{\[]", spelling=Spelling(CALL)),
    # Step 3.5 calls in the middle of a line of thought.
    Block("<tool_call>\n<function=", ("</tool_call>",), body, within="anywhere", starts=r"\w", tight=True),
    Block("<tool_call><function", ("</tool_call>",), body, within="anywhere", starts=r"[= ]", tight=True),
    Block("<function=", ("</tool_call>",), body, starts=r"\w", tight=True),
    foreign=("<seed:tool_call>",),
    thoughts=THINK,
)
