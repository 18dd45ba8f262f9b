"""llama-server's names for some of our figures, so that a dashboard made for it shows this server too.

Its counters have names that Prometheus' own library does not write (`n_tokens_max`), so the text is written here. Not
here: our own metrics, which have labels and more to say (`metrics`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shepherd.engine.stats import CacheStats


class LlamaMetrics:
    def __init__(self) -> None:
        self._last = (0.0, 0.0, 0.0, 0.0)
        """Tokens and seconds of prompts, and of answers, at the last scrape."""

    def render(self, caches: Collection[CacheStats]) -> str:
        """Prometheus' text of the figures of all caches together; the rates are means since the last call."""
        return "".join(
            f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
            for kind, name, text, value in self._figures(caches)
        )

    def _figures(self, caches: Collection[CacheStats]) -> Iterator[tuple[str, str, str, float]]:
        def total(field: str) -> float:
            return float(sum(getattr(cache, field) for cache in caches))

        now = prompt, prompt_s, predicted, predicted_s = (
            total("prefilled_tokens"), total("prefill_s"), total("generated_tokens"), total("generate_s"),
        )  # fmt: skip
        new = [one - before for one, before in zip(now, self._last, strict=True)]
        self._last = now
        longest = max((each.tokens for cache in caches for each in cache.sequences), default=0)
        yield "counter", "prompt_tokens_total", "Prompt tokens that were computed.", prompt
        yield "counter", "prompt_tokens_cached_total", "Prompt tokens found in a cache.", total("cached_tokens")
        yield "counter", "prompt_seconds_total", "Time of computing prompts.", prompt_s
        yield "counter", "tokens_predicted_total", "Generated tokens.", predicted
        yield "counter", "tokens_predicted_seconds_total", "Time of generating.", predicted_s
        yield "counter", "n_decode_total", "Decodes.", total("decodes")
        yield "counter", "n_tokens_max", "Tokens of the longest conversation that is in a cache now.", longest
        yield "counter", "spec_decode_num_draft_tokens_total", "Drafted tokens.", total("drafted_tokens")
        yield "counter", "spec_decode_num_accepted_tokens_total", "Those that were accepted.", total("accepted_tokens")
        text = "tokens per second since the last scrape."
        yield "gauge", "prompt_tokens_seconds", f"Prompt {text}", _rate(*new[:2])
        yield "gauge", "predicted_tokens_seconds", f"Generated {text}", _rate(*new[2:])
        yield "gauge", "requests_processing", "Requests that are being computed.", total("live")
        yield "gauge", "requests_deferred", "Requests that wait for their turn.", total("waiting")
        busy = total("decoded_chunks") / max(total("decodes"), 1)
        yield "gauge", "n_busy_slots_per_decode", "Requests that a decode computes for, on average.", busy


def _rate(n: float, seconds: float) -> float:
    return n / seconds if seconds > 0 else 0.0
