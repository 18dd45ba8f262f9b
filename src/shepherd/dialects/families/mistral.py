"""Mistral: `[TOOL_CALLS]` and calls behind it, without a closer; thoughts in `[THINK]` where the template knows them.

    [TOOL_CALLS][{"name": "roll", "arguments": {"sides": 6}, "id": "Ab3dE5gH9"}]     Nemo, 7B v0.3, Large, Small 3.1
    [TOOL_CALLS]roll[CALL_ID]Ab3dE5gH9[ARGS]{"sides": 6}                              Small 3.2
    [TOOL_CALLS]roll[ARGS]{"sides": 6}[TOOL_CALLS]roll[ARGS]{"sides": 20}             Devstral, Magistral, Ministral 3

Ids are optional for us, the marker may be missing before `NAME[ARGS]` or between two calls, and so may `[ARGS]`.
Source: the models' chat templates and tokenizer versions 3 to 13.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Json, Part, Pattern, Spelling
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.call import Keys
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect

FORM = Form(
    header=re.compile(r"(?P<name>[^\[\s]+)\s*(?:\[CALL_ID\]\s*(?P<id>[^\[\s]*)\s*)?(?:\[ARGS\])?"),
    separators=("[ARGS]", "[CALL_ID]"),
    openers=("[TOOL_CALLS]",),
    chained=True,
    keys=Keys(id=("id", "call_id")),
)
BODY = partial(NamedBody, form=FORM)
ID = Pattern("[a-zA-Z0-9]{9}")


def listed(tool: ToolSpec) -> tuple[Part, ...]:
    return (f'{{"name": "{tool.name}", "arguments": ', Json(tool.parameters), ', "id": "', ID, '"}')


def named(tool: ToolSpec) -> tuple[Part, ...]:
    return (f"{tool.name}[ARGS]", Json(tool.parameters))


def named_with_id(tool: ToolSpec) -> tuple[Part, ...]:
    return (f"{tool.name}[CALL_ID]", ID, "[ARGS]", Json(tool.parameters))


def unmarked(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """Calls that lack `[TOOL_CALLS]`, and what any family writes now and then."""
    named = (Block(tool.name + mark, (), BODY) for tool in tools for mark in FORM.separators)
    return (*named, *strays(tools))


def markup(spelling: Spelling) -> Markup:
    opener = Block("[TOOL_CALLS]", (), BODY, where="anywhere", within="anywhere", spelling=spelling)
    return Markup(thoughts=(Thought("[THINK]", ("[/THINK]",)),), blocks=(opener,), declared=unmarked)


DIALECTS = (
    TagDialect(
        name="mistral",
        markup=markup(Spelling(named)),
        marks=("[TOOL_CALLS]", "[ARGS]"),
        foreign=("[CALL_ID]",),
    ),
    TagDialect(
        name="mistral-id",
        markup=markup(Spelling(named_with_id)),
        marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    ),
    TagDialect(
        name="mistral-list",
        markup=markup(Spelling(listed, before="[", between=", ", after="]")),
        marks=("[TOOL_CALLS]",),
        foreign=("[ARGS]", "[TOOL_CALLS] ["),
    ),
    TagDialect(
        name="mistral-spaced-list",
        markup=markup(Spelling(listed, before=" [", between=", ", after="]")),
        marks=("[TOOL_CALLS] [",),
        foreign=("[ARGS]",),
    ),
)
