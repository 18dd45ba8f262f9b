"""The public names of the FAKE's LLM API."""

from .llm import TorchLLM as LLM
from .params import GuidedDecodingParams, KvCacheConfig, SamplingParams

__all__ = ["LLM", "GuidedDecodingParams", "KvCacheConfig", "SamplingParams"]
