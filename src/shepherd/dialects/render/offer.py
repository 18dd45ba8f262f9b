"""Tools for a model whose chat template has no place for them: the system message describes them (C12, TPL-04).

The description shows a call as this model's family writes one: the template's own spelling of a call if the family's
parser reads it, else the most common one that it reads. Not here: the calls of a history (`conversation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from shepherd.core import ToolCall, ToolSpec
from shepherd.dialects.base import Dialect
from shepherd.dialects.render.conversation import spelled_call
from shepherd.dialects.render.frame import USER, attempted, exchange
from shepherd.dialects.render.probe import TOOL
from shepherd.dialects.render.replay import read as read_answer
from shepherd.dialects.render.replay import spelled
from shepherd.dialects.render.template import Template

WORDS = """You can call tools. These are the tools, each with a JSON Schema of its arguments:

{tools}

To call a tool, write a call like this one and nothing behind it; its result will be told to you:

{example}"""


def offered(tools: Sequence[ToolSpec], template: Template, dialect: Dialect) -> str:
    """The description of the tools for the system message; empty if the template shows them itself."""
    if not tools or template.caps.shows_tools:
        return ""
    shapes = ({"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools)
    listed = "\n".join(json.dumps(shape, ensure_ascii=False) for shape in shapes)
    properties = tools[0].parameters.get("properties")
    key = next(iter(properties), "key") if isinstance(properties, Mapping) else "key"
    example = next(examples(template, dialect)).replace(TOOL.name, tools[0].name).replace("probekey", key)
    return WORDS.format(tools=listed, example=example.replace("probevalue", "..."))


def examples(template: Template, dialect: Dialect) -> Iterator[str]:
    """Ways to write a call, those that the dialect reads; never none."""
    message, result = exchange(1)
    (call,) = message.calls
    if template.caps.calls:
        pieces = attempted(
            lambda messages, tools: template.render(messages, add_generation_prompt=False), [USER, message, result]
        )
        yield from (found.raw for found in read(spelled(pieces), dialect) if found.raw)
    usual = (spelled_call(call), json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}))
    yield from (text for text in usual if read(text, dialect))
    yield usual[0]


def read(text: str, dialect: Dialect) -> list[ToolCall]:
    return [call for call in read_answer(text, dialect, [TOOL])[1] if call.name == TOOL.name]
