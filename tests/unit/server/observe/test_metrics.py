"""`GET /metrics`, read back by Prometheus' own parser."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.in_process import client_of
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.app.usage import Totals
from shepherd.core import (
    CallStarted,
    EngineError,
    Event,
    Evicted,
    Finished,
    RateLimited,
    ReasoningDelta,
    Started,
    TextDelta,
    Usage,
)
from shepherd.core.status import ProviderSpending, Spent
from shepherd.engine.stats import EVICTION_BOUNDS_S, CacheStats, Histogram, SequenceStats
from shepherd.server.observe.metrics import DURATION_BOUNDS_S, FIRST_TOKEN_BOUNDS_S, REFUSALS, Metrics
from shepherd.server.observe.record import Record

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}

Key = tuple[str, frozenset[tuple[str, str]]]


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


def read(text: str) -> dict[Key, float]:
    """Every sample by name and labels; each is there once."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {key(sample.name, **sample.labels): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def rendered(stats: Mapping[str, CacheStats]) -> dict[Key, float]:
    return read(Metrics(lambda: Totals(stats)).render().decode())


def llamas(text: str) -> dict[str, float]:
    """llama-server's figures."""
    lines = [line.split() for line in text.splitlines() if line.startswith("llamacpp:")]
    return {name.partition(":")[2]: float(value) for name, value in lines}


@asynccontextmanager
async def scraping(service: ScriptedService) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(service) as client:
        yield client


def histogram(*values: float) -> Histogram:
    found = Histogram(EVICTION_BOUNDS_S)
    for value in values:
        found.observe(value)
    return found


MAIN = CacheStats(
    4096,
    used=1000,
    live=2,
    waiting=3,
    jobs=9,
    cached_tokens=700,
    prefilled_tokens=300,
    generated_tokens=50,
    evictions=2,
    evicted_messages=6,
    evicted_tokens=412,
    background_jobs=2,
    preemptions=1,
    rebases=4,
    dropped=5,
    saved=4,
    restored=3,
    checkpoint_bytes=1024,
    draft_bytes=512,
    drafted_tokens=30,
    accepted_tokens=21,
    ram_bytes=2048,
    disk_bytes=8192,
    eviction_s=histogram(0.0002, 0.02),
    sequences=(
        SequenceStats(0, "generate", "s", 500, 0, 0, 0, 0, 0.0, 0.0),
        SequenceStats(1, "prefill", None, 400, 0, 0, 0, 0, 0.0, 0.0),
        SequenceStats(2, "idle", None, 100, 0, 0, 0, 0, 0.0, 7.0),
    ),
)
FAST = CacheStats(512, cached_tokens=1, prefilled_tokens=2, generated_tokens=3, eviction_s=histogram(5.0), evictions=1)


