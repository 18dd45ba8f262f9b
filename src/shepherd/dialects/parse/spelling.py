"""How a family spells a call, as data: constrained output keeps to it, so that no call is malformed (`grammar`).

The counterpart of `bodies`: they read calls with all the slips of models, a spelling writes them correctly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass
from shepherd.dialects.parse.values import kinds, referred


@dataclass(frozen=True, slots=True)
class Json:
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Until:
    """Any text that does not hold the marker, and the marker."""

    marker: str
    ends: tuple[tuple[Part, ...], ...] = ()
    """What may come behind it, each beginning with a `str`: the text ends only where the marker and that stand."""


@dataclass(frozen=True, slots=True)
class Maybe:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    options: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    regex: str


@dataclass(frozen=True, slots=True)
class Closer:
    """The end of a call in a spelling that closes its blocks itself."""


Part = str | Json | Until | Maybe | OneOf | Pattern | Closer
"""A piece of a call; a `str` is written as it is."""


Spell = Callable[[ToolSpec], tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class Spelling:
    """What stands between a block's opener and its closer: `before call (between call)* after`.

    The block's opener and its first closer are not part of it.
    """

    call: Spell
    before: str = ""
    between: str | None = None
    """What stands between two calls of one block; `None` when every call has a block of its own."""
    after: str = ""
    closes: bool = False
    """Whether a `Closer` in each call stands for the block's closer, with which a text of the call may end."""


ARGUMENTS = Json({})
"""For `json_call`: all arguments of the call, as one JSON object."""


def json_call(*parts: Part) -> Spell:
    """The spelling of a call whose arguments are one JSON object; in texts `{}` stands for the name of the tool."""

    def part_of(tool: ToolSpec, part: Part) -> Part:
        named = part.replace("{}", tool.name) if isinstance(part, str) else part
        return Json(tool.parameters) if part is ARGUMENTS else named

    return lambda tool: tuple(part_of(tool, part) for part in parts)


OBJECT = ('{"name": "{}", "arguments": ', ARGUMENTS, "}")
"""For `json_call`: the call as one JSON object, as most families write it."""


def tagged_call(opener: str, parameter: str, end: str, closer: str, behind: str = "") -> Spell:
    """The spelling of a call as tags: `opener (parameter value end behind)* closer`; a value holds no `end`.

    `{}` stands for the name of the tool in the opener, for that of the parameter in its tag.
    """

    def spell(tool: ToolSpec, name: str) -> tuple[Part, ...]:
        return tuple(filter(None, (parameter.format(name), *value(tool, name, end), behind)))

    return named_call(opener, spell, closer)


def named_call(
    opener: str, spell: Callable[[ToolSpec, str], tuple[Part, ...]], closer: str, between: str = "", empty: str = ""
) -> Spell:
    """The spelling of a call whose parameters `spell` writes by their names; `{}` in the opener stands for the tool's.

    `between` stands between two parameters, `empty` in the place of all where a tool has none.
    """

    def call(tool: ToolSpec) -> tuple[Part, ...]:
        inside = members(tool.parameters, partial(spell, tool), between)
        return tuple(filter(None, (opener.format(tool.name), *(inside or (empty,)), closer)))

    return call


def value(tool: ToolSpec, name: str, marker: str) -> tuple[Part, ...]:
    """The value of a parameter as families with named values write it, and the marker behind it.

    What may be a string is written as it is, anything else as JSON.
    """
    schema = resolved(tool, tool.parameters.get("properties", {}).get(name, {}))
    if chosen := choices(schema):
        return (chosen, marker)
    allowed = kinds(tool, name)
    if not allowed or "string" in allowed:
        return (Until(marker),)
    return (whole_json(tool, schema), marker)


def choices(schema: Mapping[str, Any]) -> OneOf | None:
    """One of the values that a schema lists, strings as they are and all else as JSON; `None` if it lists none."""
    listed = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    spelt = (choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False) for choice in listed)
    return OneOf(tuple((choice,) for choice in dict.fromkeys(spelt))) if listed else None


def whole_json(tool: ToolSpec, schema: Mapping[str, Any]) -> Json:
    """A JSON value of a part of the tool's parameters, with the definitions that the part may refer to."""
    definitions = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    return Json({**schema, **definitions})


def resolved(tool: ToolSpec, schema: Any) -> Mapping[str, Any]:
    """The schema that a reference within the tool's parameters names; any other as it is, `true` as the open one."""
    for _ in range(8):  # a reference to a reference is rare, one to itself a mistake
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = referred(reference, tool.parameters)
    return schema if isinstance(schema, Mapping) else {}


def members(schema: Mapping[str, Any], spell: Callable[[str], tuple[Part, ...]], between: str = "") -> tuple[Part, ...]:
    """All members of an object, each spelt by its name: the required ones, then those of the others that are wanted.

    `between` stands between two that are there.
    """
    named = list(schema.get("properties", {}))
    required = [name for name in named if name in schema.get("required", ())]
    optional = [name for name in named if name not in required]

    def behind(names: list[str]) -> Iterator[Part]:
        for name in names:
            yield Maybe(((between,) if between else ()) + spell(name))

    if required or not between:
        first = [*spell(required[0])] if required else []
        rest = [part for name in required[1:] for part in ((between, *spell(name)) if between else spell(name))]
        return (*first, *rest, *behind(optional))
    starts = tuple((*spell(name), *behind(optional[at + 1 :])) for at, name in enumerate(optional))
    return (Maybe((OneOf(starts),)),) if starts else ()
