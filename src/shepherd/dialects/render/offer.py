"""Tools for a model whose chat template has no place for them: told in words, in the system message (C12, TPL-04).

The words show a call as this model's family writes one, found by asking: the template's own spelling of a call if the
family's parser reads it, else the most usual one that it reads. Not here: what becomes of calls in a history
(`conversation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from shepherd.core import CallEnded, EngineError, InvalidRequest, ToolCall, ToolSpec
from shepherd.dialects.base import Dialect
from shepherd.dialects.render.conversation import spelled_call
from shepherd.dialects.render.frame import TOOL, USER, exchange
from shepherd.dialects.render.template import Template

WORDS = """You can call tools. These are the tools, each with a JSON Schema of its arguments:

{tools}

To call a tool, write a call like this one and nothing behind it; its result will be told to you:

{example}"""


def offered(tools: Sequence[ToolSpec], template: Template, dialect: Dialect) -> str:
    """What the system message has to say about the tools; nothing if the template shows them itself."""
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
        try:
            pieces = template.render([USER, message, result], add_generation_prompt=False)
        except (InvalidRequest, EngineError):
            pieces = ()
        yield from (found.raw for found in read("".join(piece.text for piece in pieces), dialect) if found.raw)
    usual = (spelled_call(call), json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}))
    yield from (text for text in usual if read(text, dialect))
    yield usual[0]


def read(text: str, dialect: Dialect) -> list[ToolCall]:
    """The calls of the probe's tool that the dialect finds in a text."""
    parser = dialect.parser(tools=[TOOL])
    events = [*parser.feed(text), *parser.close()]
    calls = [event.call for event in events if isinstance(event, CallEnded) and isinstance(event.call, ToolCall)]
    return [call for call in calls if call.name == TOOL.name]