async def test_the_promised_metrics_are_there_with_their_labels() -> None:
    async with scraping(ScriptedService(saying("Hi"), stats={"main": MAIN, "fast": FAST})) as client:
        await client.post(CHAT, json=BODY)
        answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = read(answer.text)
    expected = {
        key("shepherd_requests_total", surface="openai-chat", status="200"): 1,
        key("shepherd_prompt_tokens_total", source="cached"): 701,
        key("shepherd_prompt_tokens_total", source="prefilled"): 302,
        key("shepherd_generated_tokens_total"): 53,
        key("shepherd_drafted_tokens_total"): 30,
        key("shepherd_accepted_tokens_total"): 21,
        key("shepherd_draft_bytes", cache="main"): 512,
        key("shepherd_evictions_total"): 3,
        key("shepherd_evicted_messages_total"): 6,
        key("shepherd_evicted_tokens_total"): 412,
        key("shepherd_eviction_seconds_count"): 3,
        key("shepherd_eviction_seconds_bucket", le="0.0003"): 1,
        key("shepherd_eviction_seconds_bucket", le="0.03"): 2,
        key("shepherd_eviction_seconds_bucket", le="1.0"): 2,
        key("shepherd_eviction_seconds_bucket", le="+Inf"): 3,
        key("shepherd_time_to_first_token_seconds_count"): 1,
        key("shepherd_kv_cells", cache="main", state="used"): 1000,
        key("shepherd_kv_cells", cache="main", state="free"): 3096,
        key("shepherd_kv_cells", cache="fast", state="free"): 512,
        key("shepherd_sequences", cache="main", state="generate"): 1,
        key("shepherd_sequences", cache="main", state="idle"): 1,
        key("shepherd_sequences", cache="fast", state="idle"): 0,
        key("shepherd_live_jobs", cache="main"): 2,
        key("shepherd_queue_depth", cache="main"): 3,
        key("shepherd_jobs_total", cache="main"): 9,
        key("shepherd_background_jobs_total", cache="main"): 2,
        key("shepherd_preemptions_total", cache="main"): 1,
        key("shepherd_rebases_total", cache="main"): 4,
        key("shepherd_sequences_dropped_total", cache="main"): 5,
        key("shepherd_sequences_saved_total", cache="main"): 4,
        key("shepherd_sequences_restored_total", cache="main"): 3,
        key("shepherd_checkpoint_bytes", cache="main"): 1024,
        key("shepherd_snapshot_bytes", cache="main", tier="ram"): 2048,
        key("shepherd_snapshot_bytes", cache="main", tier="disk"): 8192,
    }
    assert {name: found[name] for name in expected} == {name: pytest.approx(value) for name, value in expected.items()}
    assert found[key("shepherd_eviction_seconds_sum")] == pytest.approx(5.0202)


async def test_llama_servers_names_are_there_with_figures_of_all_caches() -> None:
    first = replace(MAIN, decodes=20, decoded_chunks=30, prefill_s=1.5, generate_s=5.0)
    second = replace(FAST, decodes=20, decoded_chunks=20, prefill_s=0.51, drafted_tokens=2, accepted_tokens=1)
    async with scraping(ScriptedService(saying("Hi"), stats={"main": first, "fast": second})) as client:
        answer = await client.get("/metrics")
    lines = [line for line in answer.text.splitlines() if "llamacpp:" in line]
    names = {name for line in lines if not line.startswith("#") for name in [line.split()[0]]}
    for name in names:  # their counters are not all called `_total`, which Prometheus' parser would want
        assert [line.split()[1] for line in lines if line.split()[2:3] == [name]] == ["HELP", "TYPE"]
    assert llamas(answer.text) == {
        "prompt_tokens_total": 302,
        "prompt_tokens_cached_total": 701,
        "prompt_seconds_total": pytest.approx(2.01),
        "tokens_predicted_total": 53,
        "tokens_predicted_seconds_total": 5,
        "n_decode_total": 40,
        "n_tokens_max": 500,
        "spec_decode_num_draft_tokens_total": 32,
        "spec_decode_num_accepted_tokens_total": 22,
        "prompt_tokens_seconds": pytest.approx(302 / 2.01),
        "predicted_tokens_seconds": pytest.approx(53 / 5),
        "requests_processing": 2,
        "requests_deferred": 3,
        "n_busy_slots_per_decode": 1.25,
    }


