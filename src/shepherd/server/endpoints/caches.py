"""What the engines hold, as the JSON of `GET /v1/caches`, and back: one shape for the server and for who watches it.

Not here: where the figures come from (`engine/stats.py`) and what they look like to a person (`cli/command/top.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any, get_args

from shepherd.engine.stats import CacheStats, Histogram, SequenceStats, State

Json = dict[str, Any]


def encode_caches(
    stats: Mapping[str, CacheStats], models: Mapping[str, str], server: Mapping[str, int] | None = None
) -> Json:
    """`stats` by cache name; `models`: the name of each cache's model; `server`: the counts of the server itself."""
    caches = {name: {"model": models.get(name, ""), **_encode(cache)} for name, cache in stats.items()}
    return {"caches": caches} if server is None else {"caches": caches, "server": dict(server)}


def _encode(cache: CacheStats) -> Json:
    histogram = cache.eviction_s
    return {
        **{each.name: getattr(cache, each.name) for each in fields(cache)},
        "eviction_s": {"bounds": list(histogram.bounds), "counts": list(histogram.counts), "total": histogram.total},
        "sequences": [asdict(sequence) for sequence in cache.sequences],
    }


def decode_caches(body: Any) -> dict[str, tuple[str, CacheStats]]:
    """Model and figures by cache name. What another version does not say has its default; what it says more is ignored.

    Raises: `ValueError` that names what is wrong.
    """
    found = _table(_table(body, "the body").get("caches"), "caches")
    return {name: _decode(entry, f"caches.{name}") for name, entry in found.items()}


def decode_server(body: Any) -> dict[str, int]:
    """The counts of the server itself; empty where it is too old to tell them.

    Raises: `ValueError` that names what is wrong.
    """
    found = _table(_table(body, "the body").get("server", {}), "server")
    for name, value in found.items():
        if not _KINDS["int"](value):
            raise ValueError(f"server.{name} is {value!r:.80}")
    return found


def _decode(body: Any, place: str) -> tuple[str, CacheStats]:
    table = _table(body, place)
    values = _values(CacheStats, table, place)
    if "eviction_s" in table:
        values["eviction_s"] = _histogram(table["eviction_s"], f"{place}.eviction_s")
    sequences = _list(table.get("sequences", []), f"{place}.sequences")
    places = [f"{place}.sequences[{index}]" for index in range(len(sequences))]
    values["sequences"] = tuple(
        SequenceStats(**_values(SequenceStats, _table(entry, where), where))
        for entry, where in zip(sequences, places, strict=True)
    )
    model = table.get("model", "")
    return model if isinstance(model, str) else "", CacheStats(**values)


def _values(cls: type[CacheStats | SequenceStats], table: Json, place: str) -> Json:
    """The plain fields of `cls`, checked."""
    plain: list[Field[Any]] = [each for each in fields(cls) if each.type in _KINDS]
    values = {}
    for each in plain:
        if each.name not in table:
            if each.default is MISSING:
                raise ValueError(f"{place}.{each.name} is missing")
            continue
        value, accepts = table[each.name], _KINDS[str(each.type)]
        if not accepts(value):
            raise ValueError(f"{place}.{each.name} is {value!r:.80}")
        values[each.name] = value
    return values


def _histogram(body: Any, place: str) -> Histogram:
    table = _table(body, place)
    bounds, counts = (_list(table.get(name), f"{place}.{name}") for name in ("bounds", "counts"))
    total: Any = table.get("total")
    if not all(map(_is_number, (*bounds, *counts, total))):
        raise ValueError(f"{place} holds what is no number")
    if len(counts) != len(bounds) + 1:
        raise ValueError(f"{place} has {len(bounds)} bounds and {len(counts)} counts")
    histogram = Histogram(tuple(bounds))
    histogram.counts = counts
    histogram.total = total
    return histogram


def _table(value: Any, place: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is no object")  # noqa: TRY004 - all that is wrong with a body is one kind of error
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{place} is no array")  # noqa: TRY004 - as above
    return value


def _is_number(value: Any) -> bool:
    # bool is an int in Python, not here; JSON as Python reads it has NaN, infinities and numbers of any length.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -(2**63) <= value < 2**63


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and _is_number(value),
    "float": _is_number,
    "str | None": lambda value: value is None or isinstance(value, str),
    "State": lambda value: value in get_args(State),
}
"""By a field's type, as it is written in `engine/stats.py`: which values of JSON it takes."""
