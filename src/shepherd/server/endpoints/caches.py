"""What the engines hold, as the JSON of `GET /v1/caches`, and back: one shape for the server and for `shepherd top`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, get_args

from shepherd.core.status import ProviderSpending, Spent
from shepherd.engine.stats import CacheStats, Histogram, SequenceStats, State
from shepherd.server.http.caller import sees
from shepherd.server.observe.record import Caller
from shepherd.wire.base import Fields, Json, Range, check_number, field_error, wrong


def encode_caches(
    stats: Mapping[str, CacheStats],
    models: Mapping[str, str],
    server: Mapping[str, int] | None = None,
    spending: Mapping[str, ProviderSpending] | None = None,
) -> Json:
    """`stats` by cache name; `models`: the name of each cache's model; `server`: the counts of the server itself;
    `spending`: what each provider has cost."""
    caches = {}
    for name, cache in stats.items():
        evictions = cache.eviction_s
        histogram = {"bounds": list(evictions.bounds), "counts": list(evictions.counts), "total": evictions.total}
        caches[name] = {"model": models.get(name, ""), **asdict(cache), "eviction_s": histogram}
    body: Json = {"caches": caches} if server is None else {"caches": caches, "server": dict(server)}
    return body | ({"providers": {name: asdict(each) for name, each in spending.items()}} if spending else {})


def seen_by(caller: Caller, stats: Mapping[str, CacheStats]) -> dict[str, CacheStats]:
    """The figures with the conversations that the caller may see: a key of one user has no others."""
    return {
        name: replace(cache, sequences=tuple(each for each in cache.sequences if sees(caller, each.owner)))
        for name, cache in stats.items()
    }


def decode_caches(body: Any) -> dict[str, tuple[str, CacheStats]]:
    """Model and figures by cache name. Fields that another version does not send have their defaults; fields that are
    unknown here are ignored.

    Raises: `InvalidRequest` that names the field.
    """
    caches = _fields(body).get_object("caches")
    return {name: _decode(caches.get_object(name)) for name in caches.body}


def decode_server(body: Any) -> dict[str, int]:
    """The counts of the server itself; empty for a server that is too old to report them.

    Raises: `InvalidRequest` that names the field.
    """
    server = _fields(body).find_object("server") or Fields({})
    return {name: _get(server, name, "int") for name in server.body}


def decode_outcomes(body: Any) -> dict[str, dict[str, float]]:
    """Requests of each provider; empty for a server that has none. Raises: `InvalidRequest` that names the field."""
    outcomes = _fields(body).find_object("outcomes") or Fields({})
    rows = {name: outcomes.get_object(name) for name in outcomes.body}
    return {name: {each: _get(row, each, "float") for each in row.body} for name, row in rows.items()}


def decode_spending(body: Any) -> dict[str, ProviderSpending]:
    """What each provider has cost; empty for a server that is too old to report it, or has none.

    Raises: `InvalidRequest` that names the field.
    """
    providers = _fields(body).find_object("providers") or Fields({})
    return {name: _spending(providers.get_object(name)) for name in providers.body}


def _spending(table: Fields) -> ProviderSpending:
    today, total = (table.get_object(name) for name in ("today", "total"))
    return ProviderSpending(
        Spent(**{each.name: _get(today, each.name, str(each.type)) for each in fields(Spent)}),
        Spent(**{each.name: _get(total, each.name, str(each.type)) for each in fields(Spent)}),
        table.find_integer("budget_tokens", _INT64),
        table.find_number("budget_money", _INT64),
    )


def _fields(body: Any) -> Fields:
    if not isinstance(body, dict):
        raise wrong("the body", "an object", body)
    return Fields(body)


def _decode(cache: Fields) -> tuple[str, CacheStats]:
    values = _plain_values(CacheStats, cache)
    if cache.has("eviction_s"):
        values["eviction_s"] = _histogram(cache.get_object("eviction_s"))
    sequences = (SequenceStats(**_plain_values(SequenceStats, each)) for each in cache.objects("sequences"))
    model = cache.find_any("model")
    return model if isinstance(model, str) else "", CacheStats(**values, sequences=tuple(sequences))


def _plain_values(cls: type[CacheStats | SequenceStats], table: Fields) -> Json:
    """The fields of `cls` that are numbers and texts, checked."""
    plain = (each for each in fields(cls) if each.type in _READERS)
    given = (each for each in plain if each.name in table.body or each.default is MISSING)
    return {each.name: _get(table, each.name, str(each.type)) for each in given}


def _get(table: Fields, name: str, kind: str) -> Any:
    value = _READERS[kind](table, name)
    if value is None and kind != "str | None":
        raise table.error(name, "is missing")
    return value


def _histogram(table: Fields) -> Histogram:
    bounds, counts = (
        [check_number(value, table.at(name), _INT64) for value in table.find_array(name) or ()]
        for name in ("bounds", "counts")
    )
    if len(counts) != len(bounds) + 1:
        raise field_error(table.path, f"has {len(bounds)} bounds and {len(counts)} counts")
    histogram = Histogram(tuple(bounds))
    histogram.counts = [int(count) for count in counts]
    histogram.total = check_number(table.find_any("total"), table.at("total"), _INT64)
    return histogram


def _find_state(table: Fields, name: str) -> str | None:
    state = table.find_string(name)
    if state is not None and state not in get_args(State):
        raise wrong(table.at(name), f"one of {', '.join(get_args(State))}", state)
    return state


_INT64 = Range(-(2**63), 2**63 - 1)
_READERS: Mapping[str, Callable[[Fields, str], Any]] = {
    "int": lambda table, name: table.find_integer(name, _INT64),
    "float": lambda table, name: table.find_number(name, _INT64),
    **dict.fromkeys(("str", "str | None"), lambda table, name: table.find_string(name)),
    "bool": lambda table, name: table.find_boolean(name),
    "State": _find_state,
}
"""By the type of a field, as `engine/stats.py` has it."""
