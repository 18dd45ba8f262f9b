"""`GET /metrics` for Prometheus: the engines' own counts, and those of the requests that have ended.

    Record ─ count ─▶ totals ─┐
    Service.totals() ─────────┴─ families ─▶ text

Each application has a registry of its own. Names and labels are promised to users (docs/serve.md). The label of a model
is the back end that answers (`local:qwen`), never the name in the request: the number of labels must stay bounded.
Event loop only.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from shepherd.app.usage import Totals
from shepherd.core.status import ProviderSpending, ReplicaStatus
from shepherd.engine.stats import EVICTION_BOUNDS_S, CacheStats, Histogram
from shepherd.server.observe.llama_metrics import LlamaMetrics
from shepherd.server.observe.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FIRST_TOKEN_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a cached turn of a small model to a long prompt on a CPU."""

DURATION_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""From a count of tokens to the timeouts of clients."""

REFUSALS = ("key", "user", "host", "origin", "rate", "client", "house")
"""Why a request is refused: see `auth` and `admission`. `house` = all callers together send too many."""

Stats = Mapping[str, CacheStats]

Outcome = Literal["answered", "failed", "replaced"]

_Row = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


class Metrics:
    def __init__(
        self,
        totals: Callable[[], Totals] = Totals,
        *,
        n_active: Callable[[], int] = lambda: 0,
        resting: Callable[[], Mapping[str, float]] = dict,
        groups: Callable[[], Mapping[str, Mapping[str, ReplicaStatus]]] = dict,
    ) -> None:
        """Called at every scrape: `totals`; `n_active`, requests that are being answered; `resting`, the seconds that
        each provider still rests."""
        self._totals = totals
        self._llama = LlamaMetrics()
        self._n_active = n_active
        self._resting = resting
        self._groups = groups
        self._outcomes = Counts[tuple[str, Outcome]]()
        """By cache or provider."""
        self.began_s = time.time()
        """Unix time of the start."""
        self._n_ended = self._n_refused = self._n_recalled = self._n_first = 0
        self._registry = registry = CollectorRegistry()
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would be a series for every counter
        self._requests = Counter(
            "shepherd_requests",
            "Requests that have ended, by HTTP status; 0 = the client went away before there was one.",
            ("surface", "status"),
            registry=registry,
        )
        self._time_to_first_token_s = PrometheusHistogram(
            "shepherd_time_to_first_token_seconds",
            "From the request's arrival to the first visible piece of its answer, waiting included.",
            buckets=FIRST_TOKEN_BOUNDS_S,
            registry=registry,
        )
        place = ("surface", "backend")
        self._first_token_s = PrometheusHistogram(
            "shepherd_first_token_seconds", "The same, by surface and by what answers.", place,
            buckets=FIRST_TOKEN_BOUNDS_S, registry=registry,
        )  # fmt: skip
        self._duration_s = PrometheusHistogram(
            "shepherd_request_seconds", "From a request's arrival to its end.", place,
            buckets=DURATION_BOUNDS_S, registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            "shepherd_tokens",
            "Tokens of requests that have ended, by what answers: of prompts, found in a cache or computed; generated.",
            ("backend", "source"),
            registry=registry,
        )
        self._refused = Counter(
            "shepherd_refused",
            "Requests that were not let in: for key, user, Host or Origin; too many per minute, of one client, in all.",
            ("reason",),
            registry=registry,
        )
        for reason in REFUSALS:
            self._refused.labels(reason)
        registry.register(self)
        ProcessCollector(registry=registry)

    def count(self, record: Record) -> None:
        self._n_ended += 1
        self._requests.labels(record.surface, record.status).inc()
        place = (record.surface, record.backend)
        if record.first_s is not None:
            self._time_to_first_token_s.observe(record.first_s - record.begun_s)
            self._first_token_s.labels(*place).observe(record.first_s - record.begun_s)
        if record.ended_s is not None:
            self._duration_s.labels(*place).observe(record.ended_s - record.begun_s)
        for name in record.instead_of:
            self._outcomes[name, "replaced"] += 1
        if record.cache:
            self._outcomes[record.cache, "answered" if record.finished else "failed"] += 1
        if record.is_first:
            self._n_first = max(self._n_first, record.usage.prompt, record.n_refused)
        if record.started:
            usage = record.usage
            self._n_recalled += usage.recalled
            self._tokens.labels(record.backend, "cached").inc(usage.cache_read)
            self._tokens.labels(record.backend, "prefilled").inc(usage.input + usage.cache_write)
            self._tokens.labels(record.backend, "generated").inc(usage.output)

    def refuse(self, reason: str) -> None:
        """Count a refused request; `reason` is one of `REFUSALS`."""
        self._n_refused += 1
        self._refused.labels(reason).inc()

    def totals(self) -> dict[str, int]:
        """For `GET /v1/caches`: requests that have ended, that are being answered, and that were refused; tokens of
        prompts that were quotes from the memory; of the longest first prompt of a conversation, refused ones too."""
        counts = {"requests": self._n_ended, "active": self._n_active(), "refused": self._n_refused}
        return {**counts, "recalled_tokens": self._n_recalled, "first_prompt_tokens": self._n_first}

    def outcomes(self) -> dict[str, dict[str, float]]:
        """For `GET /v1/caches`: by provider, requests by their outcome, and the seconds that it still rests."""
        rows: dict[str, dict[str, float]] = {
            name: {**{each: self._outcomes[name, each] for each in get_args(Outcome)}, "rests_s": round(rests_s, 1)}
            for name, rests_s in self._resting().items()
        }
        for _, name, status in self._replicas():
            is_out = status.state in ("draining", "drained")
            rows.setdefault(name, {}).update(open=status.n_open, **({"is_out": 1.0} if is_out else {}))
        return rows

    def _replicas(self) -> Iterator[tuple[str, str, ReplicaStatus]]:
        return ((group, name, each) for group, some in self._groups().items() for name, each in some.items())

    def render(self) -> bytes:
        return generate_latest(self._registry) + self._llama.render(self._totals().caches.values()).encode("ascii")

    def collect(self) -> Iterator[Metric]:
        """What other parts of the program count, as a registry reads it."""
        totals = self._totals()
        yield _gauge("shepherd_active_requests", "Requests that are being answered.", (), [((), self._n_active())])
        loads = [((model,), count) for model, count in totals.n_loads.items()]
        yield _counter("shepherd_model_loads", "How often a model was loaded.", ("model",), loads)
        yield _counter(
            "shepherd_archived_messages", "Messages that were put into the memory.", (), [((), totals.n_archived)]
        )
        text = "Requests by the cache or provider; replaced: it could not answer, and another one was asked."
        outcomes = [((name, outcome), count) for (name, outcome), count in self._outcomes.items()]
        yield _counter("shepherd_backend_requests", text, ("backend", "outcome"), outcomes)
        resting = [((name,), rests_s) for name, rests_s in self._resting().items()]
        text = "How long a provider that has failed is not asked first; 0 = it is."
        yield _gauge("shepherd_backend_rest_seconds", text, ("backend",), resting)
        replicas = list(self._replicas())
        rows = [((group, name), each.n_open) for group, name, each in replicas]
        yield _gauge("shepherd_replica_open_requests", "Requests that a replica is answering.", _REPLICA, rows)
        rows = [((group, name), each.state == "ready") for group, name, each in replicas]
        text = "Whether a replica gets new requests; 0 = it rests after a failure, or is taken out."
        yield _gauge("shepherd_replica_ready", text, _REPLICA, rows)
        text = "How often messages could not be put into the memory."
        yield _counter("shepherd_archive_failures", text, (), [((), totals.n_archive_failures)])
        text = "How often a search of the memory had to do without its reranker."
        yield _counter("shepherd_rerank_failures", text, (), [((), totals.n_rerank_failures)])
        yield from _of_providers(totals.spending)
        yield from _of_engines(totals.caches)


def _of_providers(spending: Mapping[str, ProviderSpending]) -> Iterator[Metric]:
    text = "Tokens that providers have counted since the start: of prompts, read from their cache or not; of answers."
    kinds = ("input", "cached", "output")
    rows = [((name, kind), getattr(each.total, kind)) for name, each in spending.items() for kind in kinds]
    yield _counter("shepherd_provider_tokens", text, ("provider", "kind"), rows)
    text = "What they cost since the start, by the configured prices."
    money = [((name,), each.total.money) for name, each in spending.items()]
    yield _counter("shepherd_provider_cost", text, ("provider",), money)


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
    evictions = [cache.eviction_s for cache in caches]
    yield HistogramMetricFamily(
        "shepherd_eviction_seconds",
        "Time that making room took.",
        _buckets(evictions),
        sum(histogram.total for histogram in evictions),
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


_REPLICA = ("provider", "replica")
_TOTALS = (
    ("shepherd_generated_tokens", "generated_tokens", "Tokens of answers."),
    ("shepherd_drafted_tokens", "drafted_tokens", "Tokens that were proposed for answers, and checked together."),
    ("shepherd_accepted_tokens", "accepted_tokens", "Of those, the tokens that the model drew as well."),
    ("shepherd_evictions", "evictions", "How often old turns left the context of a conversation."),
    ("shepherd_evicted_messages", "evicted_messages", "Messages that left it."),
    ("shepherd_evicted_tokens", "evicted_tokens", "Tokens that left it."),
)
"""Name without its suffix, field of `CacheStats`, help. Over all caches."""

_LEVELS_BY_CACHE = (
    ("shepherd_live_jobs", "live", "Requests that are being computed."),
    ("shepherd_queue_depth", "waiting", "Requests that wait for their turn."),
    (
        "shepherd_checkpoint_bytes",
        "checkpoint_bytes",
        "States that conversations in the KV cache can be taken back to.",
    ),
    ("shepherd_draft_bytes", "draft_bytes", "What finds drafts for the requests that are being computed."),
    (
        "shepherd_engine_quiet_seconds",
        "quiet_s",
        "How long work has waited without any progress; 0 while there is some.",
    ),
)
_TOTALS_BY_CACHE = (
    ("shepherd_jobs", "jobs", "Requests that the engine has taken on."),
    ("shepherd_background_jobs", "background_jobs", "Of those, the side tasks: titles, digests."),
    ("shepherd_preemptions", "preemptions", "Running requests that were put aside for older ones."),
    ("shepherd_rebases", "rebases", "Conversations that were computed again to get lower positions."),
    ("shepherd_sequences_dropped", "dropped", "Idle conversations that left the KV cache."),
    ("shepherd_sequences_saved", "saved", "Of those, the ones that were kept in memory or on disk."),
    ("shepherd_sequences_restored", "restored", "Conversations that came back from there."),
    ("shepherd_removed_blocks", "removed_blocks", "Blocks of reusable tokens that left a cache of TensorRT-LLM."),
    ("shepherd_removed_tokens", "removed_tokens", "Their tokens."),
    ("shepherd_engine_stalls", "stalls", "Times that the engine made no progress for too long while work waited."),
    ("shepherd_engine_restarts", "restarts", "Times that its process died, and another one was started."),
)


def _sequences_by_state(cache: CacheStats) -> Mapping[str, int]:
    counts = Counts(sequence.state for sequence in cache.sequences)
    return {state: counts[state] for state in ("prefill", "generate", "idle")}


def _each(stats: Stats, values: Callable[[CacheStats], Mapping[str, int]]) -> Iterator[_Row]:
    for name, cache in stats.items():
        for word, value in values(cache).items():
            yield (name, word), value


def _by_cache(stats: Stats, attribute: str) -> list[_Row]:
    return [((name,), getattr(cache, attribute)) for name, cache in stats.items()]


def _counter(name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), rows)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, rows: Iterable[_Row]) -> Metric:
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def _buckets(histograms: Sequence[Histogram]) -> list[tuple[str, float]]:
    # One copy of each: the engine thread may count on meanwhile, and the buckets must agree with each other.
    copies = [tuple(histogram.counts) for histogram in histograms]
    counts = map(sum, zip(*copies, strict=True)) if copies else [0] * (len(EVICTION_BOUNDS_S) + 1)
    return list(zip((*map(str, EVICTION_BOUNDS_S), "+Inf"), accumulate(counts), strict=True))
