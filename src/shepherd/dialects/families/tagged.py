"""Families that write a call as tags, a raw value between the tags of each parameter.

    <tool_call>                                                     Qwen3-Coder and what is trained on its form:
    <function=get_weather>                                          Qwen3.5 and later, Nemotron 3, Step 3.5
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>
    <seed:tool_call>                                                Seed-OSS
    <function=get_weather>
    <parameter=city>Paris</parameter>
    </function>
    </seed:tool_call>
    <function name="get_weather"><param name="city">Paris</param></function>        MiniCPM5
    <function name="write"><param name="text"><![CDATA[if a < b:
        print("&")]]></param></function>

Qwen's values stand on lines of their own, Seed's are exactly what stands between their tags, MiniCPM's are in a CDATA
section if they hold `<`, `&` or line breaks. Objects and arrays are JSON, other things as Python prints them.
Qwen3-Coder forgets `<tool_call>` in about one call of five, Nemotron the last `</parameter>`. Source: the models' own
templates. Not here: DeepSeek and MiniMax, whose tags carry types or tokens.
"""

from __future__ import annotations

from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import OneOf, Part, Pattern, Spelling, Until, named_call, tagged_call, value

PADDED, WITH_CDATA = partial(TaggedBody, padded=True), partial(TaggedBody, cdata=True)
END, SEED_ENDS = ("</tool_call>",), ("</seed:tool_call>", "</tool_call>")
QWEN_CALL = tagged_call("\n<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>\n")
SEED_CALL = tagged_call("\n<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n")
CDATA_OR_NONE = OneOf(((Pattern(r"[^<&\n]*"), "</param>"), ("<![CDATA[", Until("]]></param>"))))


def minicpm_parameter(tool: ToolSpec, name: str) -> tuple[Part, ...]:
    spelt = value(tool, name, "</param>")
    return (f'<param name="{name}">', *((CDATA_OR_NONE,) if isinstance(spelt[0], Until) else spelt))


MINICPM_CALL = Spelling(named_call('"{}">', minicpm_parameter, ""))
QWEN_XML = family(
    "qwen-xml",
    ("<function=", "<parameter="),
    Block("<tool_call>", END, PADDED, starts=r"[<{\[]", spelling=Spelling(QWEN_CALL)),
    # Step 3.5 calls in the middle of a line of thought.
    Block("<tool_call>\n<function=", END, PADDED, within="anywhere", starts=r"\w", tight=True),
    Block("<tool_call><function", END, PADDED, within="anywhere", starts=r"[= ]", tight=True),
    Block("<function=", END, PADDED, starts=r"\w", tight=True),
    foreign=("<seed:tool_call>",),
    thoughts=THINK,
)
SEED = family(
    "seed",
    ("<seed:tool_call>",),
    Block("<seed:tool_call>", SEED_ENDS, TaggedBody, starts=r"[<{\[]", spelling=Spelling(SEED_CALL)),
    Block("<tool_call>", SEED_ENDS, TaggedBody, starts=r"[<{\[]"),
    Block("<function=", SEED_ENDS, TaggedBody, starts=r"\w", tight=True),
    thoughts=(Thought("<seed:think>", ("</seed:think>",)),),
    # The model counts its tokens aloud.
    skips=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
)
MINICPM = family(
    "minicpm",
    ("<function name=", "<param name="),
    Block("<function name=", ("</function>",), WITH_CDATA, starts="[\"']", tight=True, spelling=MINICPM_CALL),
    Block("<tool_call>", END, WITH_CDATA, starts=r"[<{\[]"),
    thoughts=THINK,
)
