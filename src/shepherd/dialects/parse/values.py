"""Raw parameter text to JSON, by the tool's schema, for the families that write values without quotes.

schema          text      JSON          because
string          3         "3"           any characters are a string
integer         3         3             other values are sliced out verbatim: 64 bits and 1.10 survive
boolean         False     false         Python's words and quotes are repaired
string | null   None      null          such a string is unlikely
integer         about 3   "about 3"     delivered as written: the tool reports the error
unknown         3         3             JSON and Python, as long as it is no string: its quotes would be its own
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shepherd.core import ToolSpec
from shepherd.dialects.parse.call import UNREADABLE, json_of_python, json_string, strict

Kinds = frozenset[str]
"""The types of JSON Schema that a value may have; empty when any may come."""
ANY: Kinds = frozenset()
WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
FIRSTS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
DEPTH = 8
"""So many references and alternatives are followed, for schemas may refer to themselves."""


def argument(tool: ToolSpec | None, name: str, text: str) -> str:
    """The JSON text of the value that `text` spells for this parameter. Never raises.

    `tool` is `None` for an undeclared one. The caller has removed the markup around the value, such as newlines.
    """
    return value_of(text, kinds(tool, name))


def object_text(tool: ToolSpec | None, pairs: Iterable[tuple[str, str]]) -> str:
    """The text of the arguments object that these names and raw texts spell; of equal names the last one counts."""
    return json_object((name, argument(tool, name, text)) for name, text in pairs)


def json_object(members: Iterable[tuple[str, str]]) -> str:
    """The text of the object of these names and JSON values; of equal names the last one counts."""
    return "{" + ", ".join(f"{json_text(name)}: {value}" for name, value in dict(members).items()) + "}"


def json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def find_tool(tools: Sequence[ToolSpec], name: str) -> ToolSpec | None:
    return next((tool for tool in tools if tool.name == name), None)


def names(tool: ToolSpec | None) -> Sequence[str]:
    """The names of the declared parameters; none when the tool is undeclared or names none."""
    properties = tool.parameters.get("properties") if tool else None
    return tuple(properties) if isinstance(properties, Mapping) else ()


def is_complete(tool: ToolSpec | None, given: Iterable[str]) -> bool:
    """Whether all declared parameters are among the given ones; false when none is declared."""
    return bool(names(tool)) and set(names(tool)).issubset(given)


def kinds(tool: ToolSpec | None, name: str) -> Kinds:
    return kinds_of(find_member(tool.parameters, name, tool.parameters), tool.parameters) if tool else ANY


def value_of(text: str, kinds: Kinds) -> str:
    """The JSON text of the value of one of these kinds that `text` spells; a string when it can be nothing else."""
    if kinds == {"string"}:
        return json_text(text)
    may_be_string = not kinds or "string" in kinds
    found = json_value(text.strip(), repair=not may_be_string)
    kind = kind_of(found)
    if may_be_string:
        return found if kind not in ("", "string") and (not kinds or kind in kinds) else json_text(text)
    if kind == "string":  # perhaps JSON within a string
        within = json_value(json_string(found).strip())
        return within if kind_of(within) in kinds else found
    return found or json_text(text)


def json_value(text: str, *, repair: bool = True) -> str:
    """The JSON value that `text` is, or is in Python; empty when it is neither.

    Without `repair` of Python only True, False, None, lists and dicts are known, nothing that a string may look like.
    """
    try:
        return strict(text)
    except (ValueError, RecursionError):
        pass
    if text.lower() in WORDS and (repair or text.istitle()):
        return WORDS[text.lower()]
    if not repair and not text.startswith(("{", "[")):
        return ""
    try:
        return strict(json_of_python(text))
    except UNREADABLE:
        return ""


def kind_of(value: str) -> str:
    if not value:
        return ""
    return FIRSTS.get(value[0]) or ("number" if any(sign in value for sign in ".eE") else "integer")


def kinds_of(schema: Any, root: Mapping[str, Any], depth: int = DEPTH) -> Kinds:
    """The kinds that a schema allows. `root` is where its references point to."""
    if not isinstance(schema, Mapping) or depth < 0:
        return ANY
    allowed = own_kinds(schema)
    if schema.get("nullable") is True and allowed:
        allowed |= {"null"}
    for word in ("anyOf", "oneOf"):
        each = [kinds_of(option, root, depth - 1) for option in parts(schema, word)]
        allowed = narrowed(allowed, ANY if ANY in each else ANY.union(*each))
    for part in (referred(schema.get("$ref"), root), *parts(schema, "allOf")):
        allowed = narrowed(allowed, kinds_of(part, root, depth - 1))
    return allowed


def own_kinds(schema: Mapping[str, Any]) -> Kinds:
    """The kinds that a schema allows, its references and combinations aside."""
    named = schema.get("type")
    if named is None:
        values = [schema["const"]] if "const" in schema else parts(schema, "enum")
        if values:
            return frozenset(kind_of(json.dumps(value, default=str)) for value in values)
        named = "object" if "properties" in schema else "array" if "items" in schema else ()
    words = [named] if isinstance(named, str) else named if isinstance(named, list | tuple) else []
    allowed = frozenset(word for word in words if isinstance(word, str))
    return allowed | {"integer"} if "number" in allowed else allowed


def narrowed(allowed: Kinds, further: Kinds) -> Kinds:
    """The kinds that both allow; the first ones where they contradict each other."""
    return (allowed & further or allowed) if allowed and further else allowed | further


def find_member(schema: Any, name: str, root: Mapping[str, Any], depth: int = DEPTH) -> Any:
    if not isinstance(schema, Mapping) or depth < 0:
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    found = (find_member(part, name, root, depth - 1) for part in combined(schema, root))
    return next((member for member in found if member is not None), schema.get("additionalProperties"))


def find_items(schema: Any, root: Mapping[str, Any], depth: int = DEPTH) -> Any:
    if not isinstance(schema, Mapping) or depth < 0:
        return None
    if isinstance(schema.get("items"), Mapping):
        return schema["items"]
    found = (find_items(part, root, depth - 1) for part in combined(schema, root))
    return next((items for items in found if items is not None), None)


def combined(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    listed = (part for word in ("allOf", "anyOf", "oneOf") for part in parts(schema, word))
    return [referred(schema.get("$ref"), root), *listed]


def referred(reference: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference[1:].split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def parts(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    listed = schema.get(word)
    return listed if isinstance(listed, list | tuple) else ()
