"""The ledger against a naive list, and its checker against planted faults."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.engine.ledger import Ledger, LedgerError, common_prefix

tokens = st.lists(st.integers(0, 3), max_size=40)


@given(tokens, tokens)
def test_the_common_prefix_is_the_naive_one(a: list[int], b: list[int]) -> None:
    naive = 0
    while naive < min(len(a), len(b)) and a[naive] == b[naive]:
        naive += 1
    assert common_prefix(array("i", a), array("i", b)) == naive


@given(st.integers(0, 9000), st.integers(1, 9000), st.booleans())
def test_the_common_prefix_is_found_beyond_one_block(n: int, extra: int, shorter: bool) -> None:
    a = array("i", range(n)) + array("i", [-1] * extra)
    b = array("i", range(n)) + (array("i") if shorter else array("i", [-2] * extra))
    assert common_prefix(a, b) == common_prefix(b, a) == n


operations = st.lists(
    st.one_of(st.tuples(st.just("extend"), tokens), st.tuples(st.just("truncate"), st.integers(0, 60)))
)


@given(operations, tokens.filter(bool))
def test_a_ledger_is_a_list(ops: list[tuple[str, list[int] | int]], prompt: list[int]) -> None:
    ledger, naive = Ledger(), list[int]()
    for _, argument in ops:
        if isinstance(argument, int):
            ledger.truncate(argument)
            del naive[argument:]
        else:
            ledger.extend(argument)
            naive += argument
        ledger.check(len(naive))
        assert ledger.tokens.tolist() == naive
    matched = ledger.match(array("i", prompt))
    assert naive[:matched] == prompt[:matched]
    assert matched == min(common_prefix(array("i", naive), array("i", prompt)), len(prompt) - 1)


def test_the_last_prompt_token_is_always_left_to_decode() -> None:
    ledger = Ledger()
    ledger.extend([1, 2, 3])
    assert ledger.match(array("i", [1, 2, 3])) == 2


@pytest.mark.parametrize("wrong", [2, 4])
def test_a_cache_of_another_length_is_noticed(wrong: int) -> None:
    ledger = Ledger()
    ledger.extend([1, 2, 3])
    with pytest.raises(LedgerError, match="3 tokens"):
        ledger.check(wrong)
