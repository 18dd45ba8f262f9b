"""The draft model: its cells hold the conversation and nothing else, its time is paid, and no answer is another one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from tests.fake_engine import FakeRuntime, SilentLoop, SteadyCost, SteadySpeed, Ticking, check_lines, scheduler_on

from shepherd.core import EngineError, Evicted
from shepherd.engine.base import Chunk, Decoded, Done, Job, Op, Owner, Remove, Scored, Span, Ticket
from shepherd.engine.draft import Odds, SuffixDrafter
from shepherd.engine.draft_model import DraftModel, Line
from shepherd.engine.prefill import SMALLEST
from shepherd.engine.scheduler import Scheduler
from shepherd.engine.speculation import LOAN, REFILL, Speculation, Speculator, Wish

END = 255
TEXT = (
    b"a quick brown fox jumps over that lazy dog; Whether pigs find wings is odd, yet we ask, guess, reply, hum: 'Can m"
    b"y zebra eat 19 plums?'"
)
"""No four letters of it stand twice."""
DECODE_S = 0.01
"""Of the large model: `SteadyCost`."""


def ids(text: bytes) -> array[int]:
    return array("i", [*text])


def going_on(text: bytes, *, wrong: bytes = b"") -> Callable[[Sequence[int]], int]:
    """A model that goes on in a text by its last four tokens; behind one of `wrong` it says something else."""

    def next_token(tokens: Sequence[int]) -> int:
        end = bytes(token for token in tokens[-4:] if token >= 0)
        at = text.find(end)
        if at < 0 or at + len(end) >= len(text):
            return END
        return ord("#") if end[-1] in wrong else text[at + len(end)]

    return next_token


@dataclass
class Bench:
    scheduler: Scheduler
    runtime: FakeRuntime
    small: FakeRuntime
    model: DraftModel

    def submit(self, prompt: bytes, n: int = 200, **job: Any) -> Ticket:
        ticket = Ticket(Job(ids(prompt), n, **job), cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def finish(self) -> None:
        self.scheduler.admit()
        while self.scheduler.running:
            self.scheduler.step()
            self.check()
            self.scheduler.admit()

    def check(self) -> None:
        """The lines know what the draft model's cells hold, and what of that is their conversation."""
        check_lines(self.model, self.small)
        for task in self.scheduler.running:
            if task.speculation is not None:
                for source in task.speculation.sources:
                    if isinstance(source, Line):
                        assert source.known == task.tokens
        assert len(self.small.cells) <= self.small.n_ctx

    @property
    def n_computed(self) -> int:
        """Tokens that the draft model has computed for conversations."""
        return sum(len(chunk.tokens) for batch in self.small.batches[WARM_UPS:] for chunk in batch)

    @property
    def longest(self) -> int:
        """Tokens of the longest decode of the draft model for conversations."""
        return max(sum(len(chunk.tokens) for chunk in batch) for batch in self.small.batches[WARM_UPS:])


WARM_UPS = 4


def bench(
    text: bytes = TEXT,
    *,
    wrong: bytes = b"",
    decode_s: float = 0.001,
    token_s: float = 0.0001,
    small: type[FakeRuntime] = FakeRuntime,
    n_small: int = 4096,
    n_ctx: int = 4096,
    part: float = 0.0,
    n_seq: int = 4,
    n_batch: int = 256,
) -> Bench:
    """On a machine where a decode of the large model takes ten of the small one."""
    runtime = FakeRuntime(going_on(text), frozenset({END}), n_ctx=n_ctx, n_outputs=16, n_batch=64)
    drafting = small(
        going_on(text, wrong=wrong), frozenset({END}), n_ctx=n_small, n_seq=n_seq, n_outputs=8, n_batch=n_batch
    )
    model = DraftModel(drafting, 250, speed=SteadySpeed(decode_s, token_s), clock=Ticking(decode_s))
    speculator = Speculator(SteadyCost(part))
    scheduler = scheduler_on(runtime, speculate=True, draft_model=model, drafting={"speculator": speculator})
    return Bench(scheduler, runtime, drafting, model)


def answer(ticket: Ticket) -> bytes:
    return bytes(step for step in ticket._steps if isinstance(step, int))


def done(ticket: Ticket) -> Done:
    (last,) = [step for step in ticket._steps if isinstance(step, Done)]
    return last


# -- what is drafted -------------------------------------------------------------------------------------------------


