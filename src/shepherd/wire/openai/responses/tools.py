"""The tools of a Responses body, and the names by which the client and the model know each of them.

    the client's                          the model's
    function look                   ⇄     look
    namespace docs { find, … }      ⇄     docs__find, …
    custom patch, a free text       ⇄     patch with one argument, `input`
    web_search, computer, …               none: nothing here could run them

The model calls every tool as a function with JSON; the call goes back under the client's own name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from shepherd.core import InvalidRequest, ToolChoice, ToolSpec
from shepherd.core.dataclasses import dataclass, field
from shepherd.wire.base import MAX_TOOLS, Fields, Json, check_count, field_error, shown, wrong
from shepherd.wire.tools import FREE_INPUT, decode_function, unknown_tool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OriginalTool:
    """A tool as the client knows it."""

    name: str
    namespace: str | None = None
    is_free: bool = False
    """It takes a text, not JSON."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    specs: tuple[ToolSpec, ...] = ()
    """As the model sees them."""
    owns: Mapping[str, OriginalTool] = field(default_factory=dict)
    """By the names of `specs`."""
    names: Mapping[tuple[str | None, str], str] = field(default_factory=dict)
    """The names of `specs`, by the client's namespace and name."""

    def own(self, name: str) -> OriginalTool:
        """The client's name of the tool that the model calls `name`."""
        return self.owns.get(name) or OriginalTool(name)

    def name_of(self, name: str, namespace: str | None = None) -> str:
        """The model's name of a tool of the client, also of one that is no longer offered."""
        return self.names.get((namespace, name)) or full_name(name, namespace)


NO_TOOLS = OfferedTools()


def full_name(name: str, namespace: str | None) -> str:
    """One name of two, spelled as Codex spells them together itself."""
    return name if namespace is None else f"{namespace.rstrip('_')}__{name.lstrip('_')}"


def decode_tools(offers: Iterable[Fields]) -> OfferedTools:
    """The tools. Of two offers with one name the later one counts. Raises: `InvalidRequest`."""
    found: dict[tuple[str | None, str], tuple[OriginalTool, ToolSpec]] = {}
    for offer in offers:
        for own, spec in _read(offer):
            found[own.namespace, own.name] = own, spec
            check_count(len(found), "tools", MAX_TOOLS)
    specs: list[ToolSpec] = []
    owns: dict[str, OriginalTool] = {}
    names: dict[tuple[str | None, str], str] = {}
    for place, (own, spec) in found.items():
        name, number = spec.name, 2
        while name in owns:  # a function docs__find beside the find of docs
            name, number = f"{spec.name}_{number}", number + 1
        owns[name], names[place] = own, name
        specs.append(ToolSpec(name, spec.description, spec.parameters, spec.strict))
    return OfferedTools(tuple(specs), owns, names)


def _read(offer: Fields, namespace: str | None = None) -> Iterator[tuple[OriginalTool, ToolSpec]]:
    kind = offer.find_string("type") or "function"
    if kind == "namespace" and namespace is None:
        name = offer.get_string("name")
        for inner in offer.objects("tools", MAX_TOOLS):
            yield from _read(inner, name)
    elif kind in ("function", "custom"):
        # Cursor sends the shape of chat completions, too: the same, one level deeper.
        tool = offer if offer.has("name") else offer.find_object(kind) or offer
        own = OriginalTool(tool.get_string("name"), namespace, is_free=kind == "custom")
        name = full_name(own.name, namespace)
        if own.is_free:
            description = tool.find_string("description") or ""
            yield own, ToolSpec(name, _with_format(description, tool.find_object("format")), _FREE)
        else:
            yield own, decode_function(tool, name)
    else:
        logger.info("a tool of type %s is left out: nothing here can run it", shown(kind))


_FREE: Json = {
    "type": "object",
    "properties": {FREE_INPUT: {"type": "string", "description": "The whole input, as plain text."}},
    "required": [FREE_INPUT],
    "additionalProperties": False,
}


def _with_format(description: str, form: Fields | None) -> str:
    """The description of a free text, and what the text must look like."""
    if form is None or form.find_string("type") != "grammar":
        return description
    grammar = form.find_object("grammar") or form
    syntax = grammar.find_string("syntax") or "lark"
    # Descriptions say "this is free-form, send no JSON", which is true of no call that a model makes here.
    rule = f"Put the text into the argument `{FREE_INPUT}`. It must match this grammar ({syntax}):"
    return f"{description}\n\n{rule}\n{grammar.find_string('definition') or ''}".lstrip()


# ---- the choice


def provider_demand(body: Fields) -> InvalidRequest | None:
    """The error for a model that cannot run the hosted tool which must be called; None where none must be."""
    match body.find_any("tool_choice"):
        case {"type": str() as kind} if kind not in ("function", "custom", "allowed_tools"):
            # To answer without it would be to invent what it finds.
            return body.error("tool_choice", f"is of type {shown(kind)}, which nothing here can run")
        case _:
            return None


def decode_tool_choice(body: Fields, box: OfferedTools) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that may be called, and whether and which of them must be; `provider_demand` reads hosted ones.

    Raises: `InvalidRequest`.
    """
    choice, path = body.find_any("tool_choice"), body.at("tool_choice")
    match choice:
        case None | "auto":
            return box.specs, "auto"
        case "none":
            return box.specs, "none"
        case "required":
            return box.specs, _required(path, box.specs)
        case {"type": "function" | "custom" as kind}:
            return box.specs, ("named", _chosen(Fields(choice, path), kind, box))
        case {"type": "allowed_tools"}:
            given = Fields(choice, path)
            return _allowed(path, given.find_object("allowed_tools") or given, box)
        case {"type": str()}:
            return box.specs, "auto"
        case _:
            raise wrong(path, '"auto", "none", "required" or {"type": "function", "name": …}', choice)


def _required(path: str, left: tuple[ToolSpec, ...]) -> ToolChoice:
    if left:
        return "required"
    raise field_error(path, 'is "required" but no tool is offered that can be called here; send tools')


def _chosen(choice: Fields, kind: str, box: OfferedTools) -> str:
    """The model's name of the tool that the client names."""
    inner = choice if choice.has("name") else choice.find_object(kind) or choice
    name, namespace = inner.get_string("name"), inner.find_string("namespace")
    if (known := box.names.get((namespace, name))) is not None:
        return known
    if namespace is None:
        if name in box.owns:
            return name
        inside = [flat for (_, inner_name), flat in box.names.items() if inner_name == name]
        if len(inside) == 1:
            return inside[0]
    raise unknown_tool(inner.at("name"), name, box.specs)


def _allowed(path: str, allowed: Fields, box: OfferedTools) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that are left. The model does not see the others, so it does not call them."""
    mode = allowed.find_string("mode") or "auto"
    if mode not in ("auto", "required"):
        raise wrong(allowed.at("mode"), '"auto" or "required"', mode)
    if not allowed.find_array("tools"):
        raise allowed.error("tools", "names no tool")
    names: set[str] = set()
    for tool in allowed.objects("tools", MAX_TOOLS):
        match tool.find_string("type"):
            case None | "function" | "custom" as kind:
                names.add(_chosen(tool, kind or "function", box))
            case "namespace":
                namespace = tool.get_string("name")
                names.update(flat for flat, own in box.owns.items() if own.namespace == namespace)
            case kind:
                logger.info("an allowed tool of type %s is left out: nothing here can run it", shown(kind))
    left = tuple(spec for spec in box.specs if spec.name in names)
    return left, _required(path, left) if mode == "required" else "auto"
