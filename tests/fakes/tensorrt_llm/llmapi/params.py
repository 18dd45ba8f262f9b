"""The parameter classes of the FAKE: strict about names, and with the traps of the real ones."""

from __future__ import annotations

from typing import Any

from ..signatures import bound, signature


class GuidedDecodingParams:
    json: Any
    regex: str | None
    grammar: str | None
    json_object: bool
    structural_tag: str | None

    @bound("GuidedDecodingParams.__init__")
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)
        if sum(value not in (None, False) for value in given.values()) > 1:
            raise ValueError("Only one guide can be used for a request.")


class KvCacheConfig:
    """A pydantic model in the real package, which refuses extra keys."""

    def __init__(self, **given: Any) -> None:
        known = signature("KvCacheConfig.__init__").parameters
        for key in given:
            if key not in known or key == "self":
                raise ValueError(f"1 validation error for KvCacheConfig\n{key}\n  Extra inputs are not permitted")
        for key, parameter in known.items():
            if key != "self":
                setattr(self, key, given.get(key, parameter.default))
        share = self.free_gpu_memory_fraction
        if not 0 <= share <= 1:
            raise ValueError("kv_cache_config.free_gpu_memory_fraction must be a float between 0 and 1")

    enable_block_reuse: bool
    enable_partial_reuse: bool
    free_gpu_memory_fraction: float
    host_cache_size: int | None
    event_buffer_max_size: int
    tokens_per_block: int


class SamplingParams:
    """Keywords only; 32 tokens by default."""

    end_id: int | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    max_tokens: int | None
    guided_decoding: GuidedDecodingParams | None
    best_of: int | None
    n: int

    @bound("SamplingParams.__init__")
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)
        self._stop_word_ids: list[list[int]] | None = None
        if given["guided_decoding"] is not None and not isinstance(given["guided_decoding"], GuidedDecodingParams):
            raise ValueError("guided_decoding must be an instance of GuidedDecodingParams")
        if given["top_p"] is not None and not 0 <= given["top_p"] <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={given['top_p']}")
        if given["top_k"] is not None and given["top_k"] < 0:
            raise ValueError(f"require top_k >= 0, got top_k={given['top_k']}")
        if given["temperature"] is not None and given["temperature"] < 0:
            raise ValueError(f"require temperature >= 0, got temperature={given['temperature']}")
        self.best_of = self.best_of or self.n

    def _setup(self, tokenizer: Any, end_id: int) -> None:
        """Runs only if `end_id` is None: with both, the stop strings are never tokenised."""
        self.end_id = end_id
        if self.stop is not None:
            stops = [self.stop] if isinstance(self.stop, str) else self.stop
            self._stop_word_ids = [tokenizer.encode(stop, add_special_tokens=False).ids for stop in stops]

    def _get_stop_words(self) -> list[list[int]]:
        words = [[token] for token in self.stop_token_ids or ()]
        if self.stop is None:
            return words
        if self._stop_word_ids is None:
            raise RuntimeError(
                f"SamplingParams.stop ({self.stop}) is not processed by tokenizer, please call the setup method."
            )
        return words + self._stop_word_ids

    def _get_stop_reasons_and_words(self) -> list[tuple[int | str, list[int]]]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [*zip([*(self.stop_token_ids or ()), *stops], self._get_stop_words(), strict=True)]
