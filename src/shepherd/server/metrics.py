"""`GET /metrics`: what Prometheus asks for, from the engines' own counts and from the requests that have ended.

    Record ─ count ─▶ totals ─┐
    Service.stats() ──────────┴─ families ─▶ text

Nothing is kept beside what the engines count already; every application has a registry of its own. Names and labels are
promised to users (docs/serve.md). Event loop only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from shepherd.engine.stats import EVICTION_BOUNDS_S, CacheStats, Histogram
from shepherd.server.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FIRST_TOKEN_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a cached turn of a small model to a long prompt on a CPU."""

Stats = Mapping[str, CacheStats]

_Row = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


class Metrics:
    """The figures of one application."""

    def __init__(self, stats: Callable[[], Stats], n_archived: Callable[[], int] = lambda: 0) -> None:
        """`stats` and `n_archived`, messages put into the memory since the start: asked at every scrape."""
        self._stats = stats
        self._n_archived = n_archived
        self._answers: Counter[tuple[str, int]] = Counter()
        self._first_token_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, record: Record) -> None:
        """Take a request that has ended into account."""
        self._answers[record.surface, record.status] += 1
        if record.first_s is not None:
            self._first_token_s.observe(record.first_s - record.begun_s)

    def render(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The families, as a registry wants them."""
        yield _counter(
            "shepherd_requests",
            "Requests that have ended, by HTTP status; 0 = the client went away before there was one.",
            ("surface", "status"),
            (((surface, str(status)), count) for (surface, status), count in self._answers.items()),
        )
        yield _histogram(
            "shepherd_time_to_first_token_seconds",
            "From the request's arrival to the first visible piece of its answer, waiting included.",
            self._first_token_s,
        )
        yield _counter(
            "shepherd_archived_messages", "Messages that were put into the memory.", (), [((), self._n_archived())]
        )
        yield from _of_engines(self._stats())


def _of_engines(stats: Stats) -> Iterator[Metric]:
    caches = stats.values()
    yield _counter(
        "shepherd_prompt_tokens",
        "Prompt tokens: found in the KV cache, or computed.",
        ("source",),
        (
            (("cached",), sum(cache.cached_tokens for cache in caches)),
            (("prefilled",), sum(cache.prefilled_tokens for cache in caches)),
        ),
    )
    for name, attribute, text in _TOTALS:
        yield _counter(name, text, (), [((), sum(getattr(cache, attribute) for cache in caches))])
    yield _histogram(
        "shepherd_eviction_seconds", "Time that making room took.", _sum([cache.eviction_s for cache in caches])
    )
    yield _gauge(
        "shepherd_kv_cells",
        "Cells of the KV cache; each holds one token, those that conversations share count once.",
        ("cache", "state"),
        _each(stats, lambda cache: {"used": cache.used, "free": cache.n_ctx - cache.used}),
    )
    yield _gauge(
        "shepherd_sequences", "Conversations in the KV cache.", ("cache", "state"), _each(stats, _sequences_by_state)
    )
    yield _gauge(
        "shepherd_snapshot_bytes",
        "Conversations kept outside of the KV cache.",
        ("cache", "tier"),
        _each(stats, lambda cache: {"ram": cache.ram_bytes, "disk": cache.disk_bytes}),
    )
    for name, attribute, text in _LEVELS_BY_CACHE:
        yield _gauge(name, text, ("cache",), _by_cache(stats, attribute))
    for name, attribute, text in _TOTALS_BY_CACHE:
        yield _counter(name, text, ("cache",), _by_cache(stats, attribute))


_TOTALS = (
    ("shepherd_generated_tokens", "generated_tokens", "Tokens of answers."),
    ("shepherd_evictions", "evictions", "How often old turns left the context of a conversation."),
    ("shepherd_evicted_messages", "evicted_messages", "Messages that left it."),
    ("shepherd_evicted_tokens", "evicted_tokens", "Tokens that left it."),
)
"""Name without its suffix, field of `CacheStats`, help. Over all caches."""

_LEVELS_BY_CACHE = (
    ("shepherd_live_jobs", "live", "Requests that are being computed."),
    ("shepherd_queue_depth", "waiting", "Requests that wait for their turn."),
)
_TOTALS_BY_CACHE = (
    ("shepherd_jobs", "jobs", "Requests that the engine has taken on."),
    ("shepherd_preemptions", "preemptions", "Running requests that were put aside for older ones."),
    ("shepherd_rebases", "rebases", "Conversations that were computed anew to get lower positions."),
    ("shepherd_sequences_dropped", "dropped", "Idle conversations that left the KV cache."),
    ("shepherd_sequences_saved", "saved", "Of those, the ones that were kept in memory or on disk."),
    ("shepherd_sequences_restored", "restored", "Conversations that came back from there."),
)


def _sequences_by_state(cache: CacheStats) -> Mapping[str, int]:
    counts = Counter(sequence.state for sequence in cache.sequences)
    return {state: counts[state] for state in ("prefill", "generate", "idle")}


def _each(stats: Stats, values: Callable[[CacheStats], Mapping[str, int]]) -> Iterator[_Row]:
    for name, cache in stats.items():
        for word, value in values(cache).items():
            yield (name, word), value


def _by_cache(stats: Stats, attribute: str) -> list[_Row]:
    return [((name,), getattr(cache, attribute)) for name, cache in stats.items()]


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    found = Histogram(EVICTION_BOUNDS_S)
    for each in histograms:
        assert each.bounds == found.bounds
        found.counts = [mine + theirs for mine, theirs in zip(found.counts, each.counts, strict=True)]
        found.total += each.total
    return found


def _counter(name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in rows:
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, level in rows:
        family.add_metric(values, level)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    # One copy: the engine thread may count on meanwhile, and the buckets must agree with each other.
    counts = tuple(accumulate(tuple(histogram.counts)))
    bounds = (*map(str, histogram.bounds), "+Inf")
    return HistogramMetricFamily(name, text, list(zip(bounds, counts, strict=True)), histogram.total)