async def test_the_start_of_the_server_stands_in_a_header_with_llama_servers_capitals(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url:
        with await asyncio.to_thread(urlopen, f"{url}/metrics") as answer:
            assert int(dict(answer.getheaders())["Process-Start-Time-Unix"]) > 1_700_000_000


async def test_llama_servers_rates_are_those_since_the_last_scrape() -> None:
    service = ScriptedService(saying("Hi"), stats={"main": replace(MAIN, prefill_s=1.5, generate_s=5.0)})
    rates = []
    async with scraping(service) as client:
        for tokens, seconds in ((50, 5.0), (50, 5.0), (62, 6.5), (0, 0.0)):
            service.caches["main"] = replace(service.caches["main"], generated_tokens=tokens, generate_s=seconds)
            rates.append(llamas((await client.get("/metrics")).text)["predicted_tokens_seconds"])
    assert rates == [10, 0, 8, 0]


async def test_before_anything_has_happened_the_sums_are_there_and_zero() -> None:
    found = rendered({})
    for name in ("shepherd_evictions_total", "shepherd_generated_tokens_total", "shepherd_eviction_seconds_count"):
        assert found[key(name)] == 0
    assert found[key("shepherd_prompt_tokens_total", source="cached")] == 0
    assert not [name for name, _ in found if name == "shepherd_kv_cells"]


@pytest.mark.parametrize(
    ("events", "status", "has_first"),
    [
        ((Started("m"), TextDelta("a"), Finished("end")), "200", True),
        ((Started("m"), Finished("end")), "200", False),
        ((RateLimited("full", backend="main", retry_after_s=1),), "429", False),
        ((EngineError("broken"),), "500", False),
        ((Started("m"), TextDelta("a"), EngineError("broken")), "500", True),
    ],
)
async def test_every_request_is_counted_by_its_status(events: Any, status: str, has_first: bool) -> None:
    async with scraping(ScriptedService(playing(*events))) as client:
        await client.post(CHAT, json=BODY)
        await client.post("/chat/completions", json=BODY)
        found = read((await client.get("/metrics")).text)
    counted = {labels: value for (name, labels), value in found.items() if name == "shepherd_requests_total"}
    assert counted == {frozenset({("surface", "openai-chat"), ("status", status)}): 2}
    assert found[key("shepherd_time_to_first_token_seconds_count")] == 2 * has_first


async def test_a_request_that_could_not_be_read_is_counted_too() -> None:
    async with scraping(ScriptedService(saying("Hi"))) as client:
        await client.post(CHAT, content=b"{")
        found = read((await client.get("/metrics")).text)
    assert found[key("shepherd_requests_total", surface="openai-chat", status="400")] == 1


def test_the_first_token_is_timed_from_the_arrival() -> None:
    metrics = Metrics()
    for seconds in (0.004, 0.2, 500.0):
        metrics.count(Record("id", "s", status=200, begun_s=10.0, first_s=10.0 + seconds))
    found = read(metrics.render().decode())
    name = "shepherd_time_to_first_token_seconds"
    buckets = [found[key(f"{name}_bucket", le=str(bound))] for bound in (0.005, 0.1, 0.25, 120.0, "+Inf")]
    assert buckets == [1, 1, 2, 2, 3]
    assert found[key(f"{name}_sum")] == pytest.approx(500.204)


@pytest.mark.parametrize("event", [TextDelta("b"), ReasoningDelta("b"), CallStarted("1", "f"), Evicted(1, 1)])
def test_only_the_first_visible_thing_is_timed(event: Event) -> None:
    record = Record("id", "s", first_s=11.0)
    record.see(event)
    assert record.first_s == 11.0


TIMES = st.lists(st.floats(0, 1e4), max_size=20)


@given(TIMES, TIMES)
def test_the_buckets_of_all_caches_are_those_of_all_observations(first: list[float], second: list[float]) -> None:
    stats = {"a": replace(MAIN, eviction_s=histogram(*first)), "b": replace(FAST, eviction_s=histogram(*second))}
    found = rendered(stats)
    for bound in EVICTION_BOUNDS_S:
        naive = sum(value <= bound for value in (*first, *second))
        assert found[key("shepherd_eviction_seconds_bucket", le=str(bound))] == naive
    assert found[key("shepherd_eviction_seconds_bucket", le="+Inf")] == len(first) + len(second)
    assert found[key("shepherd_eviction_seconds_count")] == len(first) + len(second)
    assert found[key("shepherd_eviction_seconds_sum")] == pytest.approx(sum(first) + sum(second))


@given(st.text(max_size=10))
def test_any_name_of_a_cache_can_be_read_back(name: str) -> None:
    assert rendered({name: MAIN})[key("shepherd_queue_depth", cache=name)] == 3


async def test_requests_are_counted_by_surface_and_back_end_never_by_a_clients_names() -> None:
    answer = (Started("qwen", "local:qwen", Usage(5, 2)), TextDelta("a"), Finished("end", Usage(5, 2, 1, 4)))
    async with scraping(ScriptedService(playing(*answer))) as client:
        for model in ("made-up-1", "made-up-2"):
            await client.post(CHAT, json={**BODY, "model": model})
            await client.post("/v1/messages", json={**BODY, "model": model, "max_tokens": 9})
        text = (await client.get("/metrics")).text
    assert "made-up" not in text
    found = read(text)
    for surface, count in (("openai-chat", 2), ("anthropic-messages", 2)):
        place = {"surface": surface, "backend": "local:qwen"}
        for name in ("shepherd_first_token_seconds", "shepherd_request_seconds"):
            assert found[key(f"{name}_count", **place)] == count
            assert found[key(f"{name}_bucket", le="+Inf", **place)] == count
            assert found[key(f"{name}_sum", **place)] >= 0
    tokens = {source: found[key("shepherd_tokens_total", backend="local:qwen", source=source)] for source in SOURCES}
    assert tokens == {"cached": 8, "prefilled": 24, "generated": 16}


SOURCES = ("cached", "prefilled", "generated")


def test_the_durations_of_requests_are_counted_by_surface_and_back_end() -> None:
    metrics = Metrics()
    for seconds in (0.02, 3.0, 1000.0):
        metrics.count(Record("id", "s", status=200, backend="b", begun_s=10.0, ended_s=10.0 + seconds))
    found = read(metrics.render().decode())
    place = {"surface": "s", "backend": "b"}
    bounds = (0.01, 0.05, 5.0, 600.0, "+Inf")
    assert [found[key("shepherd_request_seconds_bucket", le=str(at), **place)] for at in bounds] == [0, 1, 2, 2, 3]
    assert not [name for name, _ in found if name.startswith("shepherd_first_token_seconds")]


def test_what_was_not_let_in_is_counted_by_reason_and_every_reason_is_there_from_the_start() -> None:
    metrics = Metrics(lambda: Totals(n_loads={"qwen": 2}), n_active=lambda: 3)
    metrics.refuse("rate")
    metrics.refuse("rate")
    found = read(metrics.render().decode())
    refused = {reason: found[key("shepherd_refused_total", reason=reason)] for reason in REFUSALS}
    assert refused == {**dict.fromkeys(REFUSALS, 0), "rate": 2}
    assert found[key("shepherd_active_requests")] == 3
    assert found[key("shepherd_model_loads_total", model="qwen")] == 2
    assert metrics.totals() == {
        "requests": 0,
        "active": 3,
        "refused": 2,
        "recalled_tokens": 0,
        "first_prompt_tokens": 0,
    }


def test_the_tokens_and_the_money_of_providers_are_counted_since_the_start() -> None:
    spending = {"claude": ProviderSpending(Spent(9, 9, 9, 9.0), Spent(10, 5, 3, 0.25), budget_tokens=100)}
    found = read(Metrics(lambda: Totals(spending=spending)).render().decode())
    tokens = {
        kind: found[key("shepherd_provider_tokens_total", provider="claude", kind=kind)]
        for kind in ("input", "cached", "output")
    }
    assert tokens == {"input": 10, "cached": 5, "output": 3}
    assert found[key("shepherd_provider_cost_total", provider="claude")] == 0.25
    assert not [name for name, _ in read(Metrics().render().decode()) if name.startswith("shepherd_provider")]


def test_applications_count_for_themselves_and_nothing_is_left_behind() -> None:
    before = {family.name for family in REGISTRY.collect()}
    one, other = Metrics(), Metrics()
    one.count(Record("id", "s", status=200))
    assert b"shepherd_requests_total{" in one.render()
    assert b"shepherd_requests_total{" not in other.render()
    assert {family.name for family in REGISTRY.collect()} == before


def test_bounds_are_in_order() -> None:
    for bounds in (FIRST_TOKEN_BOUNDS_S, DURATION_BOUNDS_S):
        assert list(bounds) == sorted(set(bounds))
