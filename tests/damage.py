"""Every place of a JSON value, and the value with another one at that place; and JSON values that nobody meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

LEFT_OUT = object()
KINDS: tuple[Any, ...] = (LEFT_OUT, None, True, -1, 1e300, "", "x", [], ["x"], [[]], [None], {}, {"x": []})
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where the values of a JSON value are, itself included; of a list, its first, second and last."""
    yield at
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*at, key))
    elif isinstance(value, list):
        for index in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from places(value[index], (*at, index))


def damaged(value: Any, at: Place, by: Any) -> Any:
    """A copy with another value at a place."""
    if not at:
        return by
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and by is LEFT_OUT:
        del copy[at[0]]
    else:
        copy[at[0]] = damaged(value[at[0]], at[1:], by)
    return copy


def garbage(keys: Sequence[str], words: Sequence[str] = ("",)) -> st.SearchStrategy[Any]:
    """Any JSON values, in objects with these keys; `words`: texts among them."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(words),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=4),
        max_leaves=12,
    )
