"""A conversation in the shape that one template can take.

Messages become the OpenAI-shaped dicts that templates expect, every string marked with its origin. What a template
lacks (`Caps`) is made up for by folding text into the messages that it does take; nothing is ever left out. Not here:
how the lacks are found out (`template`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shepherd.core import (
    BadCall,
    Image,
    InvalidRequest,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.dialects.base import TOOLS
from shepherd.dialects.provenance import Arguments, Sourced, join, sourced

Turn = dict[str, Any]
"""One message as templates see it."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What a template takes, found out by asking it."""

    system: bool = True
    later_systems: bool = True
    """Takes system messages after the first message, too."""
    calls: bool = True
    tool_role: bool = True
    repeats: bool = True
    """Takes two messages of one role in a row."""
    arguments: Literal["object", "text"] = "object"
    blank: str | None = ""
    """The content of an assistant message that holds calls only."""
    short_ids: bool = False
    """Takes call ids of nine letters and digits only."""
    parts: bool = False
    """Wants content as a list of parts."""
    tools: Literal["none", "undefined", "empty"] = "none"
    """How the absence of tools is told."""
    switch: bool = False
    """Renders something else when thinking is off."""
    efforts: tuple[str, ...] = ("low", "medium", "high")
    """Levels of reasoning that it does not refuse."""


def shaped(messages: Sequence[Message], caps: Caps) -> list[Turn]:
    """The conversation for a template with these abilities.

    Raises: `InvalidRequest` for images.
    """
    turns = [turn for index, message in enumerate(messages) for turn in turns_of(message, index, caps)]
    if not caps.later_systems:
        n_leading = next((at for at, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
        turns = [*merged(turns[:n_leading]), *systems_folded(turns[n_leading:])]
    if not caps.system:
        turns = systems_folded(turns)
    if not caps.repeats:
        turns = list(merged(turns))
    if caps.parts:
        for turn in turns:
            turn["content"] = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
    return turns


def turns_of(message: Message, index: int, caps: Caps) -> Iterator[Turn]:
    """The dicts of one message: one for each tool result in it, and one for the rest if there is any."""

    def told(text: str) -> Sourced:
        return Sourced(text, ((0, len(text), index),) if text else ())

    content: list[Sourced] = []
    calls: list[Turn] = []
    for part in message.parts:
        match part:
            case Text():
                content.append(told(part.text))
            case BadCall():
                content.append(told(part.raw))
            case ToolCall() if caps.calls:
                calls.append(call_turn(part, index, caps))
            case ToolCall():
                content.append(told(part.raw if part.raw is not None else spelled_call(part)))
            case ToolResult():
                text = told("".join(seen(inner) for inner in part.parts))
                if caps.tool_role:
                    call_id = told(short_id(part.call_id) if caps.short_ids else part.call_id)
                    yield {"role": "tool", "tool_call_id": call_id, "name": told(part.name), "content": text}
                else:
                    yield {"role": "user", "content": text}
            case Image():
                seen(part)
            case Reasoning():
                pass
    if content or calls or not any(isinstance(part, ToolResult) for part in message.parts):
        turn: Turn = {"role": message.role, "content": join(content)}
        if message.reasoning:
            turn["reasoning_content"] = told(message.reasoning)
        if calls:
            turn["tool_calls"] = calls
            turn["content"] = turn["content"] or caps.blank
        yield turn


def call_turn(call: ToolCall, index: int, caps: Caps) -> Turn:
    """The dict of one call."""
    text = sourced(call.arguments, index)
    arguments: Any = text
    if caps.arguments == "object":
        # History comes from clients: arguments that do not parse go through as the text they are.
        try:
            items = json.loads(call.arguments, strict=False)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, dict):
            arguments = Arguments(sourced(items, index), text)
    return {
        "type": "function",
        "id": sourced(short_id(call.id) if caps.short_ids else call.id, index),
        "function": {"name": sourced(call.name, index), "arguments": arguments},
    }


def tool_turns(tools: Sequence[ToolSpec]) -> list[Turn]:
    """The tool definitions as templates see them."""
    return [
        {
            "type": "function",
            "function": {
                "name": sourced(tool.name, TOOLS),
                "description": sourced(tool.description, TOOLS),
                "parameters": sourced(tool.parameters, TOOLS) or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def spelled_call(call: ToolCall) -> str:
    """The call as text, for templates that have no place for one."""
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'


def seen(part: Text | Image) -> str:
    """The text of a part. Raises: `InvalidRequest` for an image."""
    if isinstance(part, Image):
        raise InvalidRequest("this model cannot see images; send text only", field="messages")
    return part.text


def short_id(call_id: str) -> str:
    """Nine letters and digits that stand for the id, the same ones every time."""
    return call_id if len(call_id) == 9 and call_id.isalnum() else hashlib.sha256(call_id.encode()).hexdigest()[:9]


def systems_folded(turns: Iterable[Turn]) -> list[Turn]:
    """The turns without system messages: their text stands at the head of the next user message."""
    folded: list[Turn] = []
    waiting: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            waiting.append(turn["content"])
        elif turn["role"] == "user" and waiting:
            folded.append({**turn, "content": paragraphs([*waiting, turn["content"]])})
            waiting = []
        else:
            folded.append(turn)
    if waiting:
        folded.append({"role": "user", "content": paragraphs(waiting)})
    return folded


def merged(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns with neighbours of one role joined; tool results stay apart, each answers its own call."""
    last: Turn | None = None
    for turn in turns:
        if last is None or turn["role"] != last["role"] or turn["role"] == "tool":
            if last is not None:
                yield last
            last = turn
            continue
        both = {**last, **turn, "content": paragraphs([last["content"] or "", turn["content"] or ""])}
        if "tool_calls" in last and "tool_calls" in turn:
            both["tool_calls"] = last["tool_calls"] + turn["tool_calls"]
        last = both
    if last is not None:
        yield last


def paragraphs(texts: Iterable[str]) -> Sourced:
    """The texts that are not empty, a blank line between them."""
    return Sourced("\n\n").join([text for text in texts if text])
