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
from shepherd.dialects.families.generic import family, strays
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.call import Keys
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import ARGUMENTS, Part, Pattern, Spelling, json_call
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


def unmarked(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return tuple(Block(tool.name + mark, (), BODY) for tool in tools for mark in FORM.separators)


def dialect(name: str, spelling: Spelling, marks: tuple[str, ...], foreign: tuple[str, ...] = ()) -> TagDialect:
    """The dialect of the models that write calls so; all forms are read."""
    block = Block("[TOOL_CALLS]", (), BODY, "anywhere", "last", spelling=spelling)
    thoughts = (Thought("[THINK]", ("[/THINK]",)),)
    return family(name, marks, block, foreign=foreign, thoughts=thoughts, declared=(unmarked, strays))


def named(*parts: Part) -> Spelling:
    return Spelling(json_call(*parts))


def listed(before: str) -> Spelling:
    call = json_call('{"name": "{}", "arguments": ', ARGUMENTS, ', "id": "', ID, '"}')
    return Spelling(call, before=before, between=", ", after="]")


DIALECTS = (
    dialect("mistral", named("{}[ARGS]", ARGUMENTS), ("[TOOL_CALLS]", "[ARGS]"), ("[CALL_ID]",)),
    dialect("mistral-id", named("{}[CALL_ID]", ID, "[ARGS]", ARGUMENTS), ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")),
    dialect("mistral-list", listed("["), ("[TOOL_CALLS]",), ("[ARGS]", "[TOOL_CALLS] [")),
    dialect("mistral-spaced-list", listed(" ["), ("[TOOL_CALLS] [",), ("[ARGS]",)),
)
