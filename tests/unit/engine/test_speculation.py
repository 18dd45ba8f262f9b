"""Drafts: what they change (the number of decodes) and what they do not (tokens, cells, conversations), and that they
never cost more than the loan."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest
from tests.fake_engine import RECURRENT, FakeRuntime, Faults, SilentLoop, SteadyCost, scheduler_on

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import Admitted, Chunk, Decoded, Done, Job, Mask, Op, Remove, Scored, Ticket
from shepherd.engine.draft import SuffixDrafter
from shepherd.engine.scheduler import Scheduler
from shepherd.engine.speculation import (
    LOAN,
    PATIENCE_OF_OTHERS,
    REST,
    START,
    DecodeCost,
    Speculation,
    Speculator,
    Wish,
)

END = 255
FLAT = 0.0
"""Further tokens of a decode cost nothing: drafts are as long as they may be."""


def spell(*texts: bytes) -> Callable[[Sequence[int]], int]:
    """A model that says the text whose first byte its prompt ends with, then ends."""

    def next_token(tokens: Sequence[int]) -> int:
        said = bytes(tokens).rpartition(b"|")[2]
        text = next(text for text in texts if text[0] == said[0])
        return text[len(said)] if len(said) < len(text) else END

    return next_token


def ids(text: bytes) -> array[int]:
    return array("i", [*text])


TEXT = b"a quick brown fox jumps over the lazy dog, and over the lazy cat"
OTHER = b"some other answer that nothing has said before"


@dataclass
class Bench:
    """A scheduler that a test steps."""

    scheduler: Scheduler
    runtime: FakeRuntime

    def submit(self, prompt: bytes, **job: Any) -> Ticket:
        n, predicted = job.pop("max_tokens", 200), job.pop("predicted", (ids(TEXT),))
        ticket = Ticket(Job(ids(prompt), n, predicted=predicted, **job), cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def step(self) -> None:
        self.scheduler.admit()
        self.scheduler.step()
        self.check()

    def check(self) -> None:
        ledger = self.scheduler.pool.ledger
        ledger.check_self()
        for resident in ledger:
            held = [resident.tokens[at] for run in resident.runs for at in range(run.start, run.stop)]
            assert self.runtime.tokens(resident.id) == held, "the record equals the cache"

    def finish(self) -> None:
        self.scheduler.admit()
        while self.scheduler.running:
            self.step()
            self.scheduler.admit()


def bench(*texts: bytes, part: float = FLAT, runtime: type[FakeRuntime] = FakeRuntime, **options: Any) -> Bench:
    mine = {"n_outputs": 16, "n_batch": 64} | {name: options.pop(name) for name in _RUNTIME & options.keys()}
    made = runtime(spell(*(texts or (TEXT, OTHER))), frozenset({END}), **mine)
    drafting = {"speculator": Speculator(SteadyCost(part))} | options.pop("drafting", {})
    return Bench(scheduler_on(made, drafting=drafting, **{"speculate": True} | options), made)


_RUNTIME = frozenset({"n_ctx", "n_seq", "n_outputs", "n_batch", "memory", "faults"})


def answer(ticket: Ticket) -> bytes:
    tokens = (step.token if isinstance(step, Scored) else step for step in ticket._steps)
    return bytes(token for token in tokens if isinstance(token, int))


def done(ticket: Ticket) -> Done:
    (last,) = [step for step in ticket._steps if isinstance(step, Done)]
    return last


# -- what is computed ------------------------------------------------------------------------------------------------


def test_a_text_that_was_expected_takes_few_decodes() -> None:
    one = bench()
    ticket = one.submit(b"x|a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket) == Done("end", END)
    last, stats = done(ticket), one.scheduler.queue.stats()
    assert (
        last.accepted == last.drafted == len(TEXT) - len("a quick") - stats.decodes + 2
    )  # less the prompt's and END's
    assert stats.decodes <= 8
    assert (stats.drafted_tokens, stats.accepted_tokens) == (last.drafted, last.accepted)
    assert [(each.drafted, each.accepted) for each in stats.sequences] == [(last.drafted, last.accepted)]
    assert stats.generated_tokens == len(answer(ticket))


def test_what_is_refused_is_in_neither_cells_nor_ledger() -> None:
    one = bench()
    wrong = TEXT.replace(b"jumps", b"leaps").replace(b"dog", b"cow")
    ticket = one.submit(b"x|a quick", predicted=(ids(wrong),))
    one.finish()  # compares them after each step
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).drafted > done(ticket).accepted > 20
    assert any(isinstance(op, Remove) for op in one.runtime.ops)


def test_a_runtime_that_keeps_what_was_refused_is_seen() -> None:
    class Keeping(FakeRuntime):
        def apply(self, op: Op) -> bool:
            return True if isinstance(op, Remove) else super().apply(op)

    one = bench(runtime=Keeping)
    one.submit(b"x|a quick", predicted=(ids(TEXT.replace(b"jumps", b"leaps")),))
    with pytest.raises(AssertionError, match="the record equals the cache"):
        one.finish()


def test_logits_of_another_row_are_seen() -> None:
    class Shifted(FakeRuntime):
        def seen(self, chunk: int, behind: int) -> list[int]:
            return super().seen(chunk, max(0, behind - 1))

    one = bench(runtime=Shifted)
    ticket = one.submit(b"x|a quick")
    one.finish()
    assert answer(ticket) != TEXT[len("a quick") :]


@pytest.mark.parametrize("job", [{"speculate": 0}, {"speculate": None}], ids=["by the job", "by the engine"])
def test_speculation_can_be_off(job: dict[str, Any]) -> None:
    one = bench(speculate=False)
    ticket = one.submit(b"x|a quick", **job)
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).drafted == 0
    assert max(n for _, at, n in one.runtime.decoded if at) == 1


def test_a_job_says_how_long_its_drafts_may_be() -> None:
    one = bench(speculate=False)
    ticket = one.submit(b"x|a quick", speculate=3)
    one.finish()
    assert done(ticket).accepted > 20
    assert max(n for _, at, n in one.runtime.decoded if at) == 4


def test_a_memory_that_cannot_go_back_gets_no_drafts() -> None:
    one = bench(memory=RECURRENT)
    ticket = one.submit(b"x|a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).drafted == 0


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 20))
def test_an_answer_ends_at_its_limit_inside_a_draft(n: int) -> None:
    one = bench()
    ticket = one.submit(b"x|a quick", max_tokens=n)
    one.finish()
    assert (answer(ticket), done(ticket)) == (TEXT[len("a quick") :][:n], Done("length"))
    highest = max(at + size for _, at, size in one.runtime.decoded)
    assert highest <= len(b"x|a quick") + n - 1, "the last token is not computed, nor what would come behind it"


def test_no_draft_has_more_rows_or_tokens_than_a_decode_may() -> None:
    one = bench(n_outputs=6, n_batch=5, n_seq=6)
    tickets = [one.submit(b"x|a quick"), one.submit(b"y|a quick")]
    one.finish()  # the runtime checks
    assert [answer(ticket) for ticket in tickets] == [TEXT[len("a quick") :]] * 2
    assert done(tickets[0]).accepted > 10


def test_no_draft_reaches_beyond_the_last_position() -> None:
    one = bench(drafting={"n_positions": 40})
    ticket = one.submit(b"x|a quick")
    one.finish()
    ends = [chunk.position + len(chunk.tokens) for batch in one.runtime.batches for chunk in batch if chunk.each]
    assert max(ends) == 40
    assert answer(ticket) == TEXT[len("a quick") :]


def test_no_end_token_and_no_image_is_drafted() -> None:
    one = bench()
    expected = array("i", [*TEXT, -1, *TEXT[:30], -7, -1, *TEXT[:20], END])
    ticket = one.submit(b"x|a quick", predicted=(expected,))
    one.finish()  # the runtime refuses tokens of images
    assert answer(ticket) == TEXT[len("a quick") :]
    ends = [chunk for batch in one.runtime.batches for chunk in batch if END in chunk.tokens]
    assert [chunk.tokens.tolist() for chunk in ends] == [[END]], "the end that was drawn, by itself"


def test_a_draft_drops_no_conversation_and_takes_no_cell_that_an_answer_needs() -> None:
    """The cells have room for the answers as they are, and for one token more."""
    dropped = {}
    for speculate in (False, True):
        one = bench(n_ctx=2 * (len(TEXT) + 4) + len(b"z|o") + 2, speculate=speculate)
        one.submit(b"z|so", max_tokens=1, predicted=())
        one.finish()
        longer = (ids(TEXT + b"." * 40),)
        tickets = [one.submit(b"x|a quick", predicted=longer), one.submit(b"y|a quick", predicted=longer)]
        one.finish()
        assert [answer(ticket) for ticket in tickets] == [TEXT[len("a quick") :]] * 2
        assert one.scheduler._decode.drafting.speculator.rest == 0, "the library had room for each"
        totals = one.scheduler.queue.stats()
        dropped[speculate] = totals.dropped, totals.preemptions
    assert dropped[True] == dropped[False] == (0, 0)


def test_where_the_library_has_no_room_for_a_draft_the_answer_goes_on_without() -> None:
    class Narrow(FakeRuntime):
        def decode(self, batch: Sequence[Chunk]) -> Decoded:
            return "full" if any(chunk.each for chunk in batch) else super().decode(batch)

    one = bench(runtime=Narrow)
    one.submit(b"z|so", max_tokens=1, predicted=())
    one.finish()
    ticket = one.submit(b"x|a quick")
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket).drafted == 0
    assert one.scheduler.queue.stats().dropped == 0
    assert 0 < one.scheduler._decode.drafting.speculator.rest <= REST


def test_a_side_task_drafts_nothing_beside_a_conversation() -> None:
    one = bench()
    side, main = one.submit(b"y|a quick", background=True), one.submit(b"x|some", predicted=())
    one.finish()
    assert answer(side) == TEXT[len("a quick") :]
    seq = next(step.seq for step in side._steps if isinstance(step, Admitted))
    n_beside = {len(batch) for batch in one.runtime.batches for chunk in batch if chunk.seq == seq and chunk.each}
    assert n_beside == {1}, "alone it does"
    assert answer(main) == OTHER[len("some") :]


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_cancelled_answer_leaves_what_was_drawn_and_no_more() -> None:
    one = bench()
    ticket = one.submit(b"x|a quick", predicted=(ids(TEXT.replace(b"lazy", b"tame")),))
    for _ in range(4):
        one.step()
    assert one.scheduler.queue.stats().draft_bytes > 4 * len(TEXT)
    ticket.cancelled = True
    one.finish()
    assert one.scheduler.queue.stats().draft_bytes == 0, "its drafter has gone with its job"
    (resident,) = one.scheduler.pool.ledger
    assert 10 < len(answer(ticket)) < len(TEXT) - 10
    assert bytes([*resident.tokens]) == b"x|a quick" + answer(ticket)[:-1]


def test_an_interrupted_decode_is_computed_again() -> None:
    class Stopped(FakeRuntime):
        n_left = 3

        def decode(self, batch: Sequence[Chunk]) -> Decoded:
            if any(len(chunk.tokens) > 1 for chunk in batch) and self.n_left:
                self.n_left -= 1
                super().decode(batch)  # the library has kept all of it
                return "aborted"
            return super().decode(batch)

    one = bench(runtime=Stopped)
    ticket = one.submit(b"x|a quick", predicted=(ids(TEXT.replace(b"lazy", b"tame")),))
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]


def test_a_failed_decode_begins_again() -> None:
    one = bench(faults=Faults(decode_error_at=30))
    tickets = [one.submit(b"x|a quick"), one.submit(b"y|some other", predicted=(ids(OTHER),))]
    one.finish()
    assert [answer(ticket) for ticket in tickets] == [TEXT[len("a quick") :], OTHER[len("some other") :]]


@pytest.mark.parametrize("end", [True, False])
def test_where_nothing_can_be_removed_the_answer_is_computed_again_without_drafts(end: bool) -> None:
    one = bench()
    ticket = one.submit(b"x|a quick", predicted=(ids(TEXT + b"####" if end else TEXT.replace(b"fox", b"dog")),))
    one.scheduler.admit()
    one.runtime.faults.can_remove = False
    one.finish()
    assert answer(ticket) == TEXT[len("a quick") :]
    assert done(ticket) == Done("end", END)
    assert sum(isinstance(op, Remove) for op in one.runtime.ops) == 1, "it is not tried again"
    is_read_again = one.scheduler.queue.stats().prefilled_tokens > len(b"x|a quick")
    assert is_read_again is not end, "an answer that is over needs no cells"


class Fussy(FakeRuntime):
    """A grammar that never allows a comma."""

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> Any:
        return super().sampler(sampling, history, NoComma())


class NoComma:
    def allows(self, token: int) -> bool:
        return token != ord(",")

    def n_allowed(self, tokens: Sequence[int]) -> int:
        return next((at for at, token in enumerate(tokens) if token == ord(",")), len(tokens))

    def allow(self, logits: memoryview) -> None:
        raise EngineError("nothing may come")

    def accept(self, token: int) -> None:
        pass


def test_what_the_grammar_forbids_is_not_drafted_and_a_failure_comes_behind_what_was_drawn() -> None:
    one = bench(runtime=Fussy)
    ticket = one.submit(b"x|a quick")
    one.finish()
    assert isinstance(ticket._error, EngineError)
    assert answer(ticket) == TEXT[len("a quick") : TEXT.index(b",")]
    assert not any(ord(",") in chunk.tokens for batch in one.runtime.batches for chunk in batch)


@pytest.mark.parametrize("drawn", [False, True])
def test_each_token_comes_with_the_scores_of_its_own_place(drawn: bool) -> None:
    one = bench()
    ticket = one.submit(b"x|a quick", scores=1, scores_drawn=drawn)
    one.finish()
    scores = [step for step in ticket._steps if isinstance(step, Scored)]
    assert bytes(score.token for score in scores) == TEXT[len("a quick") :]
    assert all(score.top[0][0] == score.token for score in scores)
    assert done(ticket).accepted > 20


# -- how long drafts are ---------------------------------------------------------------------------------------------


class Stubborn(SuffixDrafter):
    """Always has something to propose, as sure as can be."""

    def __init__(self, n_matched: int) -> None:
        super().__init__()
        self.n_matched = n_matched

    def read(self, holds: Sequence[bool]) -> None:
        """So many tokens were drawn, which were the proposed ones or not."""
        for at, each in enumerate(holds):
            self.odds.observe(self.n_matched + at, each)

    def propose(self, n: int) -> array[int]:
        return array("i", range(n))


def told(n_matched: int = 40, most: int = 32) -> Wish:
    return Wish(Speculation((Stubborn(n_matched),), most), most)


def lengths(speculator: Speculator, wishes: Sequence[Wish], n_tokens: int, n_room: int) -> list[int]:
    return [choice.n if choice else 0 for choice in speculator.choose(wishes, n_tokens, n_room)]


@pytest.mark.parametrize("part", [0.01, 0.1, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("n_matched", [1, 3, 12, 40])
def test_an_answer_whose_proposals_all_fail_loses_a_token_and_a_hundredth_of_its_time(
    part: float, n_matched: int
) -> None:
    cost, drafter = SteadyCost(part), Stubborn(n_matched)
    speculator, speculation, n_lost = Speculator(cost), Speculation((drafter,), 32), 0.0
    for at in range(640):
        (n,) = lengths(speculator, [Wish(speculation, 32)], 1, 40)
        n_lost += cost.seconds(1 + n) / cost.seconds(1) - 1
        speculation.settle(n, 0, speculator.observe(1 + n, n, cost.seconds(1 + n), 0.0) * n)
        drafter.read([False])
        assert n_lost <= START + at / 100 + 1e-9


def test_drafts_come_back_where_an_answer_begins_to_copy() -> None:
    """Nothing holds for a hundred tokens, then everything."""
    cost, drafter = SteadyCost(0.3), Stubborn(40)
    speculator, speculation, took, n_tokens = Speculator(cost), Speculation((drafter,), 32), 0.0, 0
    while n_tokens < 1000:
        (n,) = lengths(speculator, [Wish(speculation, 32)], 1, 40)
        n_held = n if n_tokens >= 100 else 0
        took += cost.seconds(1 + n)
        speculation.settle(n, n_held, 0.3 * n)
        drafter.read([n_tokens >= 100] * (1 + n_held))
        n_tokens += 1 + n_held
    assert n_tokens * cost.seconds(1) / took > 2.0


def test_what_is_proposed_is_learnt_and_credited_before_anything_is_drafted() -> None:
    drafter = SuffixDrafter()
    drafter.extend(range(100))
    speculation = Speculation((drafter,), 32)
    speculation.extend(range(20))
    before = drafter.odds.of(40)
    for token in range(20, 60):
        speculation.settle(0, 0, 0.0)
        speculation.extend([token])
    assert drafter.odds.of(40) > before
    assert speculation.account == LOAN
    speculation.extend([3])
    speculation.extend(range(62, 70))
    assert speculation.n_drafted == 0


class Stepped(SteadyCost):
    """Several tokens cost three and a half at once, and little more the more they are: as with Q8_0 on a CPU."""

    def seconds(self, n: int) -> float:
        return 0.01 if n == 1 else 0.034 + 0.0004 * n


def test_a_draft_that_the_grammar_cuts_short_is_taken_where_it_still_pays() -> None:
    one = bench(runtime=Fussy, drafting={"speculator": Speculator(Stepped(0.0))})
    ticket = one.submit(b"x|a q")  # two letters before the comma are left behind two long drafts
    one.finish()
    assert answer(ticket) == TEXT[len("a q") : TEXT.index(b",")]
    drafted = [len(chunk.tokens) - 1 for batch in one.runtime.batches for chunk in batch if chunk.each]
    assert drafted
    assert min(drafted) > 4


def test_where_two_tokens_cost_as_much_as_two_decodes_nothing_is_drafted() -> None:
    assert lengths(Speculator(SteadyCost(1.0)), [told()], 1, 40) == [0]
    assert lengths(Speculator(SteadyCost(0.1)), [told()], 1, 40) > [8]


def test_drafts_shrink_beside_busy_streams() -> None:
    drafted = {n: sum(lengths(Speculator(SteadyCost(0.2)), [told() for _ in range(n)], n, 60)) for n in (1, 2, 4, 8)}
    assert drafted[1] > drafted[2]
    for n in (2, 4, 8):
        cost = SteadyCost(0.2)
        assert cost.seconds(n + drafted[n]) <= PATIENCE_OF_OTHERS * cost.seconds(n) + 1e-9
        assert drafted[n] > 0
    steep = Speculator(SteadyCost(1.0))
    assert sum(lengths(steep, [told() for _ in range(8)], 8, 60)) == 0


def test_the_surest_answer_drafts_first_and_rooms_are_shared() -> None:
    speculator = Speculator(SteadyCost(0.01))
    assert lengths(speculator, [told(4), told(60)], 2, 5)[0] == 0
    assert sum(lengths(speculator, [told(60), told(60)], 2, 5)) == 5
    assert lengths(speculator, [told(0)], 1, 40) == [0], "no place, no draft"
    assert lengths(speculator, [told(60, most=3)], 1, 40) == [3]


@pytest.mark.parametrize("seed", range(4))
def test_the_cost_of_decodes_is_learnt_through_noise(seed: int) -> None:
    random, cost = Random(seed), DecodeCost()

    def true(n: int) -> float:
        return 0.010 + 0.004 * (n - 1) if n < 8 else 0.03 + 0.002 * (n - 1)

    for _ in range(400):
        n = random.choice([1, 1, 2, 3, 5, 8, 13, 17, 25, 32])
        cost.observe(n, true(n) * random.uniform(0.9, 1.15) * (9 if random.random() < 0.02 else 1), 0.002)
    for n in (1, 2, 4, 8, 16, 32):
        assert cost.seconds(n) == pytest.approx(true(n), rel=0.35), n


@pytest.mark.parametrize("token_s", [0.0, 0.0002, 0.0035])
def test_on_a_machine_where_further_tokens_cost_little_drafts_become_long(token_s: float) -> None:
    """A size that no decode has had is guessed from those that decodes have had, and tried."""
    cost = DecodeCost()
    cost.observe(1, 0.010, token_s)
    speculator, n = Speculator(cost), 0
    for _ in range(24):
        (n,) = lengths(speculator, [Wish(Speculation((Stubborn(40),), 32, LOAN), 32)], 1, 40)
        cost.observe(1 + n, 0.010 + 0.0005 * n, token_s)
    assert n > 24


def test_the_first_guess_comes_from_the_prompt() -> None:
    cost = DecodeCost()
    cost.observe(1, 0.010, 0.001)
    assert cost.seconds(1) == pytest.approx(0.010)
    assert 0.02 < cost.seconds(17) < 0.05


def test_one_draft_tells_what_several_tokens_cost_at_once_and_that_is_not_forgotten() -> None:
    """As measured with Q8_0 on a CPU: 8 ms for one token, 26 for two, 46 for eight."""
    cost = DecodeCost()
    for _ in range(10):
        cost.observe(1, 0.008, 0.004)
    assert cost.seconds(2) < 0.015, "the first guess"
    cost.observe(2, 0.026, 0.004)
    for _ in range(32):
        cost.observe(1, 0.008, 0.004)
    assert 0.018 < cost.seconds(2) < 0.027
    assert 0.036 < cost.seconds(8) < 0.060, "not seen yet, and it has the same more to pay"
