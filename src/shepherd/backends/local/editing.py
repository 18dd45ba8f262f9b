"""What a client's edits clear from a prompt whose tokens are known. Pure.

    candidates ─ compile ─▶ their tokens ─ decide ─▶ Edited: what is cleared now, and what each edit has done

Compaction leaves out whole turns, the oldest first, until a share of its trigger is left; what leaves late
(`leaving.py`) stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from shepherd.core import InvalidRequest, Message, Reasoning, ToolCall, ToolResult
from shepherd.core.edits import WHOLE, AppliedEdit, Edit, Edited, Place
from shepherd.engine.base import Span

TRIGGER_SHARE = {"results": 0.5, "thoughts": 0.0, "compact": 0.75}
"""Of the window: the size of a prompt on which an edit without a trigger acts."""
KEPT_SHARE = {True: 0.25, False: 0.5}
"""Of the trigger, what a compaction leaves; of the prompt, where it was asked for now (True)."""

AGAIN_SHARE = 0.5
"""Of the trigger, what the next compaction frees at least: where what stays is longer than the trigger, every request
would be compacted. It counts while the window has room."""


def check_triggers(edits: Sequence[Edit], n_window: int) -> None:
    """Raises: `InvalidRequest` for a compaction that would never come."""
    for edit in edits:
        if edit.kind == "compact" and not edit.is_capped and (edit.trigger_tokens or 0) > n_window:
            raise InvalidRequest(
                f"context_management compacts at {edit.trigger_tokens} tokens, and the window has {n_window}; name at "
                "most that, or leave the threshold out",
                field="context_management",
            )


def candidates(messages: Sequence[Message], edits: Sequence[Edit]) -> frozenset[Place]:
    """All parts that any of the edits could clear."""
    kinds = {edit.kind for edit in edits}
    wants_inputs = any(edit.inputs for edit in edits)
    return frozenset(
        (at, number)
        for at, message in enumerate(messages)
        for number, part in enumerate(message.parts)
        if ("results" in kinds and isinstance(part, ToolResult))
        or ("thoughts" in kinds and isinstance(part, Reasoning))
        or (wants_inputs and isinstance(part, ToolCall))
    )


def decide(
    edits: Sequence[Edit],
    messages: Sequence[Message],
    spans: Sequence[Span],
    sizes: Mapping[Place, int],
    cleared: AbstractSet[Place],
    *,
    n_tokens: int,
    n_window: int,
) -> Edited:
    """What is cleared of a prompt of `n_tokens`, in which all candidates have been given their own spans. `sizes`: the
    tokens of each candidate, and of what is in `cleared` before."""
    gone = set(cleared)
    n_before = n = n_tokens - sum(sizes.get(place, 0) for place in cleared)
    applied: list[AppliedEdit] = []
    for edit in edits:
        trigger = int(TRIGGER_SHARE[edit.kind] * n_window) if edit.trigger_tokens is None else edit.trigger_tokens
        trigger = min(trigger, n_window - 1)
        if edit.trigger_calls is not None:
            if sum(len(message.calls) for message in messages) <= edit.trigger_calls:
                continue
        elif n <= trigger:
            continue
        least = edit.least_tokens
        if edit.kind == "compact":
            if n <= TRIGGER_SHARE["compact"] * n_window and any(number == WHOLE for _, number in cleared):
                least = int(AGAIN_SHARE * trigger)
            target = KEPT_SHARE[edit.trigger_tokens == 0] * (trigger or n)
            going, count, size = _turns(spans, gone, sizes, n - target)
        else:
            parts = _results(messages, edit) if edit.kind == "results" else _thoughts(messages)
            units = [unit for unit in parts if (unit[0][0], WHOLE) not in gone and unit[0] in sizes]
            units = units[: max(0, len(units) - edit.keep)] if edit.keep is not None else []
            units = [unit for unit in units if unit[0] not in gone]
            going = {place for unit in units for place in unit if place in sizes and place not in gone}
            count, size = len(units), sum(sizes[place] for place in going)
        if size and size >= least:
            gone |= going
            n -= size
            applied.append(AppliedEdit(edit.kind, count, size))
    return Edited(frozenset(gone), tuple(applied), n_before, n)


def _results(messages: Sequence[Message], edit: Edit) -> list[list[Place]]:
    """Each result that may leave, with the arguments of its call where those leave, too."""
    calls = {
        call.id: (at, number)
        for at, message in enumerate(messages)
        for number, call in enumerate(message.parts)
        if isinstance(call, ToolCall)
    }
    found = []
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolResult) and part.name not in edit.excluded:
                takes = edit.inputs if isinstance(edit.inputs, bool) else part.name in edit.inputs
                own = [calls[part.call_id]] if takes and part.call_id in calls else []
                found.append([(at, number), *own])
    return found


def _thoughts(messages: Sequence[Message]) -> list[list[Place]]:
    thoughts = (
        [(at, number) for number, part in enumerate(message.parts) if isinstance(part, Reasoning)]
        for at, message in enumerate(messages)
    )
    return [places for places in thoughts if places]


def _turns(
    spans: Sequence[Span], gone: AbstractSet[Place], sizes: Mapping[Place, int], excess: float
) -> tuple[set[Place], int, int]:
    """The oldest turns that free `excess` tokens, as far as they may leave; their messages and tokens."""
    staying = {span.message for span in spans if span.keep or span.early < 0}
    staying |= {at for at, number in gone if number == WHOLE}
    cleared = Counter[int]()
    for place in gone:
        cleared[place[0]] += sizes.get(place, 0)
    going: set[Place] = set()
    total = 0
    for _, turn in groupby(spans, key=lambda span: span.turn):
        if total >= excess:
            break
        own = [span for span in turn if span.message not in staying]
        numbers = {span.message for span in own}
        size = sum(span.stop - span.start for span in own)
        size -= sum(cleared[at] for at in numbers)
        if size > 0:
            going |= {(at, WHOLE) for at in numbers}
            total += size
    return going, len(going), total
