"""A conversation in the shape that one template can take.

Messages become the OpenAI-shaped dicts that templates expect; every string carries its origin. What a template does not
take (`Capabilities`) is folded into the messages that it takes; nothing is left out. Folding looks back, never ahead: a
later message changes nothing before it, or every turn would lose the cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Literal, TypeGuard
from urllib.parse import urlsplit

from shepherd.core import Audio, BadCall, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.core.dataclasses import dataclass
from shepherd.dialects.base import TOOLS
from shepherd.dialects.parse.values import kinds_of
from shepherd.dialects.render.provenance import (
    Arguments,
    OriginStr,
    as_origin_str,
    join,
    name_of,
    standing,
    whole,
    with_origin,
)

Turn = dict[str, Any]

ThoughtKey = Literal["reasoning_content", "reasoning", "thinking", "thought", "part"]
"""Where a template looks for the thoughts of an answer; `part` is a part of its content."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template takes, as probing has shown."""

    system: bool = True
    later_systems: bool = True
    """Takes system messages behind the first message, too."""
    calls: bool = True
    tool_role: bool = True
    repeats: bool = True
    """Takes two messages of one role in a row."""
    answer_first: bool = True
    silent_answers: bool = True
    user_after_result: bool = True
    arguments: Literal["object", "text"] = "object"
    blank: str | None = ""
    """The content of an assistant message that holds calls only."""
    parallel: bool = True
    """Shows all calls of a message, not only the first."""
    text_hides_calls: bool = False
    """Shows no calls of a message that has a text, too."""
    thought_or_text: bool = False
    """Takes either a thought or a text beside a call, not both."""
    thought: ThoughtKey = "reasoning_content"
    short_ids: bool = False
    """Takes call ids of nine letters and digits only."""
    parts: bool = False
    """Wants content as a list of parts."""
    tools: Literal["none", "undefined", "empty"] = "none"
    """How a request without tools is passed."""
    shows_tools: bool = True
    described: bool = False
    """Wants a description of every parameter of a tool."""
    switch: bool = False
    """Renders something else when thinking is off."""
    efforts: tuple[str, ...] = ("low", "medium", "high")
    """Levels of reasoning that it does not refuse."""
    images: bool = False
    """Not probed: the model sees images. They stand among the text, in every template; what a model has around them
    comes from its projector."""
    audio: bool = False
    """Not probed: the model hears recordings, which stand among the text as images do."""


