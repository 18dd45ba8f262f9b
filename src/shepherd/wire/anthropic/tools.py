"""The tools of Anthropic's protocol, and the choice among them.

Three kinds come in one array. The model gets custom tools as they are. The client also runs some typed tools of the
vendor (`bash_…`, `text_editor_…`, `memory_…`): the model gets them under the client's name, with an equal schema. The
vendor's servers would run the others (`web_search_…`): they are left out, with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from shepherd.core import InvalidRequest, ToolChoice, ToolSpec
from shepherd.core.dataclasses import dataclass, field
from shepherd.wire.base import MAX_TOOLS, Fields, Json, check_count, shown, wrong
from shepherd.wire.tools import known_name

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that the model can be given, and the names of those that were left out."""

    tools: tuple[ToolSpec, ...] = ()
    left_out: frozenset[str] = field(default_factory=frozenset)


def decode_tools(body: Fields, key: str = "tools") -> OfferedTools:
    """The tools that the client offers, those of the conversation last. Raises: `InvalidRequest`."""
    tools: dict[str, ToolSpec] = {}
    left_out = set()
    offered = (*body.objects(key, MAX_TOOLS), *_added(body))
    check_count(len(offered), key, MAX_TOOLS)
    for tool in offered:
        spec = _decode_tool(tool)
        if spec is not None:
            tools.setdefault(spec.name, spec)
        else:
            left_out.add(tool.find_string("name") or "")
            logger.info("left out a tool of type %s, which is not run here", shown(tool.find_any("type")))
    return OfferedTools(tuple(tools.values()), frozenset(left_out))


def _added(body: Fields) -> Iterator[Fields]:
    """The tools that the conversation itself defines. They go behind the others: what is cached stays in front."""
    for message in body.objects("messages"):
        if not isinstance(message.find_any("content"), list):
            continue
        for block in message.objects("content"):
            if block.find_any("type") == "tool_addition" and (tool := block.find_object("tool")) is not None:
                definition = tool.find_object("definition")
                if definition is not None:
                    yield definition


def _decode_tool(tool: Fields) -> ToolSpec | None:
    """None for a tool that only its vendor can run."""
    kind = tool.find_string("type") or "custom"
    strict = tool.find_boolean("strict") is True
    if kind == "custom" or tool.has("input_schema"):
        schema = tool.find_object("input_schema")
        description = tool.find_string("description") or ""
        return ToolSpec(tool.get_string("name"), description, {} if schema is None else schema.body, strict)
    known = next((spec for beginning, spec in _RUN_BY_CLIENTS if kind.startswith(beginning)), None)
    return known and ToolSpec(tool.find_string("name") or known.name, known.description, known.parameters, strict)


def decode_tool_choice(body: Fields, offer: OfferedTools) -> tuple[ToolChoice, bool | None]:
    """Whether and which tool must be called, and whether several may be; `provider_demand` reads the vendor's.

    Raises: `InvalidRequest`.
    """
    choice = body.find_object("tool_choice")
    if choice is None:
        return "auto", None
    parallel = False if choice.find_boolean("disable_parallel_tool_use") else None
    if provider_demand(body, offer) is not None:
        return "auto", parallel
    match kind := choice.get_string("type"):
        case "auto" | "none":
            return kind, parallel
        case "any" if offer.tools:
            return "required", parallel
        case "any":
            raise _nothing_to_call(choice)
        case "tool":
            return ("named", known_name(choice, offer.tools)), parallel
        case _:
            raise wrong(choice.at("type"), '"auto", "any", "tool" or "none"', kind)


def provider_demand(body: Fields, offer: OfferedTools) -> InvalidRequest | None:
    """The error for a model that cannot run the vendor's tool which must be called; None where none must be."""
    choice = body.find_object("tool_choice")
    kind, name = (choice.find_any("type"), choice.find_any("name")) if choice is not None else ("", "")
    if choice is None or not offer.left_out:
        return None
    if kind == "any" and not offer.tools:
        return _nothing_to_call(choice)
    if kind == "tool" and name in offer.left_out:  # to answer without it would be to invent what it finds
        return choice.error("name", f"is {shown(name)}, a tool that only its vendor's servers can run")
    return None


