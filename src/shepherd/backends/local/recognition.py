"""What the saved tokens of a conversation hold that its request does not have. Pure.

    request   S T S │ u1 │ a │ u2                    as the client sends it to a new process
    saved     S S S │ u1 │ a │ u2 (quotes) (S ─▶ T)
    found     S S S                                  the system prompt and the tools that are cached
                                 (quotes) (S ─▶ T)   blocks of ours, and the message of each

Texts are searched; whether they are right shows when the prompt that they make has the saved tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from shepherd.backends.local.kept_system import AGAIN, CHANGED, Head
from shepherd.backends.local.leaving import QUOTED
from shepherd.backends.local.quotes import CLOSING, with_quotes
from shepherd.core import Request, Text
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.messages import with_aside
from shepherd.dialects import Piece
from shepherd.dialects.base import TOOLS
from shepherd.dialects.render.conversation import REMINDER

NEAR = 100
"""Characters behind a difference before which a block begins that makes it."""
QUOTES = re.compile(f"{re.escape(QUOTED)}\n.*?{re.escape(CLOSING)}", re.DOTALL)
CHANGES = re.compile(f"\n\n{REMINDER[0]}\n(?:{re.escape(CHANGED)}|{re.escape(AGAIN)})\n.*?{REMINDER[1]}", re.DOTALL)


@dataclass(slots=True)
class Recognised:
    """A conversation, as far as it is recognised."""

    request: Request
    """With the system prompt and the tools that are cached."""
    reminders: dict[int, str] = field(default_factory=dict)
    """By index of the message at whose end they stand."""
    quotes: dict[int, str] = field(default_factory=dict)
    """By index of the message with which they stand."""

    def until(self, stop: int, *, quoted: bool = True) -> Request:
        """The request with what stands in its first messages."""
        messages = list(self.request.messages[:stop])
        for at, text in self.reminders.items():
            messages[at : at + 1] = [with_aside(message, text) for message in messages[at : at + 1]]
        for at, block in self.quotes.items() if quoted else ():
            messages[at : at + 1] = [with_quotes(message, block) for message in messages[at : at + 1]]
        return replace(self.request, messages=tuple(messages))


def find_head(pieces: Sequence[Piece], head: Head, saved: str) -> Head | None:
    """The head whose texts stand in `saved` in place of those of `head`, with which `pieces` begin; None where
    something else is different."""
    literals, holes = [""], list[int | tuple[int, bool]]()
    pending = [at for at, tool in enumerate(head.tools) if tool.description]
    for piece in pieces:
        if piece.origin is None:
            literals[-1] += piece.text
        elif piece.origin == TOOLS:
            rest = piece.text
            for at in pending.copy():
                text = head.tools[at].description
                spellings = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
                spelling = next((each for each in (*spellings, text) if each in rest), None)
                if spelling is not None:
                    before, _, rest = rest.partition(spelling)
                    literals[-1] += before
                    literals.append("")
                    holes.append((at, before.endswith('"') and rest.startswith('"')))
                    pending.remove(at)
            literals[-1] += rest
        elif piece.origin < len(head.system):
            literals.append("")
            holes.append(piece.origin)
        else:
            literals[-1] += piece.text
    at = saved.find(literals[0]) + len(literals[0])
    if at < len(literals[0]) or not holes or not saved.endswith(literals[-1]):
        return None
    system, tools = list(head.system), list(head.tools)
    for number, (hole, literal) in enumerate(zip(holes, literals[1:], strict=True), 1):
        end = saved.find(literal, at) if number < len(holes) else len(saved) - len(literal)
        if end < at:
            return None
        text, at = saved[at:end], end + len(literal)
        if isinstance(hole, int):
            if text.strip() != system[hole].text.strip():
                system[hole] = replace(system[hole], parts=(Text(text),))
        elif (described := _read(text) if hole[1] else text) is not None:
            tools[hole[0]] = replace(tools[hole[0]], description=described)
    return Head(tuple(system), tuple(tools))


def _read(text: str) -> str | None:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return None


def find_blocks(saved: str) -> Iterator[tuple[bool, str]]:
    """Blocks of ours with which the text behind a difference begins: whether it is one of quotes, and its text."""
    if (found := QUOTES.search(saved)) and found.start() < NEAR:
        yield True, f"{found.group()}\n\n"
    if (found := CHANGES.search(saved)) and found.start() < NEAR:
        yield False, found.group()
