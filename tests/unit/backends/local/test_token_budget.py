"""The one formula for how much room an answer has (K14, K15, C9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.local.token_budget import TokenBudget, budget_for
from shepherd.core import ContextFull

CASES: list[tuple[dict[str, Any], TokenBudget | tuple[int, int]]] = [
    # error: the whole prompt counts, and what is left is the answer's
    ({"n_prompt": 60, "n_kept": 10, "on_full": "error"}, TokenBudget(40, 6)),
    ({"n_prompt": 60, "n_kept": 10, "on_full": "error", "asked": 64_000}, TokenBudget(40, 6)),
    ({"n_prompt": 60, "n_kept": 10, "on_full": "error", "asked": 3}, TokenBudget(3, 3)),
    ({"n_prompt": 97, "n_kept": 10, "on_full": "error", "asked": 3}, TokenBudget(3, 3)),
    ({"n_prompt": 98, "n_kept": 10, "on_full": "error", "asked": 3}, (101, 100)),
    ({"n_prompt": 95, "n_kept": 10, "on_full": "error"}, (101, 100)),
    ({"n_prompt": 100, "n_kept": 10, "on_full": "error", "reserve": 0}, (101, 100)),
    ({"n_prompt": 60, "n_kept": 10, "on_full": "error", "asked": 41, "strict": True}, (101, 100)),
    ({"n_prompt": 60, "n_kept": 10, "on_full": "error", "asked": 40, "strict": True}, TokenBudget(40, 40)),
    # evict: only what can never leave counts
    ({"n_prompt": 600, "n_kept": 10, "on_full": "evict"}, TokenBudget(50, 6)),
    ({"n_prompt": 600, "n_kept": 70, "on_full": "evict"}, TokenBudget(29, 6)),
    ({"n_prompt": 600, "n_kept": 10, "on_full": "evict", "asked": 64_000}, TokenBudget(89, 6)),
    ({"n_prompt": 600, "n_kept": 10, "on_full": "evict", "asked": 3}, TokenBudget(3, 3)),
    ({"n_prompt": 600, "n_kept": 94, "on_full": "evict"}, TokenBudget(6, 6)),
    ({"n_prompt": 600, "n_kept": 95, "on_full": "evict"}, (101, 100)),
    ({"n_prompt": 600, "n_kept": 20, "on_full": "evict", "asked": 81, "strict": True}, (101, 100)),
]


@pytest.mark.parametrize(("given_", "wanted"), CASES)
def test_an_answer_gets_what_is_left_or_the_request_is_told_what_it_needs(
    given_: dict[str, Any], wanted: TokenBudget | tuple[int, int]
) -> None:
    if isinstance(wanted, TokenBudget):
        assert budget_for(n_ctx=100, **given_) == wanted
    else:
        with pytest.raises(ContextFull) as caught:
            budget_for(n_ctx=100, cache="main", **given_)
        assert (caught.value.needed, caught.value.limit) == wanted
        assert caught.value.cache == "main"
        assert caught.value.n_prompt == given_["n_prompt"]


requests = st.fixed_dictionaries(
    {
        "n_prompt": st.integers(1, 300),
        "n_ctx": st.integers(1, 200),
        "on_full": st.sampled_from(["error", "evict"]),
        "asked": st.none() | st.integers(1, 400),
        "reserve": st.none() | st.integers(0, 50),
        "strict": st.booleans(),
    }
)


@given(requests, st.floats(0, 1))
def test_whatever_is_granted_fits_beside_what_stays(request: dict[str, Any], part: float) -> None:
    n_kept = int(request["n_prompt"] * part)
    taken = n_kept if request["on_full"] == "evict" else request["n_prompt"]
    room, refused = None, None
    try:
        room = budget_for(n_kept=n_kept, **request)
    except ContextFull as error:
        refused = error
    if room is None:
        assert refused is not None
        assert refused.needed > refused.limit == request["n_ctx"]
        assert refused.needed > taken
        return
    assert 1 <= room.reserve <= room.max_tokens
    assert taken + room.max_tokens <= request["n_ctx"]
    if asked := request["asked"]:
        assert room.max_tokens == asked if request["strict"] else room.max_tokens <= asked
