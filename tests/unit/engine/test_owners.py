"""Owners beside each other on one cache: a job is told of no token as cached that its own owner has not sent before."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, SilentLoop, scheduler_on
from tests.unit.engine.test_scheduler import APART, END, RAM, SYSTEMS, Day, Numbers, Sent, model

from shepherd.engine.base import UNOWNED, Admitted, Job, Memory, Owner, Span, Ticket
from shepherd.engine.kv.ledger import Ledger, NoRoom, common_prefix
from shepherd.engine.kv.plan import Limits, plan
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.kv.tiers import Snapshot, Snapshots, file
from shepherd.engine.kv.tiers.snapshot import covers

OWNERS = ("", "ada", "bob")
ADA, BOB = Owner("ada"), Owner("bob")


# ---- any life of a cache


def whole(sent: Sent) -> array[int]:
    """All tokens of a conversation at its end."""
    return array("i", [*sent.job.tokens, *sent.answer, END])


class Shared(Day):
    """A day of several owners, whose jobs begin alike and continue each other's; their systems may be common."""

    tells_owners = True
    """Whether the engine learns the owners."""

    def submit(self, job: Job) -> None:
        begins = (len(system) for system in SYSTEMS if system and job.tokens[: len(system)].tolist() == list(system))
        n_common = next(begins, 0) if self.random.random() < 0.5 else 0
        owner = Owner(self.random.choice(OWNERS), n_common)
        super().submit(replace(job, owner=owner) if self.tells_owners else job)
        self.sent[-1].job = replace(self.sent[-1].job, owner=owner)

    def everything_agrees(self) -> None:
        super().everything_agrees()
        pool = self.scheduler.pool
        held = [(resident.owner.name, resident.tokens) for resident in pool.ledger]
        held += [(outline.owner.name, outline.tokens) for outline in pool.snapshots.outlines().values()]
        for owner, tokens in held:
            own = (whole(sent) for sent in self.sent if sent.job.owner.name == owner)
            assert not tokens or any(each[: len(tokens)] == tokens for each in own), f"not of {owner!r}: {tokens}"

    def finish(self) -> None:
        super().finish()
        for sent in self.sent:
            first = next(iter(sent.steps), None)
            if isinstance(first, Admitted):
                assert first.n_cached <= self.most(sent), sent.job

    def most(self, sent: Sent) -> int:
        """The most tokens that the owner's other jobs, and what all call common, can have left for this one."""
        tokens, owner = sent.job.tokens, sent.job.owner
        found = 0
        for other in self.sent:
            theirs = other.job.owner
            if other is sent:
                continue
            if theirs.name == owner.name:
                n = common_prefix(tokens, whole(other))
                # A tail behind what has left is found by its tokens; it may be anywhere behind.
                rest = SequenceMatcher(None, tokens[n:].tolist(), whole(other)[n:].tolist(), autojunk=False)
                found = max(found, n + rest.find_longest_match().size)
            elif theirs.n_common == owner.n_common and other.job.tokens[: owner.n_common] == tokens[: owner.n_common]:
                found = max(found, owner.n_common)
        return found


@pytest.mark.grid(0.08, family="memory")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_an_owner_finds_no_more_than_his_own_history_and_what_is_common(seed: int, memory: Memory) -> None:
    Shared(seed, memory, (Tiers(), RAM, APART)[seed % 3], reuse_tail=seed % 2 == 1).pass_by(150)


def test_an_engine_that_knows_no_owners_fails_this_test() -> None:
    day = Shared(1, PLAIN, Tiers())
    day.tells_owners = False
    with pytest.raises(AssertionError):
        day.pass_by(150)


# ---- one prompt after another


SAME = array("i", range(1, 61))


