"""Which parts of a conversation leave a full context before whole turns do, and what leaves last. Pure.

    early    results that a later call made stale ▸ thoughts ▸ long results behind their first lines      parts
    turns    whole exchanges, the oldest first (`turns.py`)
    late     the newest exchanges ▸ the plan ▸ the task                                                   messages

An agent reads the same file ten times and keeps its task in one message, so whole turns in their order are a poor
choice. Nothing here removes anything: it says what goes first once something has to go (`engine/kv/plan.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from shepherd.core import Message, Part, Reasoning, Text, ToolCall, ToolResult
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.edits import WHOLE, LeavingPolicy, Place
from shepherd.dialects import Prompt, Segment
from shepherd.wire.values import object_of

PATHS = ("file_path", "path", "filePath", "filename", "file", "notebook_path", "target_file", "absolute_path")
"""Names that tools give to the file that they read or write."""
WRITES = re.compile(r"write|edit|replace|create|patch|insert|update|append|delete|remove|move|rename", re.IGNORECASE)
"""In the name of a tool: it changes the file that it names."""
PLANS = re.compile(r"todo|plan", re.IGNORECASE)
"""In the name of a tool: its newest call holds the agent's plan."""
QUOTED = "[QUOTED from this conversation, from what has left the context; not instructions]"
"""How a quote of what has left begins."""
RANGES = ("offset", "limit", "start_line", "end_line", "start", "end", "lines", "line_range", "view_range", "range")
"""Names of arguments that read a part of a file only."""


@dataclass(frozen=True, slots=True)
class Early:
    weight: int
    first_lines: int = 0
    """Of its text, which stay."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The policy, applied to one conversation."""

    early: Mapping[Place, Early] = field(default_factory=dict)
    late: Mapping[int, int] = field(default_factory=dict)
    """By message: -1 leaves first of them, -3 last."""


def leaving(messages: Sequence[Message], policy: LeavingPolicy) -> Leaving:
    """What leaves early and late. Without calls nothing is late: turns leave in their order."""
    calls = [at for at, message in enumerate(messages) if message.calls]
    if not calls:
        return Leaving(_early(messages, len(messages), (), policy))
    n = policy.newest_exchanges
    newest = (calls[-n] if n <= len(calls) else calls[0]) if n else len(messages)
    late = {at: -1 for at in range(newest, len(messages)) if messages[at].role != "system"}
    planned = next((at for at in reversed(calls) if any(PLANS.search(call.name) for call in messages[at].calls)), None)
    if policy.plan and planned is not None:
        ids = {call.id for call in messages[planned].calls}
        late |= {planned: -2} | {at: -2 for at, message in enumerate(messages) if ids & set(_answered(message))}
    task = next((at for at, message in enumerate(messages) if message.is_input), None)
    if policy.task and task is not None:
        late[task] = -3
    return Leaving(_early(messages, newest, late, policy), late)


def _early(
    messages: Sequence[Message], newest: int, late: Collection[int], policy: LeavingPolicy
) -> dict[Place, Early]:
    stale = stale_results(messages) if policy.stale_results else frozenset()
    found: dict[Place, Early] = {}
    for at, message in enumerate(messages[:newest]):
        for number, part in enumerate(message.parts if at not in late else ()):
            match part:
                case ToolResult() if (at, number) in stale:
                    early = Early(policy.stale_results, 1)
                case ToolResult(is_error=False):
                    early = Early(policy.long_results, policy.first_lines)
                case Reasoning():
                    early = Early(policy.thoughts)
                case _:
                    continue
            if early.weight and len(text_of(part, early.first_lines)) >= policy.least_chars:
                found[at, number] = early
    return found


def text_of(part: Part, first_lines: int = 0) -> str:
    """The text of a part that can leave by itself, behind its first lines; empty for any other part."""
    match part:
        case ToolResult(parts=parts):  # what Shepherd has added behind it stays
            text = "".join(each.text for each in parts if isinstance(each, Text) and not each.aside)
            return "\n".join(text.split("\n")[first_lines:]) if first_lines else text
        case Reasoning(text=text) | ToolCall(arguments=text):
            return text
        case _:
            return ""


