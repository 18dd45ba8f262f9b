"""The drafter against a naive one: what it proposes stands in the text, behind the longest place like its end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random

import pytest

from shepherd.engine.draft import LONGEST, N_KEY, N_PLACES, N_TOKENS, NEAR, SuffixDrafter


def longest(tokens: Sequence[int]) -> int:
    """The length of the longest end that stands before, too, at least `N_KEY`; 0 without one. O(n²)."""
    best = N_KEY - 1
    for at in range(1, len(tokens)):
        while best < at and tokens[at - best - 1 : at] == tokens[len(tokens) - best - 1 :]:
            best += 1
    return best if best >= N_KEY else 0


def follows(tokens: Sequence[int], n: int, draft: Sequence[int]) -> bool:
    """Whether the draft is what stands behind a place like the last `n` tokens, as often as it fits at the end."""
    places = (at for at in range(n, len(tokens)) if tokens[at - n : at] == tokens[len(tokens) - n :])
    return any([tokens[at + i % (len(tokens) - at)] for i in range(len(draft))] == [*draft] for at in places)


def text(random: Random, n: int, n_words: int) -> list[int]:
    """Made of pieces of itself, as an edited file is."""
    made = [random.randrange(n_words) for _ in range(n_words)]
    while len(made) < n:
        at = random.randrange(len(made))
        made += made[at : at + random.randrange(40)]
        made += [random.randrange(n_words) for _ in range(random.randrange(3))]
    return made[:n]


@pytest.mark.parametrize("seed", range(12))
def test_the_longest_place_is_found_however_the_tokens_come(seed: int) -> None:
    random = Random(seed)
    whole = text(random, 260, random.choice([25, 60]))
    drafter, n_read, is_crowded = SuffixDrafter(random.choice([0, 260])), 0, False
    n_found = 0
    while n_read < len(whole):
        n = random.choice([1, 1, 1, 2, LONGEST + 8])
        drafter.extend(array("i", whole[n_read : n_read + n]))
        n_read = min(n_read + n, len(whole))
        known = whole[:n_read]
        # Of a key that stands in many places, only the newest are compared.
        is_crowded |= sum(known[at : at + N_KEY] == known[-N_KEY:] for at in range(n_read)) > N_PLACES // 2
        if drafter.n_matched >= N_KEY:
            n_found += 1
            assert follows(known, min(drafter.n_matched, n_read), drafter.propose(7))
        assert is_crowded or drafter.n_matched >= min(longest(known), LONGEST)
    assert n_found > 5


def test_without_a_place_nothing_is_proposed() -> None:
    drafter = SuffixDrafter()
    assert (drafter.n_matched, drafter.propose(5)) == (0, array("i"))
    drafter.extend(range(50))
    assert (drafter.n_matched, drafter.propose(5)) == (0, array("i"))
    drafter.extend([7, 8])
    assert (drafter.n_matched, drafter.propose(5)) == (0, array("i")), "two tokens say too little"
    drafter.extend([9])
    assert (drafter.n_matched, [*drafter.propose(5)]) == (3, [10, 11, 12, 13, 14])


def test_what_repeats_at_the_end_is_proposed_over_and_over() -> None:
    drafter = SuffixDrafter()
    drafter.extend([1, 2, 3, 1, 2, 3])
    assert [*drafter.propose(8)] == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize("written", [[99], [99, 98], [], [4, 5]], ids=["replaced", "by two", "left out", "repeated"])
def test_behind_a_changed_word_the_draft_goes_on_at_once(written: list[int]) -> None:
    source = [*range(1, 40)]
    drafter = SuffixDrafter()
    drafter.extend([*source, 77])
    drafter.extend([*source[:5], *written, 8])
    assert drafter.n_matched >= 1
    assert [*drafter.propose(3)] == [9, 10, 11]


def test_a_match_that_has_broken_goes_on_only_near_its_place() -> None:
    source = [*range(1, 60)]
    drafter = SuffixDrafter()
    drafter.extend([*source, 77])
    drafter.extend(source[:5])
    assert drafter.n_matched
    drafter.extend([6 + NEAR])
    assert not drafter.n_matched


def test_its_memory_has_a_limit_and_what_is_newest_stays() -> None:
    drafter, random = SuffixDrafter(N_TOKENS), Random(1)
    for _ in range(6):
        drafter.extend(array("i", (random.randrange(50_000) for _ in range(N_TOKENS // 3))))
        assert drafter.size_bytes < 4 << 20
    last = [random.randrange(50_000) for _ in range(40)]
    drafter.extend(last)
    drafter.extend(last[:5])
    assert [*drafter.propose(10)] == last[5:15]
    drafter.extend(array("i", range(2 * N_TOKENS)))
    assert drafter.size_bytes < 4 << 20