def test_what_a_model_guesses_that_always_agrees_is_all_accepted() -> None:
    one = bench()
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).accepted == done(ticket).drafted > 80
    assert one.scheduler.queue.stats().decodes < 25
    assert one.n_computed <= len("say: ") + len(TEXT), "each token once: guesses that held stay in the cells"


def test_what_is_refused_leaves_the_cells_and_the_answer_is_the_same() -> None:
    one = bench(wrong=b"w?")
    ticket = one.submit(b"say: a quick")
    one.finish()  # compares them after each step
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).drafted > done(ticket).accepted > 40
    assert any(isinstance(op, Remove) for op in one.small.ops)


def test_a_draft_model_that_keeps_what_was_refused_drafts_no_more() -> None:
    class Keeping(FakeRuntime):
        def apply(self, op: Op) -> bool:
            return True if isinstance(op, Remove) else super().apply(op)

    one = bench(wrong=b"w", small=Keeping)
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert one.model.is_broken, "the runtime has seen it"
    assert answer(ticket) == TEXT[len("a quick") :]


@pytest.mark.parametrize("what", ["held", "known"])
def test_a_line_that_is_wrong_about_its_cells_is_seen(what: str) -> None:
    one = bench()
    one.submit(b"say: a quick", 30)
    one.finish()
    (line,) = one.model._lines.values()
    getattr(line, what)[3] += 1
    with pytest.raises(AssertionError):
        one.check()


def test_several_answers_are_guessed_in_the_same_decodes() -> None:
    one = bench(part=0.01)
    tickets = [one.submit(b"say: a quick"), one.submit(b"say: Whether")]
    one.finish()
    assert [answer(ticket) for ticket in tickets] == [TEXT[len("a quick") :], TEXT.partition(b"Whether")[2]]
    assert all(done(ticket).accepted > 20 for ticket in tickets)
    assert sum(len(batch) == 2 for batch in one.small.batches) > 10


def test_no_decode_of_guesses_has_more_tokens_than_it_may() -> None:
    one = bench(n_batch=17)
    tickets = [one.submit(b"say: a quick"), one.submit(b"say: Whether")]
    one.finish()  # the runtime checks
    assert [answer(ticket) for ticket in tickets] == [TEXT[len("a quick") :], TEXT.partition(b"Whether")[2]]
    assert not one.model.is_broken


def test_a_draft_ends_where_what_holds_does_not_pay_and_where_the_answer_ends() -> None:
    one = bench()
    line = one.model.line(ids(b"say: a quick"), "", ())
    assert line is not None
    nine_tenths = 0.9  # the probability of each token, as the made-up model has it
    for n in (1, 2, 5):
        (draft,) = one.model.propose([(line, 50, nine_tenths**n - 0.001)])
        assert bytes([*draft]) == TEXT[len("a quick") :][:n]
    last = one.model.line(ids(TEXT[-10:-2]), "", (line,))
    assert last is not None
    assert bytes([*last.propose(50)]) == TEXT[-2:]
    one.check()


def test_the_source_that_promises_more_is_taken() -> None:
    """A long match is free and surer than a guess; a bridged break is less sure than a model that agrees."""

    class Matched(SuffixDrafter):
        def __init__(self, n_matched: int) -> None:
            super().__init__()
            self.n_matched = n_matched

    one = bench()
    speculator = Speculator(SteadyCost(0.0))

    def chosen(n_matched: int, decode_s: float = 0.0001) -> str | None:
        text = Matched(n_matched)
        one.model.speed.decode_s = decode_s
        guessed = Line(one.model, 1, "", ids(b"?"), 0, 0)
        (choice,) = speculator.choose([Wish(Speculation((text, guessed), 8), 8)], 1, 20)
        return choice and ("text", "model")[choice.source is guessed]

    assert chosen(40) == "text"
    assert chosen(1) == "model"
    assert chosen(1, decode_s=DECODE_S) == "text", "a model as slow as the large one is never asked"
    assert chosen(0, decode_s=DECODE_S) is None


# -- what is read ----------------------------------------------------------------------------------------------------

LONG = bytes(60 + n * n % 61 for n in range(400)) + b"say: a quick"


