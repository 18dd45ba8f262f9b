"""`GET /metrics` for Prometheus: the engines' own counts, and those of the requests that have ended.

    Record ─ count ─▶ totals ─┐
    Service.stats() ──────────┴─ families ─▶ text

Each application has a registry of its own. Names and labels are promised to users (docs/serve.md). The label of a model
is the back end that answers (`local:qwen`), never the name in the request: the number of labels must stay bounded.
Event loop only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
from shepherd.server.observe.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FIRST_TOKEN_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a cached turn of a small model to a long prompt on a CPU."""

DURATION_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""From a count of tokens to the timeouts of clients."""

REFUSALS = ("key", "host", "origin", "rate", "client", "house")
"""Why a request is refused: see `auth` and `admission`. `house` = all callers together send too many."""

Stats = Mapping[str, CacheStats]

_Row = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


class Metrics:
    """The figures of one application."""

    def __init__(
        self,
        stats: Callable[[], Stats],
        n_archived: Callable[[], int] = lambda: 0,
        *,
        n_active: Callable[[], int] = lambda: 0,
        loads: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Called at every scrape: `stats`; `n_archived`, messages put into the memory since the start;
        `n_active`, requests that are being answered; `loads`, how often each model was loaded since the start."""
        self._stats = stats
        self._n_archived = n_archived
        self._n_active = n_active
        self._loads = loads
        self._answers: Counter[tuple[str, int]] = Counter()
        self._refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._first_token_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self._first_tokens_s = _histograms(FIRST_TOKEN_BOUNDS_S)
        self._durations_s = _histograms(DURATION_BOUNDS_S)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, record: Record) -> None:
        """Count a request that has ended."""
        self._answers[record.surface, record.status] += 1
        place = (record.surface, record.backend)
        if record.first_s is not None:
            self._first_token_s.observe(record.first_s - record.begun_s)
            self._first_tokens_s[place].observe(record.first_s - record.begun_s)
        if record.ended_s is not None:
            self._durations_s[place].observe(record.ended_s - record.begun_s)
        if record.started:
            usage = record.usage
            for source, n_tokens in (
                ("cached", usage.cache_read),
                ("prefilled", usage.input + usage.cache_write),
                ("generated", usage.output),
            ):
                self._tokens[record.backend, source] += n_tokens

    def refuse(self, reason: str) -> None:
        """Count a refused request; `reason` is one of `REFUSALS`."""
        self._refused[reason] += 1

    def totals(self) -> dict[str, int]:
        """For `GET /v1/caches`: requests that have ended, that are being answered, and that were not let in."""
        return {
            "requests": self._answers.total(),
            "active": self._n_active(),
            "refused": self._refused.total(),
        }

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
        for name, text, histograms in (
            ("shepherd_first_token_seconds", "The same, by surface and by what answers.", self._first_tokens_s),
            ("shepherd_request_seconds", "From a request's arrival to its end.", self._durations_s),
        ):
            yield _histogram_by_place(name, text, histograms)
        yield _counter(
            "shepherd_tokens",
            "Tokens of requests that have ended, by what answers: of prompts, found in a cache or computed; generated.",
            ("backend", "source"),
            self._tokens.items(),
        )
        yield _counter(
            "shepherd_refused",
            "Requests that were not let in: for their key, Host or Origin; too many per minute, of one client, in all.",
            ("reason",),
            (((reason,), count) for reason, count in self._refused.items()),
        )
        yield _gauge("shepherd_active_requests", "Requests that are being answered.", (), [((), self._n_active())])
        yield _counter(
            "shepherd_model_loads",
            "How often a model was loaded.",
            ("model",),
            (((model,), count) for model, count in self._loads().items()),
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
    ("shepherd_engine_quiet_seconds", "quiet_s", "How long work has waited without any progress; 0 while it goes on."),
)
_TOTALS_BY_CACHE = (
    ("shepherd_jobs", "jobs", "Requests that the engine has taken on."),
    ("shepherd_preemptions", "preemptions", "Running requests that were put aside for older ones."),
    ("shepherd_rebases", "rebases", "Conversations that were computed anew to get lower positions."),
    ("shepherd_sequences_dropped", "dropped", "Idle conversations that left the KV cache."),
    ("shepherd_sequences_saved", "saved", "Of those, the ones that were kept in memory or on disk."),
    ("shepherd_sequences_restored", "restored", "Conversations that came back from there."),
    ("shepherd_engine_stalls", "stalls", "Times that the engine made no progress for too long while work waited."),
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
    return HistogramMetricFamily(name, text, _buckets(histogram), histogram.total)


_Places = defaultdict[tuple[str, str], Histogram]
"""By surface and by what answers."""


def _histograms(bounds: tuple[float, ...]) -> _Places:
    return defaultdict(lambda: Histogram(bounds))


def _histogram_by_place(name: str, text: str, histograms: _Places) -> Metric:
    family = HistogramMetricFamily(name, text, labels=("surface", "backend"))
    for place, histogram in histograms.items():
        family.add_metric(place, _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    # One copy: the engine thread may count on meanwhile, and the buckets must agree with each other.
    counts = tuple(accumulate(tuple(histogram.counts)))
    return list(zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True))
