"""Conversations that branch off each other, on memories that cannot be cut: what each request computes.

    system │ user  assistant │ user  assistant │ user │            tokens of a prompt, END behind each message

A branch computes what is new in it: everything behind the last message that it shares with another prompt. Counts of
tokens, not times; `TAIL` is what a template writes behind the last message. Answers are compared with a cold cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from tests.fake_engine import RECURRENT, FakeRuntime, SilentLoop, scheduler_on

from shepherd.core import Sampling
from shepherd.engine.base import Admitted, Job, Owner, Runtime, Span, Ticket
from shepherd.engine.kv.marks import LEAST_GAP
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import Scheduler

END = 127
TAIL = (126, 125, 124)
"""The head of an answer, which a template writes behind the last message."""
N_ANSWER = 4
N_CTX = 8192
SYSTEM = 1300
STATE = 40_000
"""Bytes of a checkpoint, where they are all equal."""
RAM = Tiers(ram_bytes=64 << 20)


def words(n: int, seed: int) -> list[int]:
    """A message of `n` tokens, none of which ends anything."""
    random = Random(seed)
    return [*(random.randrange(120) for _ in range(n - 1)), END]


def model(tokens: Sequence[int]) -> int:
    """A function of everything that has been read."""
    return (sum(token * (at + 1) for at, token in enumerate(tokens[-9:])) + 7 * sum(tokens) + len(tokens)) % 120


@dataclass
class Chat:
    """The messages of one conversation, its system prompt first; answers are kept as they were written."""

    messages: list[list[int]]

    def say(self, n: int, seed: int) -> Chat:
        return Chat([*self.messages, words(n, seed)])

    def job(self, **fields: Any) -> Job:
        """The prompt of these messages: each is a span, every question begins a turn."""
        spans, at = list[Span](), 0
        for index, message in enumerate(self.messages):
            n = len(message) + len(TAIL) * (index > 0 and index % 2 == 0)
            turn, is_last = (index + 1) // 2, index == len(self.messages) - 1
            role = "system" if not index else "user" if index % 2 else "assistant"
            spans.append(Span(at, at + n, index, turn, keep=not index or is_last, label=role))
            at += n
        tokens = array("i", [*self.messages[0]])
        for index, message in enumerate(self.messages[1:], 1):
            tokens.extend([*(TAIL if index % 2 == 0 else ()), *message])
        tokens.extend(TAIL)
        fields = {"n_system": len(self.messages[0])} | fields
        return Job(tokens, N_ANSWER, Sampling(temperature=0), tuple(spans), **fields)


@dataclass
class Cache:
    """One cache, and what each request computes in it."""

    runtime: Runtime
    tiers: Tiers = RAM
    checkpoint_bytes: int = 1 << 30
    scheduler: Scheduler = field(init=False)
    sent: list[tuple[Job, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = scheduler_on(
            self.runtime, sequences=3, tiers=self.tiers, checkpoint_bytes=self.checkpoint_bytes
        )

    def ask(self, chat: Chat, **fields: Any) -> int:
        """Answer a conversation, and add the answer to it; how many tokens of the prompt were computed."""
        n = self.finish(chat.job(**fields))
        chat.messages.append([*self.sent[-1][1], END])
        return n

    def finish(self, job: Job) -> int:
        ticket = self.begin(job)
        while not ticket.finished or self.scheduler.running:
            self.step()
        answer = [step for step in ticket._steps if isinstance(step, int)]
        assert len(answer) == N_ANSWER, ticket._error
        self.sent.append((job, answer))
        return n_new(ticket)

    def begin(self, job: Job) -> Ticket:
        ticket = Ticket(job, cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def step(self) -> None:
        self.scheduler.admit()
        self.scheduler.step()

    def talk(self, system: list[int], n_turns: int, *, seed: int = 0, **fields: Any) -> Chat:
        """A conversation of so many turns."""
        chat = Chat([system])
        for turn in range(n_turns):
            chat = chat.say(60, 100 * seed + turn)
            self.ask(chat, **fields)
        return chat


def n_new(ticket: Ticket) -> int:
    admitted = ticket._steps[0]
    assert isinstance(admitted, Admitted)
    return admitted.n_new


def fake(**fields: Any) -> FakeRuntime:
    return FakeRuntime(model, n_ctx=N_CTX, n_seq=8, n_batch=512, memory=RECURRENT, **fields)


@pytest.mark.parametrize("n_turns", range(1, 9))
def test_a_new_chat_computes_what_is_behind_the_system_prompt(n_turns: int) -> None:
    cache = Cache(fake())
    cache.talk(system := words(SYSTEM, 1), n_turns)
    assert cache.ask(Chat([system]).say(30, 7)) == 30 + len(TAIL)


def edit(chat: Chat, turn: int, n: int) -> Chat:
    """The conversation with another question in that turn, and nothing behind it."""
    return Chat(chat.messages[: 1 + 2 * turn]).say(n, 999)


# A branch of a conversation of eight turns, the tokens that are new in it, and how its job differs.
BRANCHES: dict[str, tuple[Callable[[Chat], Chat], int, dict[str, Any]]] = {
    "next turn": (lambda chat: chat.say(40, 50), 2 + 40, {}),
    "retry": (lambda chat: Chat(chat.messages[:-1]), 0, {}),
    "edit last": (lambda chat: edit(chat, 7, 33), 33, {}),
    "edit earlier": (lambda chat: edit(chat, 3, 33), 33, {}),
    "edit first": (lambda chat: edit(chat, 0, 33), 33, {}),
    "new chat": (lambda chat: Chat(chat.messages[:1]).say(30, 51), 30, {}),
    "side request": (lambda chat: Chat(chat.messages[:1]).say(35, 52), 35, {"background": True}),
    "title": (lambda chat: chat.say(20, 53), 2 + 20, {"background": True}),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("tiers", [RAM, Tiers()], ids=["with tiers", "without"])
@pytest.mark.parametrize("pays_for_idle", [True, False])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_computes_its_new_tokens_and_the_conversation_goes_on(
    name: str, pays_for_idle: bool, tiers: Tiers
) -> None:
    change, n, fields = BRANCHES[name]
    cache = Cache(fake(pays_for_idle=pays_for_idle), tiers)
    chat = cache.talk(words(SYSTEM, 1), 8)
    assert cache.ask(change(chat), **fields) == n + len(TAIL)
    if name not in {"next turn", "retry"}:  # these two continue the sequence itself
        assert cache.ask(chat.say(25, 60)) <= 2 + 25 + len(TAIL)
    assert cache.ask(Chat(chat.messages[:1]).say(30, 61)) == 30 + len(TAIL)


def test_a_sub_agent_begins_while_the_conversation_is_computed() -> None:
    cache = Cache(fake(), Tiers())
    chat = cache.talk(system := words(SYSTEM, 1), 2)
    main = cache.begin(chat.say(2000, 50).job())
    cache.step()
    cache.step()
    assert not any(isinstance(step, int) for step in main._steps), "its prompt is not computed yet"
    assert cache.ask(Chat([system]).say(30, 51)) == 30 + len(TAIL)
    assert n_new(main) == 2 + 2000 + len(TAIL)


def test_agents_that_start_together_compute_their_system_prompt_once() -> None:
    cache = Cache(fake(), Tiers())
    system = words(SYSTEM, 1)
    tickets = [cache.begin(Chat([system]).say(30, 50 + n).job()) for n in range(3)]
    while not all(ticket.finished for ticket in tickets) or cache.scheduler.running:
        cache.step()
    assert [n_new(ticket) for ticket in tickets] == [SYSTEM + 33, 33, 33]


def test_another_owner_finds_nothing() -> None:
    cache = Cache(fake())
    cache.talk(system := words(SYSTEM, 1), 3, owner=Owner("ada"))
    assert cache.ask(Chat([system]).say(30, 50), owner=Owner("bob")) == SYSTEM + 33
    for resident in cache.scheduler.pool.ledger.idle():
        cache.scheduler.pool.drop(resident)
    assert cache.ask(Chat([system]).say(30, 51), owner=Owner("eve")) == SYSTEM + 33
    assert cache.ask(Chat([system]).say(30, 51), owner=Owner("ada")) == 33


def test_an_agent_that_has_called_many_tools_leaves_its_system_prompt_and_its_task() -> None:
    """Turns within one question: what is kept for ever is the task, and nothing may leave before the first call."""
    cache = Cache(fake())
    system = words(SYSTEM, 1)

    def job(n_calls: int, question: list[int]) -> Job:
        tokens, spans = array("i", [*system, *question]), [Span(0, SYSTEM, 0, 0, keep=True, label="system")]
        spans.append(Span(SYSTEM, len(tokens), 1, 1, keep=True, label="user"))
        for call in range(n_calls):
            at = len(tokens)
            tokens.extend([*TAIL, *words(20, 200 + call), *words(150, 300 + call)])
            spans.append(Span(at, at + 23, 2 + 2 * call, 2 + call, keep=call == n_calls - 1, label="assistant"))
            spans.append(Span(at + 23, len(tokens), 3 + 2 * call, 2 + call, keep=call == n_calls - 1, label="user"))
        tokens.extend(TAIL)
        return Job(tokens, N_ANSWER, Sampling(temperature=0), tuple(spans), n_system=SYSTEM)

    for n_calls in range(25):
        cache.finish(job(n_calls, words(300, 5)))
    assert cache.finish(job(0, words(310, 6))) == 310 + len(TAIL)
    assert cache.finish(job(0, words(300, 5))) == len(TAIL)
    assert cache.finish(job(25, words(300, 5))) <= 173 + len(TAIL)


def test_a_long_history_that_comes_at_once_leaves_the_same_marks() -> None:
    chat = Chat([words(SYSTEM, 1)])
    for turn in range(20):
        chat = chat.say(60, turn)
        chat.messages.append(words(80, 500 + turn))
    first = Cache(fake())
    assert first.ask(chat.say(60, 20)) > 4000
    assert first.ask(Chat(chat.messages[:1]).say(30, 51)) == 33
    assert first.ask(edit(chat, 20, 33)) == 33 + len(TAIL)
    assert first.ask(edit(chat, 19, 33)) <= 33 + len(TAIL) + 143


def test_a_changed_end_of_the_system_prompt_costs_little_more_than_the_change() -> None:
    """As where a client writes the state of its repository there: the place is learnt at the first change."""
    cache = Cache(fake())
    cache.talk(system := words(6000, 1), 6)
    changed = [[*system[:5900], *words(100, 2 + n)] for n in range(4)]
    assert cache.ask(Chat([changed[0]]).say(30, 50)) <= 6000 // 4 + 33
    assert max(cache.ask(Chat([each]).say(30, 50)) for each in changed[1:]) < 133 + LEAST_GAP
    assert cache.ask(Chat([system]).say(30, 51)) == 33, "the first system prompt is still there"


def test_an_eviction_goes_back_to_before_all_that_leaves() -> None:
    """A part of a late message may leave together with an older turn."""
    cache = Cache(FakeRuntime(model, n_ctx=6000, n_seq=8, n_batch=512, memory=RECURRENT), Tiers())
    chat = Chat([words(SYSTEM, 1)])
    for turn in range(3):
        chat = chat.say(1000, turn)
        cache.ask(chat)
    job = chat.say(2500, 9).job(on_full="evict", reserve=N_ANSWER)
    spans = tuple(replace(span, early=int(span.message == 5)) for span in job.spans)
    n = cache.finish(replace(job, spans=spans))
    n_evicted = cache.scheduler.pool.totals.evicted_tokens
    assert n_evicted > 2000, "the part, and an older turn"
    assert n == len(job.tokens) - SYSTEM - n_evicted


# -- what leaves the cells


def test_a_system_prompt_outlives_the_conversations_that_leave_the_cells() -> None:
    """Host memory has no room for a whole conversation, but for a system prompt alone."""
    cache = Cache(fake(), Tiers(ram_bytes=60_000))
    chat = cache.talk(system := words(SYSTEM, 1), 3)
    cache.ask(chat.say(6000, 50))
    for resident in cache.scheduler.pool.ledger.idle():
        cache.scheduler.pool.drop(resident)
    assert cache.scheduler.pool.snapshots.counts.in_ram == 1
    assert cache.ask(Chat([system]).say(30, 51)) == 33


def test_a_sequence_that_leaves_gives_its_system_prompt_to_one_that_begins_alike() -> None:
    cache = Cache(fake(), Tiers())
    pool = cache.scheduler.pool
    cache.talk(system := words(SYSTEM, 1), 1)
    cache.ask(Chat([system]).say(400, 50))
    first, second = pool.ledger.idle()
    second.checkpoints.clear()
    pool.drop(first)
    assert [at for at, _ in second.checkpoints] == [SYSTEM]
    assert cache.ask(Chat([system]).say(30, 51)) == 33
    assert pool.totals.dropped == 1


def test_after_a_restart_every_branch_is_on_disk(tmp_path: Path) -> None:
    tiers = Tiers(ram_bytes=64 << 20, folder=tmp_path, disk_bytes=1 << 30)
    before = Cache(fake(), tiers)
    chat = before.talk(words(SYSTEM, 1), 8)
    while before.scheduler.pool.save_one():
        pass
    before.scheduler.pool.close()
    for change, n, _ in BRANCHES.values():
        after = Cache(fake(), tiers)
        assert after.scheduler.pool.snapshots.flush(10)
        assert {outline.n_system for outline in after.scheduler.pool.snapshots.outlines().values()} == {SYSTEM}
        assert after.ask(change(Chat(list(chat.messages)))) == n + len(TAIL)
        after.scheduler.pool.close()


# -- how much is kept


class Sized(FakeRuntime):
    """All checkpoints are equally large, as those of real models are."""

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        return super().save(seq, partial=partial).ljust(STATE if partial else 0, b"\0")


@pytest.mark.parametrize("n_states", [1, 2, 3, 6, 20, 100])
def test_checkpoints_stay_within_their_bytes_and_the_system_prompt_stays_longest(n_states: int) -> None:
    runtime = Sized(model, n_ctx=N_CTX, n_seq=8, n_batch=512, memory=RECURRENT)
    cache = Cache(runtime, checkpoint_bytes=n_states * STATE)
    chat = cache.talk(system := words(SYSTEM, 1), 8)
    (resident,) = cache.scheduler.pool.ledger.idle()
    lengths = [at for at, _ in resident.checkpoints]
    assert len(lengths) <= n_states
    assert SYSTEM in lengths
    assert cache.scheduler.pool.checkpoints.size_bytes == len(lengths) * STATE
    if n_states > 2:
        assert cache.ask(Chat(chat.messages[:-1])) == len(TAIL)
    assert cache.ask(Chat([system]).say(30, 50)) == 33
    assert cache.scheduler.pool.checkpoints.size_bytes <= n_states * STATE
