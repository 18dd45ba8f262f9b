"""Whether a dialect reads back what a template prints, and what it would write itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count

from shepherd.core import CallEnded, Event, Message, ReasoningDelta, TextDelta, ToolCall, ToolSpec
from shepherd.dialects.derive.answers import CASES, IDS, TEXT, TOOLS, Answers
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import Closer, Json, Maybe, OneOf, Part, Pattern, Until
from shepherd.dialects.parse.tags import TagDialect


def proven(dialect: TagDialect, answers: Answers) -> bool:
    """Whether the dialect reads every printed answer back, and every call that it would write itself."""
    if not all(reads(dialect, CASES[name], text) for name, text in answers.texts.items()):
        return False
    spelt = [block for block in (*dialect.markup.blocks, *dialect.markup.declared(TOOLS)) if block.spelling]
    return bool(spelt) and all(
        reads(dialect, CASES[name], as_written(spelt[0], TOOLS[0], json.loads(call.arguments)))
        for name in ("call", "hard 0", "hard 1")
        for call in CASES[name].calls
    )


def reads(dialect: TagDialect, message: Message, text: str) -> bool:
    """Whether the dialect finds the message in the text, and the same for every cutting."""
    events = heard(dialect, [text])
    found = [event.call for event in events if isinstance(event, CallEnded)]
    calls = [(one.name, json.loads(one.arguments)) for one in found if isinstance(one, ToolCall)]
    said = "".join(event.text for event in events if isinstance(event, TextDelta)).strip()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta)).strip()
    return (
        len(calls) == len(found)
        and calls == [(one.name, json.loads(one.arguments)) for one in message.calls]
        # A template may leave out either, or leave a thought open.
        and {said, thought} <= {"", message.text, message.reasoning}
        and (TEXT not in text or TEXT in (said, thought))
        and heard(dialect, list(text)) == events
    )


def heard(dialect: TagDialect, chunks: Sequence[str]) -> list[Event]:
    ids = map(str, count())
    parser = dialect.parser(tools=TOOLS, ids=lambda: next(ids))
    joined: list[Event] = []
    for event in (*(event for chunk in chunks for event in parser.feed(chunk)), *parser.close()):
        match joined[-1:], event:
            case [TextDelta(last)], TextDelta(text):
                joined[-1] = TextDelta(last + text)
            case [ReasoningDelta(last)], ReasoningDelta(text):
                joined[-1] = ReasoningDelta(last + text)
            case _:
                joined.append(event)
    return joined


def as_written(block: Block, tool: ToolSpec, arguments: Mapping[str, object]) -> str:
    """A call as constrained output writes it in this block; all parameters are required."""
    spelling = block.spelling
    assert spelling is not None
    given = iter(arguments.values())

    def written(part: Part) -> str:
        match part:
            case str():
                return part
            case Json(schema):
                return json.dumps(arguments if schema == tool.parameters else next(given))
            case Until(marker, ends):
                return f"{next(given)}{marker}{''.join(map(written, ends[0] if ends else ()))}"
            case Closer():
                return ""
            case Pattern():
                return IDS[0]
            case Maybe(parts):
                return "".join(map(written, parts))
            case OneOf(options):
                return "".join(map(written, options[0]))

    inside = "".join(map(written, spelling.call(tool)))
    return f"{block.opener}{spelling.before}{inside}{spelling.after}{''.join(block.closers[:1])}"
