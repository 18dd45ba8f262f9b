"""MiniCPM5.

    <think>A thought.</think>
    <function name="get_weather"><param name="city">Paris</param></function>
    <function name="write"><param name="text"><![CDATA[if a < b:
        print("&")]]></param></function>

Nothing stands around a call. Values are raw, and in a CDATA section if they hold `<`, `&` or line breaks. From the
model's own template.
"""

from __future__ import annotations

from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.grammar.spelling import OneOf, Part, Pattern, Spelling, Until, members, value
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block

TEXT = OneOf(((Pattern(r"[^<&\n]*"), "</param>"), ("<![CDATA[", Until("]]></param>"))))


def call(tool: ToolSpec) -> tuple[Part, ...]:
    def spell(name: str) -> tuple[Part, ...]:
        spelt = value(tool, name, "</param>")
        return (f'<param name="{name}">', *((TEXT,) if isinstance(spelt[0], Until) else spelt))

    return (f'"{tool.name}">', *members(tool.parameters, spell))


body = partial(TaggedBody, cdata=True)

MINICPM = family(
    "minicpm",
    ("<function name=", "<param name="),
    Block("<function name=", ("</function>",), body, starts="[\"']", tight=True, spelling=Spelling(call)),
    Block("<tool_call>", ("</tool_call>",), body, starts=r"[<{\[]"),
    thoughts=THINK,
)
