"""Which tokens of a prompt are which message, and which messages leave the context together or never. Pure.

    system │ user  assistant │ user  call  result  assistant │ user │ call  result │ call  result
    kept   │ a turn          │ a turn                        │ kept │ an exchange  │ the open one: kept

Old messages leave by turns: a user's message and everything up to the next one. In the current turn answered calls may
leave, too, each with its results; the user's message and the newest exchange stay (C30, K18). Later system messages are
instructions like the first: they stay up to a limit (`LATER_SYSTEMS`). Beyond it the oldest leave with their turns, or
a client that adds one to every turn would fill the context.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from shepherd.backends.local.leaving import Mark
from shepherd.core import BadCall, Message, ToolCall, ToolResult
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.messages import leading_systems
from shepherd.dialects import Segment
from shepherd.engine.base import Span

LATER_SYSTEMS = 8
"""System messages behind the first user message keep one part in this many of the context, together."""


@dataclass(frozen=True, slots=True)
class Placement:
    """When one message may leave."""

    turn: int
    """The index of the first of the messages that leave together."""
    keep: bool


def placements(messages: Sequence[Message], *, anchored: Collection[int] = ()) -> list[Placement]:
    """When each message may leave. `anchored` messages hold more than their own text, such as the tools, and stay. The
    last answer of their turn stays with them."""
    n_leading = leading_systems(messages)
    made = [Placement(0, keep=True)] * n_leading
    parted = [*parts_pairs(messages), False]
    for start, stop in pairwise([*turn_starts(messages, n_leading, parted), len(messages)]):
        is_current = stop == len(messages)
        if not is_current and not any(at in anchored for at in range(start, stop)):
            made += [Placement(start, keep=False)] * (stop - start)
            continue
        groups = list(pairwise([start, *exchange_starts(messages, start, stop, parted), stop]))
        kept = {0, len(groups) - 1}
        newest = (part for message in messages[slice(*groups[-1])] for part in message.parts)
        if is_current and not any(isinstance(part, ToolCall | BadCall) for part in newest):
            kept.add(len(groups) - 2)  # the last message is the beginning of the answer to it
        for number, (first, end) in enumerate(groups):
            made += [Placement(first, keep=number in kept)] * (end - first)
    return made


def turn_starts(messages: Sequence[Message], n_leading: int, parted: Sequence[bool]) -> list[int]:
    """Where each turn begins: at the first of the user's messages behind an answer, and the system's beside them."""
    starts = [n_leading] if n_leading < len(messages) else []
    at = n_leading
    while at < len(messages):
        end = at
        while end < len(messages) and (messages[end].is_input or messages[end].role == "system"):
            end += 1
        if at > n_leading and not parted[at] and any(message.is_input for message in messages[at:end]):
            starts.append(at)
        at = max(end, at + 1)
    return starts


def exchange_starts(messages: Sequence[Message], start: int, stop: int, parted: Sequence[bool]) -> list[int]:
    """Where each answer of a turn begins, with the results of its calls; several answers in a row are one."""
    return [
        at
        for at in range(start + 1, stop)
        if messages[at].role == "assistant" and messages[at - 1].role != "assistant" and not parted[at]
    ]


def parts_pairs(messages: Sequence[Message]) -> list[bool]:
    """For each message, whether a cut before it would part a call from its result."""
    steps = [0] * (len(messages) + 1)
    called: dict[str, int] = {}
    for at, message in enumerate(messages):
        for part in message.parts:
            match part:
                case ToolCall(id=call_id) | BadCall(id=call_id):
                    called[call_id] = at
                case ToolResult(call_id=call_id) if call_id in called:
                    steps[called[call_id] + 1] += 1
                    steps[at + 1] -= 1
    return [depth > 0 for depth in accumulate(steps[:-1])]


# -- tokens ----------------------------------------------------------------------------------------------------------


def cuts(segments: Sequence[Segment]) -> list[int]:
    """The characters where each segment begins and ends."""
    return [at for segment in segments for at in (segment.start, segment.stop)]


def spans(
    messages: Sequence[Message],
    segments: Sequence[Segment],
    edges: Sequence[int],
    *,
    n_ctx: int,
    marks: Sequence[Mark] | None = None,
) -> tuple[Span, ...]:
    """The messages as spans of tokens; `edges` are the token indexes of `cuts(segments)`, `marks` what
    holds for each of the segments (`leaving.divided`)."""
    n_leading = leading_systems(messages)
    anchored = [
        segment.message
        for segment in segments
        if segment.message >= n_leading and (segment.tools or any(other < n_leading for other in segment.others))
    ]
    where = placements(messages, anchored=anchored)
    made: list[Span] = []
    lowest = list(accumulate((segment.message for segment in reversed(segments)), min))[::-1]
    turn = 0
    marks = marks or [Mark()] * len(segments)
    for segment, mark, low, start, stop in zip(segments, marks, lowest, edges[::2], edges[1::2], strict=True):
        place = where[segment.message]
        # Some templates write all system messages first: then each of them is a leading one.
        early = low < segment.message and messages[segment.message].role == "system"
        turn = turn if early else max(turn, place.turn)
        keep = early or place.keep or any(where[other].keep for other in segment.others)
        keep = keep and not (mark.cleared or mark.early > 0)
        role = messages[segment.message].role
        made.append(Span(start, max(start, stop), segment.message, turn, keep, role, mark.early, mark.cleared))
    room = n_ctx // LATER_SYSTEMS
    for at, span in reversed([*enumerate(made)]):  # the newest system messages stay, as far as there is room for them
        if span.label != "system" or span.keep or span.cleared or segments[at].others:
            continue
        room -= span.stop - span.start
        if room < 0:
            break
        made[at] = replace(span, keep=True)
    return tuple(made)


def protected(messages: Sequence[Message], spans: Sequence[Span]) -> tuple[int, int]:
    """Tokens before the conversation (system prompt and tools), and tokens of the last user message."""
    behind = [span for span in spans if span.label != "system"]
    users = [span for span in behind if messages[span.message].is_input]
    n_system = behind[0].start if behind else max((span.stop for span in spans), default=0)
    return n_system, users[-1].stop - users[-1].start if users else 0
