"""GLM 4.5 and later, and its kin: `<tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>`.

    <think>Rome it is.</think>Let me look.<tool_call>weather
    <arg_key>city</arg_key>
    <arg_value>Rome</arg_value>
    <arg_key>days</arg_key>
    <arg_value>2</arg_value>
    </tool_call>

GLM 4.5 and 4.6, Ling 3 and Poolside's Laguna XS write line breaks between the tags, GLM 4.7 and 5, Spark 2.5 and Laguna
S none. Strings are raw, other values JSON. GLM's vision models put boxes around answers. Hunyuan 3 adds a tag behind
the name, a wrapper around all calls, and in open checkpoints a suffix to every tag; LongCat has a prefix instead.
Source: the models' templates; for LongCat its card.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Part, Spelling, members, value
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect

LINES = re.compile(r"</arg_key>(?:\n|\\n)")
"""A template that shows line breaks between the tags."""
LAST_LINE = re.compile(r"""\\n</tool_call>['"]""")
"""A template that writes one before the closer, not behind every value."""


class GlmDialect(TagDialect):
    """Spells its calls with the line breaks of the template."""

    __slots__ = ()

    def fitted(self, template: str) -> TagDialect:
        spell = tight if not LINES.search(template) else joined if LAST_LINE.search(template) else in_lines
        markup = replace(self.markup, blocks=(call_block("tool_call", spell),))
        return TagDialect.fitted(replace(self, markup=markup), template)


class HunyuanDialect(TagDialect):
    """Spells its calls with the suffix that the template knows."""

    __slots__ = ()

    def fitted(self, template: str) -> TagDialect:
        suffix = ":opensource" if ":opensource" in template else ""
        markup = replace(self.markup, spelled=(wrapper(suffix),))
        return TagDialect.fitted(replace(self, markup=markup), template)


def in_lines(tool: ToolSpec) -> tuple[Part, ...]:
    return (f"{tool.name}\n", *members(tool, lambda name: (*pair(tool, name, "\n"), "\n")))


def joined(tool: ToolSpec) -> tuple[Part, ...]:
    return (f"{tool.name}\n", *members(tool, lambda name: pair(tool, name, "\n")), "\n")


def tight(tool: ToolSpec) -> tuple[Part, ...]:
    return (tool.name, *members(tool, lambda name: pair(tool, name, "")))


def separated(tool: ToolSpec, *, suffix: str) -> tuple[Part, ...]:
    call = (f"{tool.name}<tool_sep{suffix}>\n", *members(tool, lambda name: (*pair(tool, name, "\n", suffix), "\n")))
    return (f"<tool_call{suffix}>", *call, f"</tool_call{suffix}>\n")


def pair(tool: ToolSpec, name: str, gap: str, suffix: str = "") -> tuple[Part, ...]:
    key = f"<arg_key{suffix}>{name}</arg_key{suffix}>{gap}<arg_value{suffix}>"
    return (key, *value(tool, name, f"</arg_value{suffix}>"))


def wrapper(suffix: str) -> Block:
    """All calls of an answer as they are written out."""
    tag = f"tool_calls{suffix}"
    spelling = Spelling(partial(separated, suffix=suffix), before="\n", between="")
    return Block(f"<{tag}>", (f"</{tag}>",), PairsBody, "anywhere", spelling=spelling)


def call_block(tag: str, spell: Callable[[ToolSpec], tuple[Part, ...]] | None = None, *wrappers: str) -> Block:
    closers = tuple(f"</{name}>" for name in (tag, *wrappers))
    spelling = Spelling(spell) if spell else None
    return Block(f"<{tag}>", closers, PairsBody, starts=r"[\w{\[\n]", tight=True, spelling=spelling)


GLM = GlmDialect(
    name="glm",
    markup=Markup(
        thoughts=(Thought("<think>", ("</think>",)),),
        blocks=(call_block("tool_call", tight),),
        skips=("<|begin_of_box|>", "<|end_of_box|>", "<|role_end|>"),
        declared=strays,
    ),
    marks=("<tool_call>", "<arg_key"),
    foreign=("<tool_calls",),
    stops=("<|observation|>",),
)
HUNYUAN = HunyuanDialect(
    name="hunyuan",
    markup=Markup(
        thoughts=(Thought("<think:opensource>", ("</think:opensource>",)), Thought("<think>", ("</think>",))),
        blocks=(
            call_block("tool_call:opensource", None, "tool_calls:opensource"),
            call_block("tool_call", None, "tool_calls"),
        ),
        spelled=(wrapper(":opensource"),),
        skips=("<tool_calls:opensource>", "</tool_calls:opensource>", "<tool_calls>", "</tool_calls>"),
        declared=strays,
    ),
    marks=("<tool_calls", "<arg_key"),
)
LONGCAT = TagDialect(
    name="longcat",
    markup=Markup(
        thoughts=(Thought("<longcat_think>", ("</longcat_think>",)),),
        blocks=(call_block("longcat_tool_call"),),
    ),
    marks=("<longcat_tool_call>",),
)

DIALECTS = (GLM, HUNYUAN, LONGCAT)
