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
from dataclasses import replace

from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.spelling import Spell, Spelling, tagged_call

LINES = re.compile(r"</arg_key>(?:\n|\\n)")
"""A template that shows line breaks between the tags."""
LAST_LINE = re.compile(r"""\\n</tool_call>['"]""")
"""A template that writes one before the closer, not behind every value."""

PAIR = ("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>")
TIGHT = tagged_call("{}", "<arg_key>{}</arg_key><arg_value>", "</arg_value>", "")


def in_lines_of(markup: Markup, template: str) -> Markup:
    end, behind = ("\n", "") if LAST_LINE.search(template) else ("", "\n")
    spell = tagged_call("{}\n", *PAIR, end, behind) if LINES.search(template) else TIGHT
    return replace(markup, blocks=(call_block("tool_call", spell),))


def with_suffix(markup: Markup, template: str) -> Markup:
    return replace(markup, spelled=(wrapper(":opensource" if ":opensource" in template else ""),))


def wrapper(suffix: str) -> Block:
    pair = (f"<arg_key{suffix}>{{}}</arg_key{suffix}>\n<arg_value{suffix}>", f"</arg_value{suffix}>")
    opener, closer = f"<tool_call{suffix}>{{}}<tool_sep{suffix}>\n", f"</tool_call{suffix}>\n"
    spelling = Spelling(tagged_call(opener, *pair, closer, behind="\n"), before="\n", between="")
    return Block(f"<tool_calls{suffix}>", (f"</tool_calls{suffix}>",), PairsBody, "anywhere", spelling=spelling)


def call_block(tag: str, spell: Spell | None = None, *wrappers: str) -> Block:
    closers = tuple(f"</{name}>" for name in (tag, *wrappers))
    spelling = Spelling(spell) if spell else None
    return Block(f"<{tag}>", closers, PairsBody, starts=r"[\w{\[\n]", tight=True, spelling=spelling)


GLM = family(
    "glm",
    ("<tool_call>", "<arg_key"),
    call_block("tool_call", TIGHT),
    foreign=("<tool_calls",),
    stops=("<|observation|>",),
    thoughts=THINK,
    skips=("<|begin_of_box|>", "<|end_of_box|>", "<|role_end|>"),
    tuned=in_lines_of,
)
HUNYUAN = family(
    "hunyuan",
    ("<tool_calls", "<arg_key"),
    call_block("tool_call:opensource", None, "tool_calls:opensource"),
    call_block("tool_call", None, "tool_calls"),
    thoughts=(Thought("<think:opensource>", ("</think:opensource>",)), *THINK),
    spelled=(wrapper(":opensource"),),
    skips=("<tool_calls:opensource>", "</tool_calls:opensource>", "<tool_calls>", "</tool_calls>"),
    tuned=with_suffix,
)
LONGCAT = family(
    "longcat",
    ("<longcat_tool_call>",),
    call_block("longcat_tool_call"),
    thoughts=(Thought("<longcat_think>", ("</longcat_think>",)),),
    declared=(),
)