def shaped(messages: Sequence[Message], caps: Capabilities, preface: str = "") -> list[Turn]:
    """The conversation for a template with these capabilities. `preface` ends its first system message."""
    turns = [turn for index, message in enumerate(messages) for turn in turns_of(message, index, caps)]
    if preface:
        text = with_origin(preface, TOOLS)
        if turns and turns[0]["role"] == "system":
            turns[0]["content"] = paragraphs([turns[0]["content"], text])
        else:
            turns.insert(0, {"role": "system", "content": text})
    if not caps.later_systems:
        n_leading = next((at for at, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
        turns = [*merged(turns[:n_leading]), *systems_folded(turns[n_leading:], later=True)]
    if not caps.system:
        turns = systems_folded(turns)
    if not caps.silent_answers:
        turns = [turn for turn in turns if turn["role"] != "assistant" or turn["content"] or "tool_calls" in turn]
    turns = [part for turn in turns for part in divided(turn, caps)]
    if not caps.parallel:
        turns = list(one_by_one(turns, caps.blank))
    if not caps.user_after_result:
        turns = users_in_results(turns)
    if not caps.repeats:
        turns = list(merged(turns))
    if not caps.answer_first:
        first = next((at for at, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
        if first < len(turns) and turns[first]["role"] == "assistant":
            turns.insert(first, {"role": "user", "content": OriginStr("")})
    return [finished(turn, caps) for turn in turns]


def turns_of(message: Message, index: int, caps: Capabilities) -> Iterator[Turn]:
    """The dicts of one message: one for each tool result in it, and one for the rest if there is any."""

    content: list[OriginStr] = []
    calls: list[Turn] = []
    for part in message.parts:
        match part:
            case Text() | Image() | Audio():
                content.append(shown(part, index, content[-1] if content else "", caps))
            case BadCall():
                content.append(with_origin(part.raw, index))
            case ToolCall() if caps.calls:
                calls.append(call_turn(part, index, caps))
            case ToolCall():
                content.append(with_origin(part.raw if part.raw is not None else spelled_call(part), index))
            case ToolResult():
                text = OriginStr("")
                for inner in part.parts:
                    text += shown(inner, index, text, caps)
                if caps.tool_role:
                    call_id = with_origin(short_id(part.call_id) if caps.short_ids else part.call_id, index)
                    name = with_origin(part.name, index)
                    yield {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}
                else:
                    yield {"role": "user", "content": text}
            case Reasoning():
                pass
    if content or calls or not any(isinstance(part, ToolResult) for part in message.parts):
        turn: Turn = {"role": message.role, "content": join(content)}
        if message.reasoning:
            turn["reasoning_content"] = with_origin(message.reasoning, index)
        if calls:
            turn["tool_calls"] = calls
            turn["content"] = turn["content"] or caps.blank
        yield turn


def call_turn(call: ToolCall, index: int, caps: Capabilities) -> Turn:
    text = with_origin(call.arguments, index)
    arguments: Any = text
    if caps.arguments == "object":
        # History comes from clients: arguments that do not parse stay text.
        try:
            items = json.loads(call.arguments, strict=False)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, dict):
            arguments = Arguments(with_origin(items, index), text)
    return {
        "type": "function",
        "id": with_origin(short_id(call.id) if caps.short_ids else call.id, index),
        "function": {"name": with_origin(call.name, index), "arguments": arguments},
    }


def tool_turns(tools: Sequence[ToolSpec], *, described: bool = False) -> list[Turn]:
    """The tool definitions as templates see them; `described`: every parameter has a description, even an empty one."""
    return [
        {
            "type": "function",
            "function": {
                "name": with_origin(tool.name, TOOLS),
                "description": with_origin(tool.description, TOOLS),
                "parameters": with_origin(described_in(tool.parameters) if described else tool.parameters, TOOLS)
                or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def described_in(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a tool's arguments with the keywords that such templates read, empty where missing."""
    found = parameters.get("properties")
    if not isinstance(found, Mapping):
        return parameters
    lacks = {"description": "", "additionalProperties": {}}
    filled = {key: {**lacks, **each} if isinstance(each, Mapping) else each for key, each in found.items()}
    return {**parameters, "properties": filled}


def simplified(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments with one type for each property and no combinations."""
    found = parameters.get("properties")
    properties = {key: plainly(each, parameters) for key, each in found.items()} if isinstance(found, Mapping) else {}
    needed = [key for key in parameters.get("required") or () if key in properties]
    return {"type": "object", "properties": properties, "required": needed}


PLAINEST = ("string", "number", "integer", "boolean", "array", "object")
"""Of several types a template gets the first of these that is allowed."""


def plainly(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A property's schema in the words that every template knows: type, description, enum, items, properties."""
    schema = schema if isinstance(schema, Mapping) else {}
    kinds = kinds_of(schema, root) - {"null"}
    own = schema.get("type")
    kind = own if isinstance(own, str) else next((kind for kind in PLAINEST if kind in kinds), "string")
    plain: dict[str, Any] = {"type": kind, "description": str(schema.get("description") or "")}
    if isinstance(schema.get("enum"), list) and kind == "string":
        plain["enum"] = [choice for choice in schema["enum"] if isinstance(choice, str)]
    if kind == "array":
        plain["items"] = plainly(schema.get("items"), root)
    if kind == "object" and isinstance(schema.get("properties"), Mapping):
        plain |= simplified({**schema, "$defs": root.get("$defs", {})})
    return plain


def spelled_call(call: ToolCall) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'


def shown(part: Text | Image | Audio, index: int, before: str, caps: Capabilities) -> OriginStr:
    """A part of message `index` behind the text `before`: an image, or a recording, as itself if the model takes it."""
    if is_taken(part, caps):
        return standing(part, index)
    return as_origin_str(with_origin(as_text(part, before), index))


def is_taken(part: Part, caps: Capabilities) -> TypeGuard[Image | Audio]:
    """Whether it is an image that the model sees, or a recording that it hears; of others there is a note."""
    match part:
        case Image():
            return caps.images and part.data is not None and not part.left_out
        case Audio():
            return caps.audio and not part.left_out
        case _:
            return False


def media_by_name(messages: Sequence[Message], caps: Capabilities) -> dict[str, bytes]:
    """The files of what a model sees and hears, by what stands for each in a rendered prompt."""
    parts = (part for message in messages for part in message.parts)
    inner = (one for part in parts for one in (part.parts if isinstance(part, ToolResult) else (part,)))
    return {name_of(part): part.data or b"" for part in inner if is_taken(part, caps)}


def as_text(part: Text | Image | Audio, before: str) -> str:
    """A part for a model that reads text only, behind the text `before`: images and recordings are notes, each on a
    line of its own."""
    text = part.text if isinstance(part, Text) else noted(part)
    parts_lines = not isinstance(part, Text) or before.endswith(NOTE_ENDS)
    return "\n" + text if parts_lines and before and not before.endswith("\n") and not text.startswith("\n") else text


UNSEEN, NOT_SHOWN = "; this model cannot see images]", "; not shown]"
UNHEARD, NOT_PLAYED = "; this model cannot hear]", "; not played]"
NOTE_ENDS = (UNSEEN, NOT_SHOWN, UNHEARD, NOT_PLAYED)


def noted(part: Image | Audio) -> str:
    """The note in the place of an image or a recording. It names only the host of a link: the rest may hold a key, or
    be very long."""
    kind, unable, not_given = (
        ("image", UNSEEN, NOT_SHOWN) if isinstance(part, Image) else ("audio", UNHEARD, NOT_PLAYED)
    )
    end = f"; {part.left_out}{not_given}" if part.left_out else unable
    if part.data is not None:
        size = len(part.data)
        shown = f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"
        return f"[{kind}: {part.media_type[:80] or 'of unknown type'}, {shown}{end}"
    try:
        host = urlsplit(part.url or "").hostname
    except ValueError:
        host = None
    return f"[image: from {host[:80] if host else 'a link'}{end}"


def short_id(call_id: str) -> str:
    """Nine letters and digits that stand for the id, the same ones every time."""
    return call_id if len(call_id) == 9 and call_id.isalnum() else hashlib.sha256(call_id.encode()).hexdigest()[:9]


def systems_late(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with all system messages in the last of the user's."""
    systems = [turn for turn in turns if turn["role"] == "system"]
    others = [turn for turn in turns if turn["role"] != "system"]
    last = max((at for at, turn in enumerate(others) if turn["role"] == "user"), default=len(others))
    return systems_folded([*others[:last], *systems, *others[last:]])


def finished(turn: Turn, caps: Capabilities) -> Turn:
    if "reasoning_content" in turn and caps.thought != "reasoning_content":
        thought = turn.pop("reasoning_content")
        if caps.thought == "part":
            text = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
            return {**turn, "content": [{"type": "thinking", "thinking": thought}, *text]}
        turn[caps.thought] = thought
    if caps.parts:
        turn["content"] = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
    return turn


def divided(turn: Turn, caps: Capabilities) -> Iterator[Turn]:
    """The turn of an answer: in two where its text would hide its calls, with its text in its thought where the
    template takes only one of them, else as it is."""
    speaks = "tool_calls" in turn and turn["content"]
    if speaks and caps.text_hides_calls:
        yield {key: value for key, value in turn.items() if key != "tool_calls"}
        yield {"role": "assistant", "content": caps.blank, "tool_calls": turn["tool_calls"]}
    elif speaks and caps.thought_or_text and "reasoning_content" in turn:
        thought = paragraphs([turn["reasoning_content"], turn["content"]])
        yield {**turn, "reasoning_content": thought, "content": caps.blank}
    else:
        yield turn


def one_by_one(turns: Sequence[Turn], blank: str | None) -> Iterator[Turn]:
    """The turns with one call in each, its result right behind it; `blank` is the content beside a further call."""
    at = 0
    while at < len(turns):
        turn, at = turns[at], at + 1
        calls = turn.get("tool_calls", ())
        if len(calls) < 2:
            yield turn
            continue
        results = list(takewhile(lambda turn: turn["role"] == "tool", turns[at:]))
        at += len(results)
        waiting: dict[str, list[Turn]] = {}
        for result in results:
            waiting.setdefault(result["tool_call_id"], []).append(result)
        for call in calls:
            yield {**turn, "tool_calls": [call]}
            turn = {"role": "assistant", "content": blank}
            yield from waiting.pop(call["id"], ())
        yield from (result for result in results if result["tool_call_id"] in waiting)


def users_in_results(turns: Iterable[Turn]) -> list[Turn]:
    """The turns with a user's message right behind a result moved to the end of that result."""
    made: list[tuple[Turn, list[str]]] = []
    for turn in turns:
        if turn["role"] == "user" and made and made[-1][0]["role"] == "tool":
            made[-1][1].append(turn["content"])
        else:
            made.append((turn, []))
    return [{**turn, "content": paragraphs([turn["content"], *more])} if more else turn for turn, more in made]


REMINDER = ("<system-reminder>", "</system-reminder>")
"""The tags that models know around an instruction in a message of another role."""


def systems_folded(turns: Iterable[Turn], *, later: bool = False) -> list[Turn]:
    """The turns without system messages: their text moves to the head of the user message behind them, or becomes one.

    `later`: they come in the middle of a conversation and become reminders at their place: at the end of a user message
    or a result before them, else of a result behind them, for no message may stand between a call and its result.
    """
    folded: list[tuple[Turn, list[str]]] = []
    """Turns, and the texts that replace the content of each; none where it stays."""
    waiting: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            text = reminder(turn["content"]) if later else turn["content"]
            if later and not text:
                continue
            if later and folded and not waiting and folded[-1][0]["role"] in {"user", "tool"}:
                last, texts = folded[-1]
                texts += [text] if texts else [last["content"], text]
            else:
                waiting.append(text)
            continue
        if not waiting:
            folded.append((turn, []))
        elif turn["role"] == "user":
            folded.append((turn, [*waiting, turn["content"]]))
        elif turn["role"] == "tool":
            folded.append((turn, [turn["content"], *waiting]))
        else:
            folded += [({"role": "user"}, waiting), (turn, [])]
        waiting = []
    if waiting:
        folded.append(({"role": "user"}, waiting))
    return [{**turn, "content": paragraphs(texts)} if texts else turn for turn, texts in folded]


def reminder(text: str) -> OriginStr:
    """The text as an instruction in a message of another role; one that has the tags already stays as it is.

    The tags count as the message's text, as if its client had written them: they show in the prompt where it ends.
    """
    if not text or text.lstrip().startswith(REMINDER[0]):
        return as_origin_str(text)
    return join((whole(f"{REMINDER[0]}\n", text), text, whole(f"\n{REMINDER[1]}", text)))


def merged(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns with neighbours of one role joined; tool results stay apart, for each answers its own call."""
    for role, run in groupby(turns, lambda turn: turn["role"]):
        alike = list(run)
        if role == "tool" or len(alike) == 1:
            yield from alike
            continue
        both = {key: value for turn in alike for key, value in turn.items()}
        both["content"] = paragraphs(turn["content"] or "" for turn in alike)
        if "tool_calls" in both:
            both["tool_calls"] = [call for turn in alike for call in turn.get("tool_calls", ())]
        if "reasoning_content" in both:
            both["reasoning_content"] = paragraphs(turn.get("reasoning_content", "") for turn in alike)
        yield both


def paragraphs(texts: Iterable[str]) -> OriginStr:
    return OriginStr("\n\n").join([text for text in texts if text])