class Cache:
    """One cache, and what each job finds in it."""

    def __init__(self, memory: Memory = PLAIN, tiers: Tiers = RAM, n_seq: int = 6) -> None:
        self.runtime = FakeRuntime(model, frozenset({END}), n_ctx=400, n_seq=n_seq, n_batch=64, memory=memory)
        self.scheduler = scheduler_on(self.runtime, sequences=3, tiers=tiers, show=Numbers().piece)

    def n_cached(self, owner: Owner, tokens: Sequence[int] = SAME, **fields: Any) -> int:
        """How many tokens of this prompt the owner is told of as cached."""
        spans = tuple(Span(at, at + 20, at // 20, at // 20, keep=at == 0) for at in range(0, len(tokens) - 19, 20))
        ticket = Ticket(Job(array("i", tokens), 4, spans=spans, owner=owner, **fields), cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        while not ticket.finished or self.scheduler.running:
            self.scheduler.admit()
            self.scheduler.step()
        admitted = ticket._steps[0]
        assert isinstance(admitted, Admitted)
        return admitted.n_cached

    def drop_all(self) -> None:
        """Let every conversation leave for the tiers."""
        for resident in self.scheduler.pool.ledger.idle():
            self.scheduler.pool.drop(resident)


def test_each_owner_has_his_own_copy_of_an_equal_conversation() -> None:
    cache = Cache()
    assert [cache.n_cached(owner) for owner in (ADA, BOB, UNOWNED, ADA, BOB, UNOWNED)] == [0, 0, 0, 59, 59, 59]
    cache.drop_all()
    assert cache.scheduler.pool.snapshots.counts.in_ram == 3, "none of them stands for another"
    assert [cache.n_cached(owner) for owner in (BOB, UNOWNED, ADA)] == [59, 59, 59]


def test_a_longer_conversation_does_not_replace_the_saved_one_of_another_owner() -> None:
    cache = Cache()
    cache.n_cached(BOB)
    cache.drop_all()
    cache.n_cached(ADA, [*SAME, *range(1, 40)])
    cache.drop_all()
    assert cache.n_cached(BOB) == 59


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_what_is_common_is_found_whole_or_not_at_all(memory: Memory) -> None:
    """Only cells can be shared; a memory that cannot share them shares nothing."""
    shared, own = (20, 59) if memory.share else (0, 40)
    for theirs, mine, tokens, expected in (
        (20, 20, SAME, shared),
        (20, 20, [*SAME[:20], 5, 5, 5], shared),
        (20, 20, [*SAME[:19], 5, *SAME[20:]], 0),  # the last one differs
        (20, 19, SAME, 0),  # a guess of its beginning
        (19, 20, SAME, 0),
        (20, 0, SAME, 0),
        (0, 20, SAME, 0),
    ):
        cache = Cache(memory)
        cache.n_cached(Owner("bob", theirs))
        assert cache.n_cached(Owner("ada", mine), tokens) == expected, (theirs, mine)
        assert cache.n_cached(Owner("bob", theirs)) == own, "it has lost nothing"


def test_a_common_beginning_is_taken_from_no_sequence_that_would_have_to_be_cut() -> None:
    cache = Cache(n_seq=1)
    cache.n_cached(Owner("bob", 20))
    assert cache.n_cached(Owner("ada", 20)) == 0
    assert cache.n_cached(Owner("bob", 20)) == 59, "it came back from the tiers"


@pytest.mark.parametrize("holes", [True, False])
def test_a_common_beginning_with_a_hole_is_not_shared(holes: bool) -> None:
    ledger = Ledger(400, 4, PLAIN)
    source = ledger.new(Owner("bob", 20))
    ledger.extend(source, SAME)
    ledger.evict(source, [(5, 10)])
    assert ledger.find(SAME, Owner("ada", 20), holes=holes) is None
    own = ledger.find(SAME, Owner("bob", 20), holes=holes)
    assert own is not None
    assert own.length == (59 if holes else 5)


def test_no_tail_is_taken_from_another_owner() -> None:
    """Behind an edit, equal tokens are found by themselves: they could be guessed there, too."""
    edited = array("i", [*range(1, 21), *range(50, 60), *range(1, 50)])
    before = array("i", [*range(1, 21), *range(40, 50), *range(1, 50)])
    for owner, expected in ((Owner("bob", 20), True), (Owner("ada", 20), False)):
        ledger = Ledger(400, 4, PLAIN)
        source = ledger.new(Owner("bob", 20))
        ledger.extend(source, before)
        source.n_prompt = len(before)
        job = Job(edited, 4, owner=owner)
        match = ledger.find(edited, owner, holes=False)
        planned = plan(ledger, edited, job, match, limits=Limits(400, 0.75, 0), reserve=4, reuse_tail=True)
        assert not isinstance(planned, NoRoom)
        assert (planned.length, planned.tail is not None) == (20, expected)


def test_a_job_does_not_wait_for_the_prompt_of_another_owner() -> None:
    """The wait would tell that the two begin alike."""
    for owner, n_running in ((BOB, 1), (ADA, 2), (Owner("bob", 9), 1)):
        cache = Cache()
        for each in (BOB, owner):
            job = Job(array("i", [*range(1, 51)] * 3), 4, owner=each)
            cache.scheduler.queue.add(Ticket(job, cast(Any, SilentLoop())))
            cache.scheduler.admit()
            cache.scheduler.step()
        assert len(cache.scheduler.running) == n_running


# ---- on disk


def test_a_restart_keeps_the_owners(tmp_path: Path) -> None:
    tiers = Tiers(ram_bytes=100_000, folder=tmp_path, disk_bytes=1_000_000)
    cache = Cache(tiers=tiers)
    cache.n_cached(BOB)
    while cache.scheduler.pool.save_one():
        pass
    cache.scheduler.pool.close()
    assert len(list(tmp_path.glob("*.kv"))) == 1
    for owner, expected in ((ADA, []), (UNOWNED, []), (BOB, [63])):
        again = Cache(tiers=tiers).scheduler.pool
        assert again.snapshots.flush(30)
        _, found = again.find(SAME, owner, holes=False, spans=())
        assert ([found.match.resident.n_resident] if found else []) == expected
        assert [len(tokens) for tokens in again.beginning_with(SAME[:9], owner)] == expected
        again.snapshots.close()


def snapshot(owner: str = "") -> Snapshot:
    return Snapshot(
        array("i", range(9)),
        ((0, 4, 0), (6, 9, 6)),
        (Span(0, 9, 0, 0, label="user"),),
        4,
        b"state",
        1.0,
        owner=Owner(owner),
    )


def test_a_file_from_before_there_were_owners_is_of_no_owner(tmp_path: Path) -> None:
    """Its name, its version and its facts are those that a server without owners has written."""
    old = snapshot()
    key = old.key("model")
    assert key == "03affd5cff89e2f9f859749f2ede1992"
    head, _ = file.pack(old, file.fingerprint_id("model"), 1, 0.0)
    _, version, n_text, n_tokens, clock = file._PRELUDE.unpack(head[: file._PRELUDE.size])
    facts = json.loads(head[file._PRELUDE.size : file._PRELUDE.size + n_text])
    assert (version, facts.pop("whose")) == (1, "")
    text = json.dumps(facts).encode()
    head = file._PRELUDE.pack(file.MAGIC, version, len(text), n_tokens, clock) + text + old.tokens.tobytes()
    head += blake2b(head, digest_size=32).digest()
    assert file.write(tmp_path, key, head, old, lambda: True)
    assert file.read(file.path(tmp_path, key)) == old
    store = Snapshots("model", PLAIN, 100, ram_bytes=1000, folder=tmp_path, disk_bytes=10_000)
    assert store.flush(30)
    assert [store.find(old.tokens, Owner(owner), holes=True) is not None for owner in OWNERS] == [True, False, False]
    store.close()


def test_a_file_of_an_owner_is_none_that_a_server_without_owners_reads(tmp_path: Path) -> None:
    own = snapshot("ada")
    head, _ = file.pack(own, file.fingerprint_id("model"), 1, 0.0)
    assert file._PRELUDE.unpack(head[: file._PRELUDE.size])[1] == 2
    assert file.write(tmp_path, own.key("model"), head, own, lambda: True)
    assert file.read(file.path(tmp_path, own.key("model"))) == own
    assert len({snapshot(owner).key("model") for owner in OWNERS}) == 3
    assert [covers(own, snapshot(owner)) for owner in OWNERS] == [False, True, False]