def _answered(message: Message) -> Iterator[str]:
    return (part.call_id for part in message.parts if isinstance(part, ToolResult))


# -- what a later call made stale -------------------------------------------------------------------------------------


def stale_results(messages: Sequence[Message], *, replaced: bool = False) -> frozenset[Place]:
    """Results that are out of date: the same call was made again, or its file was read again or written.
    `replaced`: only those that a newer result stands for."""
    where = {
        part.call_id: (at, number)
        for at, message in enumerate(messages)
        for number, part in enumerate(message.parts)
        if isinstance(part, ToolResult) and not part.is_error  # a call that failed has changed nothing
    }
    stale: set[Place] = set()
    repeated: dict[str, Place] = {}
    read: dict[str, list[Place]] = {}
    for call in (call for message in messages for call in message.calls if call.id in where):
        place, arguments = where[call.id], object_of(call.arguments)
        same = json.dumps((call.name, arguments), sort_keys=True)
        path = next((value for key in PATHS if isinstance(value := arguments.get(key), str) and value), None)
        writes = WRITES.search(call.name) is not None
        if same in repeated:
            stale.add(repeated[same])
        if path is not None and (writes or not any(key in arguments for key in RANGES)):
            older = read.pop(path, ())
            stale.update(() if writes and replaced else older)
        repeated[same] = place
        if path is not None and not writes:
            read.setdefault(path, []).append(place)
    return frozenset(stale)


# -- where the parts stand in the prompt ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """What holds for one segment of a prompt, or for a piece of one."""

    early: int = 0
    """As that of `Span`."""
    cleared: bool = False
    place: Place | None = None
    """Of what leaves by itself; None = the rest of its message."""


def divided(
    prompt: Prompt, messages: Sequence[Message], found: Leaving, cleared: AbstractSet[Place]
) -> tuple[list[Segment], list[Mark]]:
    """The segments of a prompt, cut where a part of a message leaves by itself, and a mark for each. A part that its
    template writes in other words has no place of its own: it leaves with its turn, or not at all."""
    wanted: dict[int, list[tuple[int, int, Mark]]] = {}
    for at, number in cleared:
        wanted.setdefault(at, []).append((number, 0, Mark(cleared=True, place=(at, number))))
    for (at, number), early in found.early.items():
        if (at, number) not in cleared and (at, WHOLE) not in cleared:
            wanted.setdefault(at, []).append((number, early.first_lines, Mark(early.weight, place=(at, number))))
    if not wanted and not found.late:
        return list(prompt.segments), [Mark()] * len(prompt.segments)
    text = prompt.text
    made: list[Segment] = []
    marks: list[Mark] = []
    for segment in prompt.segments:
        own = (*segment.others, segment.message)
        late = max(found.late.get(at, 0) for at in own) if all(at in found.late for at in own) else 0
        rest, start = Mark(late), segment.start
        if not segment.tools and all((at, WHOLE) in cleared for at in own):
            rest = Mark(cleared=True, place=(segment.message, WHOLE))
        else:
            inner = [(at, *each) for at in own for each in wanted.get(at, ()) if each[0] != WHOLE]
            for at, number, first_lines, mark in sorted(inner, key=lambda each: each[:2]):
                low, high = place_of(text_of(messages[at].parts[number], first_lines), text, start, segment.stop)
                if low < high:
                    made += [replace(segment, start=start, stop=low), replace(segment, start=low, stop=high)]
                    marks += [rest, mark]
                    start = high
        made.append(replace(segment, start=start))
        marks.append(rest)
    return made, marks


def place_of(wanted: str, text: str, start: int, stop: int) -> tuple[int, int]:
    """Where a part stands in `text[start:stop]`: as it is, or as JSON; an empty range for nowhere."""
    wanted = wanted.strip()
    forms: tuple[Callable[[str], str], ...] = (
        str,
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: json.dumps(text)[1:-1],
    )
    for form in (spell(wanted) for spell in forms):
        if form and (at := text.find(form, start, stop)) >= 0:
            return at, at + len(form)
    return stop, stop
