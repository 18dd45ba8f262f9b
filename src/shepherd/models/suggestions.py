"""A dozen good first models, by the memory that they need: `shepherd models suggest`, and the table in docs/models.md.

Names, formats, sizes and licences are those of the hub when a row was written; `shepherd pull` reads what is there now.
"""

from __future__ import annotations

from typing import NamedTuple

from shepherd.models.sizing import about_needed


class Suggestion(NamedTuple):
    name: str
    spec: str
    """For `shepherd pull` and `shepherd -m`."""
    size_gb: float
    """Of all its files on the disk, the projector included, in 10^9 bytes."""
    licence: str
    good_for: str

    @property
    def size_bytes(self) -> int:
        return int(self.size_gb * 1e9)

    @property
    def needed_bytes(self) -> int:
        """Memory, with a context of some thousand tokens; about."""
        return about_needed(self.size_bytes)


SUGGESTIONS = (
    Suggestion("Qwen3 0.6B", "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", 0.64, "Apache-2.0", "a first try, small tasks"),
    Suggestion("Qwen3 1.7B", "hf:Qwen/Qwen3-1.7B-GGUF:Q8_0", 1.83, "Apache-2.0", "short answers on any machine"),
    Suggestion("SmolVLM2 2.2B", "hf:ggml-org/SmolVLM2-2.2B-Instruct-GGUF:Q4_K_M", 1.98, "Apache-2.0", "images, small"),
    Suggestion(
        "Phi-4 mini 3.8B", "hf:bartowski/microsoft_Phi-4-mini-instruct-GGUF:Q4_K_M", 2.49, "MIT", "chat, reasoning"
    ),
    Suggestion("Qwen3 4B", "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", 2.5, "Apache-2.0", "chat and tools"),
    Suggestion("Qwen3 8B", "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", 5.03, "Apache-2.0", "chat and tools; a good first choice"),
    Suggestion(
        "Qwen2.5-VL 7B", "hf:ggml-org/Qwen2.5-VL-7B-Instruct-GGUF:Q4_K_M", 6.04, "Apache-2.0", "images and documents"
    ),
    Suggestion(
        "Mistral Nemo 12B", "hf:bartowski/Mistral-Nemo-Instruct-2407-GGUF:Q4_K_M", 7.48, "Apache-2.0", "long texts"
    ),
    Suggestion("Qwen3 14B", "hf:Qwen/Qwen3-14B-GGUF:Q4_K_M", 9.0, "Apache-2.0", "chat, tools, reasoning"),
    Suggestion("gpt-oss 20B", "hf:ggml-org/gpt-oss-20b-GGUF:MXFP4", 12.1, "Apache-2.0", "fast: 3.6B of it per token"),
    Suggestion(
        "Qwen3-Coder 30B-A3B", "hf:unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", 18.6, "Apache-2.0",
        "coding agents",
    ),
    Suggestion("gpt-oss 120B", "hf:ggml-org/gpt-oss-120b-GGUF:MXFP4", 63.4, "Apache-2.0", "the most of one machine"),
)  # fmt: skip
"""By the memory that they need."""