def _nothing_to_call(choice: Fields) -> InvalidRequest:
    why = f'{choice.at("type")} is "any" but no tool is offered that can be called here; send tools'
    return InvalidRequest(why, field=choice.path)


# ---- what the vendor has defined and the client runs


def _object(required: tuple[str, ...], **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _string(text: str) -> Json:
    return {"type": "string", "description": text}


def _by_command(needs: Mapping[str, tuple[str, ...]], **properties: Json) -> Json:
    """The arguments of all commands; `needs`: those that each cannot do without."""
    command = {"type": "string", "enum": list(needs), "description": "What to do."}
    choices = [{"properties": {"command": {"const": name}}, "required": list(of)} for name, of in needs.items()]
    return _object(("command",), command=command, **properties) | {"anyOf": choices}


_VIEW_RANGE: Json = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "For view: the first and the last line, counted from 1; -1 is the end of the file.",
}
_EDITS: Json = {
    "path": _string("The file or folder: an absolute path."),
    "view_range": _VIEW_RANGE,
    "file_text": _string("For create: the whole text of the new file."),
    "old_str": _string("For str_replace: the text to be replaced; it must be in the file exactly once."),
    "insert_line": {"type": "integer", "description": "For insert: the line behind which to insert; 0 is the top."},
}
_EDITING = "Shows, creates and changes text files."
_RESTART = {"type": "boolean", "description": "True: start the shell anew in place of running a command."}
_BASH = ToolSpec(
    "bash",
    "Runs commands in a shell that keeps its state from one call to the next.",
    _object((), command=_string("The command to run."), restart=_RESTART),
)
_NEW_TEXTS: Json = {
    "new_str": _string("For str_replace: the new text."),
    "insert_text": _string("For insert: the text to insert."),
}


_PATH = ("path",)
_COMMANDS = {"view": _PATH, "create": (*_PATH, "file_text"), "str_replace": (*_PATH, "old_str", "new_str")}
_INSERT = {"insert": (*_PATH, "insert_line", "insert_text")}
_OLD_INSERT = {"insert": (*_PATH, "insert_line", "new_str"), "undo_edit": _PATH}
_OLD_TEXT = _string("For str_replace and insert: the new text.")
_OLD_EDITOR = ToolSpec(
    "str_replace_editor", _EDITING, _by_command({**_COMMANDS, **_OLD_INSERT}, **_EDITS, new_str=_OLD_TEXT)
)
_EDITOR = ToolSpec(
    "str_replace_based_edit_tool", _EDITING, _by_command({**_COMMANDS, **_INSERT}, **_EDITS, **_NEW_TEXTS)
)
_MEMORY = ToolSpec(
    "memory",
    "Keeps notes in files below /memories, which are there again in later conversations. Look there before you begin.",
    _by_command(
        {**_COMMANDS, **_INSERT, "delete": _PATH, "rename": ("old_path", "new_path")},
        **{**_EDITS, "path": _string("The file or folder, such as /memories/notes.md; all commands but rename.")},
        **_NEW_TEXTS,
        old_path=_string("For rename: what it is called now."),
        new_path=_string("For rename: what it will be called."),
    ),
)
_RUN_BY_CLIENTS: tuple[tuple[str, ToolSpec], ...] = (
    ("bash_20", _BASH),
    ("text_editor_2024", _OLD_EDITOR),
    ("text_editor_20250124", _OLD_EDITOR),
    ("text_editor_20", _EDITOR),
    ("memory_20", _MEMORY),
)
"""By the beginning of the type, behind which the vendor writes a date; the first that fits."""
