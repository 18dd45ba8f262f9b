"""Four times the history costs about four times the work: counted in Python's instructions, never in time.

The bad cases: a hole beside every message, a client that has cleared half of the history, results that leave in parts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from tests.executed import executed
from tests.fake_engine import PLAIN, FakeVocabulary
from tests.unit.backends.local.serving import CHATML

from shepherd.backends.local.compile import Compiled, Compiler
from shepherd.backends.local.editing import candidates, decide
from shepherd.backends.local.kept_prefix import KeptPrefix
from shepherd.backends.local.quotes import find_quotes
from shepherd.core import Message, Request, Sampling, Text, ToolCall, ToolResult
from shepherd.core.edits import Edit, LeavingPolicy
from shepherd.dialects import Template, detect
from shepherd.engine.base import CachedPrefix, Job, Span
from shepherd.engine.kv.ledger import Ledger
from shepherd.engine.kv.plan import Limits, Plan, evictable_turns, plan

SMALL, TIMES = 40, 4
MOST = 1.5 * TIMES
"""A quadratic step has the factor 16; sorting and searching add a little to 4."""
LENGTH, GONE = 10, 6
"""Tokens of a message, and of those that have left."""


def spans(n: int) -> tuple[Span, ...]:
    return tuple(Span(at * LENGTH, (at + 1) * LENGTH, at, at, cleared=bool(at % 2)) for at in range(n))


def full_of_holes(n: int) -> tuple[Ledger, Job]:
    """A sequence with a hole in each of its messages, and a prompt that continues it, half of it cleared."""
    ledger = Ledger(2 * n * LENGTH, 4, PLAIN)
    resident = ledger.new()
    ledger.extend(resident, list(range(n * LENGTH)))
    ledger.evict(resident, [(at * LENGTH + LENGTH - GONE, (at + 1) * LENGTH) for at in range(1, n - 1)])
    return ledger, Job(array("i", range(n * LENGTH + 5)), 1, Sampling(), spans(n), "evict")


def planned(n: int) -> Callable[[], object]:
    ledger, job = full_of_holes(n)

    def work() -> None:
        match = ledger.find(job.tokens, holes=True, spans=job.spans)
        limits = Limits(n_ctx=n * (LENGTH - GONE) // 4 + 30, low_water=0.75, n_positions=0)
        assert match is not None
        made = plan(ledger, job.tokens, job, match, limits=limits, reserve=10)
        assert isinstance(made, Plan)
        assert made.evictions
        ledger.evict(match.resident, [*made.cleared, *(range_ for turn in made.evictions for range_ in turn.ranges)])

    return work


def shared(n: int) -> Callable[[], object]:
    """Two sequences full of holes that share nothing."""
    ledger, _ = full_of_holes(n)
    first, other = next(iter(ledger)), ledger.new()
    ledger.extend(other, first.tokens)
    ledger.evict(other, first.gaps())
    return lambda: ledger.is_shared(first, 0)


def chosen(n: int) -> Callable[[], object]:
    gone = [(at * LENGTH + LENGTH - GONE, (at + 1) * LENGTH) for at in range(n)]
    return lambda: evictable_turns(spans(n), gone, excess=n, wish=n * (LENGTH - GONE) - 2 * LENGTH)


def history(n: int) -> Request:
    messages = [Message.user("Mend the parser.")]
    for at in range(n):
        call = ToolCall(f"call_{at}", "read_file", f'{{"path": "src/file{at % 7}.py"}}')
        lines = tuple(f"line {line} of file {at}: value_{at} = {line * at}" for line in range(20))
        messages += [
            Message("assistant", (call,)),
            Message("tool", (ToolResult(call.id, (Text("\n".join(lines)),), call.name),)),
        ]
        if at % 6 == 5:
            messages += [Message.assistant("Done."), Message.user(f"And value_{at // 2} of src/file1.py?")]
    messages.append(Message.user("Where is value_3?"))
    return Request("m", tuple(messages))


def compiler() -> KeptPrefix:
    return KeptPrefix(
        Compiler(FakeVocabulary(), Template(CHATML), detect(CHATML), model="m", n_ctx=2000, policy=LeavingPolicy())
    )


def compiled(n: int) -> Compiled:
    kept = compiler()
    return kept.compile(kept.prepare(history(n)))


def compiling(n: int) -> Callable[[], object]:
    """The second request of a conversation."""
    kept, request = compiler(), history(n)
    kept.compile(kept.prepare(Request("m", request.messages[:-1])))
    return lambda: kept.compile(kept.prepare(request))


def quoting(n: int) -> Callable[[], object]:
    made = compiled(n)
    n_tokens = len(made.encoded.tokens)
    ranges = tuple((span.start, span.start + 2) for span in made.spans)
    held, room = CachedPrefix(n_tokens, ranges, "cells"), n_tokens // 4
    return lambda: find_quotes(made, held, room=room, n_low=room, fits=lambda block: True)


def editing(n: int) -> Callable[[], object]:
    made, edits = compiled(n), (Edit("results", trigger_tokens=1, keep=3), Edit("compact", trigger_tokens=n))
    parts = candidates(made.request.messages, edits)
    sizes = dict.fromkeys(parts, 2)
    n_tokens = len(made.encoded.tokens)
    messages = made.request.messages
    return lambda: decide(edits, messages, made.spans, sizes, frozenset(), n_tokens=n_tokens, n_window=n_tokens)


@pytest.mark.parametrize("step", [planned, shared, chosen, quoting, editing, compiling])
def test_no_step_costs_more_than_its_share_of_a_longer_history(step: Callable[[int], Callable[[], object]]) -> None:
    step(10)()  # what is computed once for a template
    small, large = (executed(step(n), "opcode") for n in (SMALL, SMALL * TIMES))
    assert small > 0
    assert large < MOST * small, f"{small} instructions, {large} for {TIMES} times the history"


def test_equal_lines_in_one_long_result_are_not_looked_for_one_by_one() -> None:
    made = compiled(4)
    log = ToolResult("call_x", (Text("value_3 = 1\n" * 3_000),), "read_file")
    messages = (*made.request.messages[:1], Message("tool", (log,)), *made.request.messages[1:])
    kept = compiler()
    long = kept.compile(kept.prepare(Request("m", messages)))
    held = CachedPrefix(len(long.encoded.tokens), (), "cells")
    block = find_quotes(long, held, room=100, n_low=100, fits=lambda block: True)
    assert block.count("value_3 = 1") <= 2 * 5, block
