"""`/v1/caches`: what engines tell, as JSON and back; and a cache that is emptied from outside."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.in_process import client_of
from tests.scripted_service import ScriptedService, saying

from shepherd.core import EngineDown, InvalidRequest
from shepherd.core.status import CacheUsage, Health
from shepherd.engine.stats import CacheStats, Histogram, SequenceStats
from shepherd.server.endpoints.caches import decode_caches, decode_server, encode_caches

NUMBERS = st.floats(-1e18, 1e18)
SEQUENCES = st.builds(
    SequenceStats,
    **{each.name: st.integers(0, 2**62) for each in fields(SequenceStats) if each.type == "int"},
    tokens_per_s=NUMBERS,
    idle_s=NUMBERS,
    owner=st.text(max_size=5),
    background=st.booleans(),
)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    histogram = Histogram(tuple(sorted(draw(st.sets(NUMBERS, min_size=1, max_size=5)))))
    for value in draw(st.lists(st.floats(0, 1e6), max_size=5)):
        histogram.observe(value)
    return histogram


STATS = st.builds(
    CacheStats,
    **{each.name: st.integers(0, 2**62) for each in fields(CacheStats) if each.type == "int"},
    eviction_s=histograms(),
    sequences=st.lists(SEQUENCES, max_size=3).map(tuple),
)


def shown(stats: CacheStats) -> dict[str, Any]:
    """Comparable: a histogram is known by what it holds."""
    facts = {each.name: getattr(stats, each.name) for each in fields(stats)}
    histogram = facts.pop("eviction_s")
    return facts | {"bounds": histogram.bounds, "counts": histogram.counts, "total": histogram.total}


@given(st.dictionaries(st.text(max_size=5), STATS, max_size=3))
def test_encoded_caches_are_decoded_unchanged(stats: Mapping[str, CacheStats]) -> None:
    body = json.loads(json.dumps(encode_caches(stats, dict.fromkeys(stats, "lamb"))))
    found = decode_caches(body)
    assert {name: (model, shown(cache)) for name, (model, cache) in found.items()} == {
        name: ("lamb", shown(cache)) for name, cache in stats.items()
    }


def test_what_another_version_says_more_or_less_is_no_error() -> None:
    ((model, cache),) = decode_caches({"caches": {"a": {"n_ctx": 5, "news": [1]}}, "more": 1}).values()
    assert (model, shown(cache)) == ("", shown(CacheStats(5)))


INT64 = "from -9223372036854775808 to 9223372036854775807"
SEQUENCE: dict[str, Any] = {
    "seq": 0, "state": "idle", "session": None, "tokens": 1, "evicted": 0, "cached": 0, "new": 1, "generated": 0,
    "tokens_per_s": 0, "idle_s": 1.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "the body must be an object, not an empty array"),
        ({}, "caches is missing"),
        ({"caches": []}, "caches must be an object, not an empty array"),
        ({"caches": {"a": 3}}, "caches.a must be an object, not 3"),
        ({"caches": {"a": {}}}, "caches.a.n_ctx is missing"),
        (
            {"caches": {"a": {"n_ctx": "5"}}},
            f'caches.a.n_ctx must be an integer {INT64}, not "5"',
        ),
        (
            {"caches": {"a": {"n_ctx": True}}},
            f"caches.a.n_ctx must be an integer {INT64}, not true",
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "used": 1.5}}},
            f"caches.a.used must be an integer {INT64}, not 1.5",
        ),
        (
            {"caches": {"a": {"n_ctx": 10**400}}},
            f"caches.a.n_ctx must be an integer {INT64}, not 1000000000000000000000000000000000000000…",
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "sequences": [SEQUENCE | {"idle_s": float("inf")}]}}},
            f"caches.a.sequences[0].idle_s must be a number {INT64}, not inf",
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "sequences": [SEQUENCE | {"idle_s": float("nan")}]}}},
            f"caches.a.sequences[0].idle_s must be a number {INT64}, not nan",
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "sequences": [SEQUENCE | {"session": 5}]}}},
            "caches.a.sequences[0].session must be a string, not 5",
        ),
        ({"caches": {"a": {"n_ctx": 5, "sequences": {}}}}, "caches.a.sequences must be an array, not an object"),
        ({"caches": {"a": {"n_ctx": 5, "sequences": [1]}}}, "caches.a.sequences[0] must be an object, not 1"),
        (
            {"caches": {"a": {"n_ctx": 5, "sequences": [SEQUENCE, SEQUENCE | {"state": "asleep"}]}}},
            'caches.a.sequences[1].state must be one of prefill, generate, idle, not "asleep"',
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "sequences": [SEQUENCE | {"state": ["idle"]}]}}},
            "caches.a.sequences[0].state must be a string, not an array",
        ),
        ({"caches": {"a": {"n_ctx": 5, "sequences": [{}]}}}, "caches.a.sequences[0].seq is missing"),
        ({"caches": {"a": {"n_ctx": 5, "eviction_s": 1}}}, "caches.a.eviction_s must be an object, not 1"),
        ({"caches": {"a": {"n_ctx": 5, "eviction_s": {}}}}, "caches.a.eviction_s has 0 bounds and 0 counts"),
        (
            {"caches": {"a": {"n_ctx": 5, "eviction_s": {"bounds": [1], "counts": [1], "total": 0}}}},
            "caches.a.eviction_s has 1 bounds and 1 counts",
        ),
        (
            {"caches": {"a": {"n_ctx": 5, "eviction_s": {"bounds": [1], "counts": [1, "2"], "total": 0}}}},
            f'caches.a.eviction_s.counts must be a number {INT64}, not "2"',
        ),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_the_place(body: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_caches(body)
    assert caught.value.message == said


# ---- over HTTP

BUSY = CacheStats(
    100,
    used=40,
    live=1,
    sequences=(
        SequenceStats(0, "generate", "s-1", 30, 5, 20, 4, 6, 12.5, 0.0, drafted=5, accepted=3),
        SequenceStats(3, "idle", None, 10, 0, 0, 9, 1, 0.0, 61.5, "ada"),
    ),
)
HEALTH = Health("ok", "llamacpp", "big.gguf", {"main": CacheUsage(100, 40, "big"), "a/b": CacheUsage(50, 0, "small")})


def service_of(**stats: CacheStats) -> ScriptedService:
    return ScriptedService(saying("Hi"), health=HEALTH, stats=stats)


async def test_every_cache_is_reported_with_its_sequences() -> None:
    async with client_of(service_of(main=BUSY, **{"a/b": CacheStats(50)})) as client:
        answer = await client.get("/v1/caches")
    assert answer.headers["content-type"] == "application/json"
    caches = answer.json()["caches"]
    assert [*caches] == ["main", "a/b"]
    assert caches["main"]["model"] == "big"
    assert (caches["main"]["used"], caches["main"]["live"]) == (40, 1)
    assert caches["main"]["sequences"][0] == {
        "seq": 0, "state": "generate", "session": "s-1", "tokens": 30, "evicted": 5, "cached": 20, "new": 4,
        "generated": 6, "tokens_per_s": 12.5, "idle_s": 0.0, "owner": "", "background": False,
        "drafted": 5, "accepted": 3,
    }  # fmt: skip
    assert caches["a/b"]["sequences"] == []


async def test_half_a_character_in_a_session_name_breaks_nothing() -> None:
    odd = CacheStats(9, sequences=(SequenceStats(0, "idle", "\ud83d", 1, 0, 0, 1, 0, 0.0, 0.0),))
    async with client_of(service_of(main=odd)) as client:
        answer = await client.get("/v1/caches")
    assert answer.json()["caches"]["main"]["sequences"][0]["session"] == "?"


@pytest.mark.parametrize(("path", "name"), [("main", "main"), ("a%2Fb", "a/b"), ("a/b", "a/b")])
async def test_a_cache_is_emptied_by_its_name(path: str, name: str) -> None:
    service = service_of(main=BUSY, **{"a/b": BUSY})
    async with client_of(service) as client:
        answer = await client.delete(f"/v1/caches/{path}")
        left = (await client.get("/v1/caches")).json()["caches"]
    assert (answer.status_code, answer.json()) == (200, {"cache": name, "cleared": True})
    assert service.cleared == [name]
    assert {each: cache["used"] for each, cache in left.items()} == {"main": 40, "a/b": 40} | {name: 0}


@pytest.mark.parametrize(("path", "name"), [("Main", "Main"), ("%00", "\0"), ("x" * 500, "x" * 80)])
async def test_an_unknown_cache_is_a_404_that_names_the_known_ones(path: str, name: str) -> None:
    service = service_of(main=BUSY, **{"a/b": BUSY})
    async with client_of(service) as client:
        answer = await client.delete(f"/v1/caches/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": f"there is no cache {name!r}; the caches are: main, a/b",
        "type": "invalid_request_error",
        "param": None,
        "code": "404",
    }
    assert service.cleared == []


async def test_the_counts_of_the_server_itself_are_reported_too() -> None:
    async with client_of(service_of(), api_keys=("k",)) as client:
        headers = {"x-api-key": "k"}
        await client.post("/v1/chat/completions", json={"messages": []}, headers=headers)
        await client.get("/v1/models")
        body = (await client.get("/v1/caches", headers=headers)).json()
    assert decode_server(body) == {
        "requests": 1,
        "active": 0,
        "refused": 1,
        "recalled_tokens": 0,
        "first_prompt_tokens": 0,
    }


def test_an_older_server_reports_no_counts() -> None:
    assert decode_server({"caches": {}}) == {}


@pytest.mark.parametrize("broken", [1, [], {"active": "2"}, {"active": True}, {"active": None}])
def test_counts_that_are_none_are_named(broken: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^server"):
        decode_server({"server": broken})


async def test_a_service_without_caches_says_so() -> None:
    async with client_of(service_of()) as client:
        assert (await client.get("/v1/caches")).json()["caches"] == {}
        assert "the caches are: none" in (await client.delete("/v1/caches/main")).json()["error"]["message"]


async def test_a_cache_whose_engine_is_down_is_not_emptied() -> None:
    class Down(ScriptedService):
        async def clear(self, name: str) -> None:
            raise EngineDown("the engine is down")

    async with client_of(Down(saying("Hi"))) as client:
        answer = await client.delete("/v1/caches/main")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["message"] == "the engine is down"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/caches"), ("DELETE", "/v1/caches/main"), ("GET", "/metrics")]
)
async def test_the_report_of_the_caches_needs_the_key(method: str, path: str) -> None:
    service = ScriptedService(saying("Hi"))
    async with client_of(service, api_keys=("k",)) as client:
        refused = await client.request(method, path)
        allowed = await client.request(method, path, headers={"authorization": "Bearer k"})
    assert refused.status_code == 401
    assert allowed.status_code == 200
    assert len(service.cleared) == (method == "DELETE")


async def test_no_web_page_may_empty_a_cache() -> None:
    service = ScriptedService(saying("Hi"))
    async with client_of(service) as client:
        answer = await client.delete("/v1/caches/main", headers={"origin": "https://example.com"})
    assert answer.status_code == 403
    assert service.cleared == []