def test_a_long_prompt_is_read_in_pieces_as_far_as_the_account_pays() -> None:
    one = bench(token_s=0.0002)
    ticket = one.submit(LONG)
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).accepted > 40
    assert SMALLEST < one.longest <= 0.5 * DECODE_S / 0.0002 + SMALLEST
    n_read = sum(len(chunk.tokens) for batch in one.small.batches[WARM_UPS:] for chunk in batch if not chunk.logits)
    assert 0 < n_read <= LOAN * DECODE_S / 0.0002 / 2
    assert all(line.base > 0 for line in one.model._lines.values()), "it begins near the end"


def test_the_next_turn_of_a_conversation_is_read_from_where_the_last_one_ended() -> None:
    one = bench()
    first = one.submit(b"say: a quick", 30)
    one.finish()
    (line,) = one.model._lines.values()
    n_before = len(one.small.batches)
    second = one.submit(b"say: a quick" + answer(first) + b"\nsay: Whe")
    one.finish()
    assert done(second).accepted > 10
    (same,) = one.model._lines.values()
    assert same.seq == line.seq
    new = [chunk for batch in one.small.batches[n_before:] for chunk in batch]
    assert min(chunk.position for chunk in new) >= len(b"say: a quick") + 20


def test_no_owner_goes_on_from_the_cells_of_another() -> None:
    one = bench()
    one.submit(b"say: a quick", 30, owner=Owner("ada"))
    one.finish()
    one.submit(b"say: a quick", 30, owner=Owner("bob"))
    one.finish()
    lines = one.model._lines.values()
    assert {line.owner for line in lines} == {"ada", "bob"}
    assert sum(chunk.position == 0 and chunk.seq >= 0 for batch in one.small.batches[WARM_UPS:] for chunk in batch) == 2
    for n in range(4):
        one.submit(b"say: Whether", 30, owner=Owner(f"carl {n}"))
        one.finish()
    owners = {line.owner for line in one.model._lines.values()}
    assert owners == {f"carl {n}" for n in range(4)}, "the oldest ones have lost their sequences"


@pytest.mark.parametrize("owner", ["ada", "bob"])
@pytest.mark.parametrize("n", [20, 300])
def test_a_conversation_that_takes_over_no_cell_begins_at_its_own_beginning(owner: str, n: int) -> None:
    """The one that had the sequence before began near its end."""
    one = bench(n_seq=1)
    before = one.model.line(ids(LONG), "ada", ())
    assert before is not None
    before.aim(50)
    before.propose(6)
    line = one.model.line(ids(LONG[::-1][:n] + b"say: Whether"), owner, ())
    assert line is not None
    assert (line.base, line.n_read) == (0, 0)
    one.check()
    line.propose(1)
    one.check()
    while line.is_behind:
        one.model.read([line], 64)
        one.check()
    assert bytes([*line.propose(5)]) == b" pigs"
    one.check()


def test_a_cleared_cache_keeps_no_line() -> None:
    one = bench()
    one.submit(b"say: a quick", 30)
    one.finish()
    assert one.small.cells
    one.scheduler.clear()
    assert not one.small.cells
    assert not one.model._lines


def test_images_and_tokens_of_the_large_model_alone_are_not_read() -> None:
    one = bench()
    line = one.model.line(array("i", [*b"see: ", -5, -6, *b"say: ", 251, *b"a quick"]), "", ())
    assert line is not None
    assert bytes([*line.propose(6)]) == b" brown"
    assert one.small.tokens(line.seq) == [*b"a quick brow"]
    line.extend([32, 251])
    line.extend(b"Whe")
    assert bytes([*line.propose(4)]) == b"ther"
    one.check()
    line.extend([251])
    line.extend([line.held[0]])
    assert line.n_read == 0, "it was not guessed: that cell is of what stood before"
    one.check()


def test_a_conversation_longer_than_its_cells_goes_on_from_near_its_end() -> None:
    long = bytes(range(33, 123)) + bytes(range(123, 249))
    one = bench(long, n_small=128)
    tickets = [one.submit(b"go: " + long[:5], 300), one.submit(b"on: " + long[:5], 300)]
    one.finish()  # checks that the cells suffice
    assert [answer(ticket) for ticket in tickets] == [long[5:]] * 2
    assert all(done(ticket).accepted > 100 for ticket in tickets)
    assert one.n_computed < 2 * 2 * len(long), "neither drives the other out at each step"


