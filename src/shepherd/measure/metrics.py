"""Which metrics there are, and the samples of each that a run has so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.core.dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str
    title: str
    """With the names of the workload in braces, such as `{depth}`."""
    unit: str
    more_is_better: bool = False
    may_be_zero: bool = False
    """A change is a difference in its unit, not a ratio."""
    step: float = 0.0
    """Of those: a smaller difference is none."""
    workload: tuple[str, ...] = ()
    """The names of the settings on which it depends."""


METRICS = (
    Metric("prompt", "prompt, {depth} tokens", "tokens/s", True, workload=("depth",)),
    Metric("generation", "generation, empty context", "tokens/s", True, workload=("n_generate",)),
    Metric("generation_deep", "generation behind {depth} tokens", "tokens/s", True, workload=("depth", "n_generate")),
    Metric("first_cold", "first token, new prompt of {depth} tokens", "ms", workload=("depth",)),
    Metric("first_warm", "first token, the same with one more turn", "ms", workload=("depth",)),
    Metric("server_first", "server: first token later than in process", "ms", may_be_zero=True, step=0.5),
    Metric("server_answer", "server: answer of 16 tokens later", "ms", may_be_zero=True, step=1.0),
    Metric("eviction", "eviction: a turn leaves", "ms", workload=("n_ctx",)),
    Metric("computed_again", "eviction: tokens computed again", "tokens", may_be_zero=True, step=1.0),
    Metric("archive", "archive: messages stored durably", "messages/s", True),
    Metric("search", "search in {n_messages} messages", "ms", workload=("n_messages",)),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
THROUGH_HTTP = ("prompt", "generation", "generation_deep", "first_cold", "first_warm")
"""Those that any server has."""


@dataclass(slots=True)
class Measured:
    """The samples of one side so far, by the name of the metric."""

    workload: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """By the name of a metric, why it has no samples."""

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.samples.setdefault(name, []).append(value)

    def title(self, metric: Metric) -> str:
        return metric.title.format_map({name: self.workload.get(name, "?") for name in metric.workload})
