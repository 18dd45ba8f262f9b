"""What the protocols share about tools: functions, tools that take any text, and choices that name a tool."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from shepherd.core import InvalidRequest, ToolSpec
from shepherd.wire.base import Fields, field_error, parse_object, shown, wrong

FREE_INPUT = "input"
"""The one argument of a tool that takes any text (type custom): to the model it is a function like others."""


def decode_function(function: Fields, name: str = "") -> ToolSpec:
    """A function as OpenAI's clients describe it; `name` in place of its own. Raises: `InvalidRequest`."""
    own_name, description = function.get_string("name"), function.find_string("description") or ""
    parameters = function.find_object("parameters") or function.find_object("input_schema")
    is_strict = function.find_boolean("strict") is True
    return ToolSpec(name or own_name, description, {} if parameters is None else parameters.body, is_strict)


def decode_arguments(function: Fields, key: str = "arguments") -> str:
    """The arguments of a call, as text: a string stays as the model wrote it. Raises: `InvalidRequest`."""
    match function.find_json(key):
        case None:
            return "{}"
        case str() as text:
            return text
        case dict() as arguments:
            return json.dumps(arguments, ensure_ascii=False)
        case other:
            raise wrong(function.at(key), "an object, or a string of JSON", other)


def free_arguments(text: str) -> str:
    """The arguments of a call of a tool that takes any text."""
    return json.dumps({FREE_INPUT: text}, ensure_ascii=False)


def free_text(arguments: str) -> str:
    """The text in such arguments; all of them where the model has written something else."""
    text = (parse_object(arguments) or {}).get(FREE_INPUT)
    return text if isinstance(text, str) else arguments


def known_name(choice: Fields, tools: Collection[ToolSpec]) -> str:
    """The name in a choice, which is that of one of the tools. Raises: `InvalidRequest`."""
    name = choice.get_string("name")
    if all(name != tool.name for tool in tools):
        raise unknown_tool(choice.at("name"), name, tools)
    return name


def unknown_tool(path: str, name: str, tools: Iterable[ToolSpec]) -> InvalidRequest:
    """The error of a choice at `path` that names none of the tools."""
    known = ", ".join(tool.name for tool in tools) or "none"
    return field_error(path, f"is {shown(name)}, which is not among the tools ({known})")