def test_a_conversation_that_fills_the_cells_is_seldom_read_again() -> None:
    long = bytes(range(33, 249))
    one = bench(long, n_small=64, token_s=1e-6)
    ticket = one.submit(long[:100], 300)
    one.finish()
    assert answer(ticket) == long[100:]
    assert done(ticket).accepted > 60
    assert one.n_computed < 2 * len(long)


def test_drafts_go_on_when_turns_leave_the_large_models_cells() -> None:
    one = bench(n_ctx=96)
    history = b"q: one two three four five six? seven.\nsay: a quick"
    cut = history.index(b"say")
    spans = (Span(0, cut, 0, 0), Span(cut, len(history), 1, 1, keep=True))
    ticket = one.submit(history, spans=spans, on_full="evict")
    one.finish()
    assert any(isinstance(step, Evicted) for step in ticket._steps)
    said = answer(ticket)
    assert TEXT[len("a quick") :].startswith(said)
    assert len(said) > 60
    assert done(ticket).accepted > 40


# -- what it costs, and what goes wrong ------------------------------------------------------------------------------


def test_guesses_that_never_hold_cost_the_loan() -> None:
    one = bench(wrong=TEXT, decode_s=0.002)
    ticket = one.submit(b"say: a quick")
    one.scheduler.admit()
    begun_s = cast(Ticking, one.model.clock).now_s
    one.finish()
    spent_s = cast(Ticking, one.model.clock).now_s - begun_s
    assert answer(ticket) == TEXT[len("a quick") :]
    assert 0 < spent_s <= (LOAN + REFILL * len(TEXT) + 1) * DECODE_S


class Steady(Odds):
    """Learns nothing."""

    def observe(self, n_matched: int, holds: bool) -> None:
        pass


def test_the_time_of_guesses_is_paid_by_the_account_whatever_the_odds_say() -> None:
    one = bench(wrong=TEXT, decode_s=0.002)
    one.model.odds = Steady(0.9)
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    n_decodes = len(one.small.batches) - WARM_UPS
    assert 1 < n_decodes * 0.002 / DECODE_S <= LOAN + REFILL * len(TEXT) + 1


def test_what_a_model_is_not_sure_of_counts_as_a_guess_that_failed() -> None:
    class Unsure(FakeRuntime):
        def scorer(self, chunk: int, n_top: int, behind: int = 0) -> Callable[[int], Scored]:
            return lambda token: Scored(token, -6.0)

    one = bench(small=Unsure)
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert one.n_computed > 0
    assert one.model.odds.of(1) < 0.5


def test_where_the_account_pays_for_a_few_tokens_alone_nothing_is_read() -> None:
    one = bench(token_s=2.5 * LOAN * DECODE_S / SMALLEST / 4)
    ticket = one.submit(LONG)
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert one.n_computed == 0


def test_a_draft_model_that_is_as_slow_as_the_model_computes_nothing() -> None:
    one = bench(decode_s=DECODE_S)
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert len(one.small.batches) == WARM_UPS


@pytest.mark.parametrize("how", ["fails", "is full"])
def test_when_the_draft_model_cannot_compute_the_answers_go_on(how: str) -> None:
    class Ailing(FakeRuntime):
        n_left = 12

        def decode(self, batch: Sequence[Chunk]) -> Decoded:
            self.n_left -= 1
            if self.n_left == 0:
                super().decode(batch)
                if how == "fails":
                    raise EngineError("a planted failure")
                return "full"
            return super().decode(batch)

    one = bench(small=Ailing)
    first = one.submit(b"say: a quick")
    one.finish()
    second = one.submit(b"say: Whether")
    one.finish()
    assert answer(first) == TEXT[len("a quick") :]
    assert answer(second) == TEXT.partition(b"Whether")[2]
    assert one.model.is_broken is (how == "fails")
    assert (len(one.small.batches) > 20) is (how == "is full"), "after a failure it computes no more"


def test_where_nothing_can_be_cut_the_line_begins_again() -> None:
    one = bench(wrong=b"w")
    one.small.faults.can_remove = False
    ticket = one.submit(b"say: a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).accepted > 20


def test_a_line_whose_sequence_was_taken_guesses_no_more() -> None:
    one = bench(n_seq=1)
    tokens = ids(b"say: a quick")
    old = one.model.line(tokens, "", ())
    assert old is not None
    assert one.model.line(tokens, "", (old,)) is None, "the only sequence is busy"
    new = one.model.line(tokens, "", ())
    assert new is not None
    assert (old.n_matched, new.n_matched) == (0, 1)
