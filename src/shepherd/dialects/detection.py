"""Finds the dialect of a model, and parses a whole output at once.

The template decides, never the name of a file: a renamed model still writes as it was trained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from shepherd.core import Message, Text, ToolSpec, fold
from shepherd.core.events import Event, Finished, Started
from shepherd.dialects.base import Keep
from shepherd.dialects.families import DIALECTS, PLAIN
from shepherd.dialects.parse.tags import TagDialect


def detect(
    template: str, more: Sequence[TagDialect] = (), derive: Callable[[str], TagDialect | None] = lambda template: None
) -> TagDialect:
    """The dialect that a chat template speaks, fitted to it; plain when it shows no protocol.

    `more` are dialects of other packages; they come first. `derive` is asked where no family signs the template.
    """
    spoken = next((dialect for dialect in (*more, *DIALECTS) if dialect.signs(template)), None)
    return (spoken or derive(template) or PLAIN).fitted(template)


def get(name: str) -> TagDialect:
    """The dialect of this name, fitted to no template. Raises: `KeyError`."""
    return {dialect.name: dialect for dialect in (*DIALECTS, PLAIN)}[name]


def names() -> tuple[str, ...]:
    return tuple(sorted(dialect.name for dialect in (*DIALECTS, PLAIN)))


TAG = r"<[^<>\s]*>|\[[^\[\]\s]*\]|\]~b\]"
TURN_HEADER = re.compile(
    rf"""\s* (?:{TAG})*
    (?: (?:ai\ name=)? (?:assistant|model|ai) (?: <\|[^<>\s]*\|> | </role> | : | (?=\n) | \Z )
    |   <[^<>\s]* (?:assistant|bot) [^<>\s]*> )
    [ \n]*""",
    re.VERBOSE | re.IGNORECASE,
)
"""The head of an assistant turn, as any family writes it; a tag alone, such as `<think>`, is none."""


def parse(
    raw: str, *, dialect: TagDialect | str, tools: Sequence[ToolSpec] = (), prefill: str = "", reasoning: Keep = "split"
) -> Message:
    """The message of a whole output, its prefill included. Never raises.

    `prefill` is the beginning of the assistant's turn that the prompt holds; the turn's header may stand before it.
    """
    spoken = get(dialect) if isinstance(dialect, str) else dialect
    parser = spoken.parser(tools=tools, reasoning=reasoning)
    events: list[Event] = [Started("parse")]
    events += parser.feed(without_header(prefill, spoken))
    events += parser.feed(raw)
    events += parser.close()
    message = Message("assistant", fold([*events, Finished("end")]).message.parts)
    return without_open_tag(message, prefill, spoken) if reasoning == "keep" else message


def without_open_tag(message: Message, prefill: str, dialect: TagDialect) -> Message:
    """The message without the tag of a thought that the prefill opens and nothing closes."""
    for opener, closer in dialect.thoughts:
        if prefill.rstrip().endswith(opener) and closer not in message.text:
            first = next(iter(message.parts), None)
            if isinstance(first, Text) and first.text.startswith(opener):
                rest = first.text.removeprefix(opener)
                return replace(message, parts=(*((Text(rest),) if rest else ()), *message.parts[1:]))
    return message


def without_header(prefill: str, dialect: TagDialect) -> str:
    """The prefill behind the header of the assistant's turn, or from an opener in that header on."""
    header = TURN_HEADER.match(prefill)
    if header is None:
        return prefill
    openers = (at for opener in dialect.markup.openers if (at := header[0].find(opener)) >= 0)
    return prefill[min(openers, default=header.end()) :]
