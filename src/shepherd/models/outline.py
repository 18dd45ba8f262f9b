"""The header of a model that has no GGUF file here: from a `config.json`, or of a model in another number format.

It has what decides memory and speed: layers, heads, experts, windows, the shapes of the matrices. It names no file that
could be loaded. Layers of kinds that are not known here are refused, never taken for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from shepherd.core import ConfigError, InvalidRequest
from shepherd.models import gguf
from shepherd.models.checkpoint import Checkpoint, Fields, read_json
from shepherd.models.gguf_file import BLOCKS, Tensor

MOST_WIDTH, MOST_EXPERTS = 1 << 20, 1 << 14
_STORED = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "i8", "fp8": "i8", "FP8": "i8",
    "compressed-tensors": "i8", "W8A8_SQ_PER_CHANNEL": "i8", "bitsandbytes": "q4_0", "awq": "q4_0", "gptq": "q4_0",
    "W4A16": "q4_0", "W4A16_AWQ": "q4_0", "NVFP4": "nvfp4", "mxfp4": "mxfp4",
}  # fmt: skip
"""What a checkpoint calls its number format -> one of the same size."""
_MIXES = {
    "F32": ("f32", "f32", "f32"), "F16": ("f16", "f16", "f16"), "BF16": ("bf16", "bf16", "bf16"),
    "Q8_0": ("q8_0", "q8_0", "q8_0"), "Q6_K": ("q6_K", "q6_K", "q6_K"), "Q5_K_M": ("q5_K", "q6_K", "q6_K"),
    "Q5_K_S": ("q5_K", "q5_K", "q6_K"), "Q5_0": ("q5_0", "q5_0", "q6_K"), "Q5_1": ("q5_1", "q5_1", "q6_K"),
    "Q4_K_M": ("q4_K", "q6_K", "q6_K"), "Q4_K_S": ("q4_K", "q4_K", "q6_K"), "Q4_0": ("q4_0", "q4_0", "q6_K"),
    "Q4_1": ("q4_1", "q4_1", "q6_K"), "IQ4_NL": ("iq4_nl", "iq4_nl", "q6_K"), "IQ4_XS": ("iq4_xs", "iq4_xs", "q6_K"),
    "Q3_K_M": ("q3_K", "q4_K", "q6_K"), "Q3_K_S": ("q3_K", "q3_K", "q6_K"), "Q2_K": ("q2_K", "q3_K", "q6_K"),
    "MXFP4": ("mxfp4", "mxfp4", "q8_0"), "NVFP4": ("nvfp4", "nvfp4", "bf16"), "FP8": ("i8", "i8", "bf16"),
}  # fmt: skip
"""A format -> its blocks: of most matrices; in every second layer, of the values and of what leads out of a
feed-forward network; of the tokens' matrices. As llama.cpp mixes them; for MXFP4 the first is that of experts."""
_BETTER, _BETTER_IN_ALL = re.compile(r"attn_v\.|ffn_down"), re.compile(r"attn_v\.|attn_output\.|ffn_down")
_FEW_BITS = ("Q3_K_M", "Q2_K")
"""Formats with the second blocks in every layer, and in what leads out of attention too."""
_SHORT_ROWS = {
    "q2_K": "q4_0", "q3_K": "q4_0", "q4_K": "q5_0", "q5_K": "q5_1", "q6_K": "q8_0", "iq4_xs": "iq4_nl",
}  # fmt: skip
"""What llama.cpp takes for rows that are no multiple of 256 numbers, as in many small models and gpt-oss."""
FORMATS = tuple(_MIXES)
_TIED = ("gemma", "cohere", "gpt2", "bloom", "falcon")
"""Beginnings of families whose output matrix is that of the tokens where the configuration does not say so."""
_STATES = ("layers_block_type", "ssm_cfg", "mamba_d_state", "ssm_state_size", "state_size", "rwkv_version")
"""Keys of models with layers of other kinds."""


def in_format(header: gguf.Header, name: str) -> gguf.Header:
    """The same model with its weights in this number format. Raises: `InvalidRequest` for one that is not known."""
    mix = _MIXES.get(name.upper())
    if mix is None:
        raise InvalidRequest(f"quant is {name[:40]!r}; give one of {', '.join(FORMATS)}", field="quant")
    tied, is_small = "output.weight" not in header.tensors, name.upper() in _FEW_BITS

    def stored(key: str, tensor: Tensor) -> Tensor:
        if len(tensor.dims) < 2:
            return tensor
        most, better, outside = mix
        kind = most
        if key == "output.weight" or (key == "token_embd.weight" and (tied or outside == "bf16")):
            kind = outside
        elif mix[0] == "mxfp4" and "_exps." not in key:
            kind = "q8_0"
        elif _BETTER_IN_ALL.search(key) if is_small else _BETTER.search(key) and int(key.split(".")[1]) % 2:
            kind = better
        return _tensor(tensor.dims, kind)

    tensors = {key: stored(key, tensor) for key, tensor in header.tensors.items()}
    number = next((n for n, each in gguf.FILE_TYPES.items() if each == name.upper()), None)
    metadata = {key: value for key, value in header.metadata.items() if key != "general.file_type"}
    if number is not None:
        metadata["general.file_type"] = number
    size_bytes = sum(tensor.n_bytes for tensor in tensors.values())
    return replace(header, tensors=tensors, size_bytes=size_bytes, metadata=metadata)


def of_checkpoint(found: Checkpoint) -> gguf.Header:
    """The header of a folder with a checkpoint, its size that of its files. Raises: `ConfigError`."""
    config = read_json(found.path / "config.json")
    if found.kind == "engine" or config is None:
        raise ConfigError(
            "an engine of TensorRT-LLM is built for its GPUs; plan with its checkpoint", file=str(found.path)
        )
    header = header_of(config, name=found.name)
    factor = found.size_bytes / max(1, header.size_bytes)
    tensors = {key: replace(each, n_bytes=round(each.n_bytes * factor)) for key, each in header.tensors.items()}
    return replace(header, tensors=tensors, size_bytes=found.size_bytes)


def header_of(config: Fields, *, name: str = "") -> gguf.Header:
    """What a Hugging Face `config.json` says, as a header in the number format that it names.

    Raises: `ConfigError` for a file that lacks what decides memory, or has layers of a kind that is not known.
    """
    inner = config.table("text_config")
    text = inner if inner.values else config
    shape = _Reader(config, text)
    tensors = dict(shape.tensors())
    architecture = re.sub(r"[^a-z0-9]+", "-", (text.text("model_type") or config.text("model_type") or "model").lower())
    metadata: dict[str, Any] = {"general.architecture": architecture, "general.name": name or None}
    metadata |= {f"{architecture}.{key}": value for key, value in shape.keys().items() if value}
    return gguf.Header(
        path=config.file,
        files=(),
        metadata=metadata,
        n_params=sum(tensor.n_values for tensor in tensors.values()),
        size_bytes=sum(tensor.n_bytes for tensor in tensors.values()),
        tensors=tensors,
        head_bytes=(),
    )


def _tensor(dims: tuple[int, ...], kind: str) -> Tensor:
    for each in (kind, _SHORT_ROWS.get(kind, kind), "f16"):
        per_block, size_bytes = BLOCKS[each]
        if dims[0] % per_block == 0:
            return Tensor(each, dims, prod(dims), prod(dims) // per_block * size_bytes, 0)
    raise AssertionError(kind)


class _Reader:
    """Reads the dimensions of a configuration once; `tensors` and `keys` follow from them."""

    def __init__(self, config: Fields, text: Fields) -> None:
        self._config, self._text = config, text
        self.n_layer = self._needed("num_hidden_layers", gguf.MAX_LAYERS, "n_layer")
        self.n_embd = self._needed("hidden_size", MOST_WIDTH, "n_embd")
        self.n_head = self._needed("num_attention_heads", MOST_WIDTH, "n_head")
        self.n_head_kv = self._whole("num_key_value_heads") or self.n_head
        self.head = self._whole("head_dim") or self.n_embd // self.n_head
        self.n_vocab = self._needed("vocab_size", 1 << 24)
        self.n_expert = self._whole("num_experts", "num_local_experts", "n_routed_experts", most=MOST_EXPERTS)
        self.n_used = self._whole("num_experts_per_tok", "num_experts_per_token", most=MOST_EXPERTS)
        self.n_ff = self._whole("intermediate_size", "n_inner")
        self.n_ff_dense = self._whole("intermediate_size_mlp") or self.n_ff
        self.n_ff_expert = self._whole("moe_intermediate_size") or self.n_ff
        shared = self._whole("n_shared_experts", most=MOST_EXPERTS) * self.n_ff_expert
        self.n_ff_shared = self._whole("shared_expert_intermediate_size") or shared
        self.n_dense = self._whole("first_k_dense_replace", most=gguf.MAX_LAYERS)
        self.every = self._whole("interleave_moe_layer_step", "decoder_sparse_step", most=gguf.MAX_LAYERS) or 1
        self.rank, self.rope = self._whole("kv_lora_rank"), self._whole("qk_rope_head_dim")
        self.nope, self.v_head = self._whole("qk_nope_head_dim"), self._whole("v_head_dim")
        self.q_rank = self._whole("q_lora_rank")
        self.state, self.groups = self._whole("linear_key_head_dim"), self._whole("linear_num_key_heads")
        self.inner = self._whole("linear_num_value_heads") * self._whole("linear_value_head_dim")
        self.taps = self._whole("linear_conv_kernel_dim")
        self.kinds = self._kinds()
        if self.n_expert and not 0 < self.n_used <= self.n_expert:
            self._refuse("num_experts_per_tok", f"is {self.n_used}, and there are {self.n_expert} experts")
        if not (self.n_ff or self.n_ff_expert):
            self._refuse("intermediate_size", "is missing")
        if self.n_head_kv > self.n_head:
            self._refuse("num_key_value_heads", f"is {self.n_head_kv}, more than the {self.n_head} heads")
        stored = config.table("quantization_config").text("quant_method") or ""
        dtype = config.text("dtype") or config.text("torch_dtype") or text.text("dtype") or text.text("torch_dtype")
        self.kind = _STORED.get(stored) or _STORED.get(dtype or "") or "bf16"

    def keys(self) -> dict[str, int]:
        window = self._whole("sliding_window", "attention_chunk_size") if "sliding" in self.kinds else 0
        full = self.kinds.index("full") + 1 if window and "full" in self.kinds else 0
        made = {
            "block_count": self.n_layer,
            "embedding_length": self.n_embd,
            "vocab_size": self.n_vocab,
            "context_length": self._whole("max_position_embeddings", "n_positions", most=1 << 27),
            "attention.head_count": self.n_head,
            "attention.head_count_kv": 1 if self.rank else self.n_head_kv,
            "attention.key_length": self.rank + self.rope if self.rank else self.head,
            "attention.value_length": self.rank or self.head,
            "attention.key_length_mla": self.rank and self.nope + self.rope,
            "attention.sliding_window": window,
            "attention.sliding_window_pattern": full or (window and 1 << 20),
            "expert_count": self.n_expert,
            "expert_used_count": self.n_used,
        }
        if "linear" in self.kinds:
            made |= {
                "ssm.conv_kernel": self.taps, "ssm.inner_size": self.inner, "ssm.state_size": self.state,
                "ssm.group_count": self.groups,
            }  # fmt: skip
        return made

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        embd = self.n_embd
        outside = "bf16" if self.kind in ("i8", "q4_0", "mxfp4", "nvfp4") else self.kind
        yield "token_embd.weight", _tensor((embd, self.n_vocab), outside)
        if not self._is_tied():
            yield "output.weight", _tensor((embd, self.n_vocab), outside)
        yield "output_norm.weight", _tensor((embd,), "f32")
        for layer, kind in enumerate(self.kinds):
            shapes = self._delta() if kind == "linear" else self._latent() if self.rank else self._attention()
            is_sparse = self.n_expert and layer >= self.n_dense and (layer + 1) % self.every == 0
            shapes |= self._experts() if is_sparse else self._feed_forward(self.n_ff_dense)
            for name, dims in shapes.items():
                is_whole = outside != self.kind == "mxfp4" and "_exps" not in name
                yield f"blk.{layer}.{name}.weight", _tensor(dims, outside if is_whole else self.kind)

    def _is_tied(self) -> bool:
        for fields in (self._text, self._config):
            if fields.values.get("tie_word_embeddings") is not None:
                return fields.flag("tie_word_embeddings")
        return (self._text.text("model_type") or self._config.text("model_type") or "").startswith(_TIED)

    def _attention(self) -> dict[str, tuple[int, ...]]:
        embd, query, narrow = self.n_embd, self.n_head * self.head, self.n_head_kv * self.head
        return {
            "attn_q": (embd, query), "attn_k": (embd, narrow), "attn_v": (embd, narrow), "attn_output": (query, embd),
        }  # fmt: skip

    def _latent(self) -> dict[str, tuple[int, ...]]:
        """Multi-head latent attention: what is cached of a token is one narrow row for all heads."""
        embd, heads = self.n_embd, self.n_head
        query = heads * (self.nope + self.rope)
        made: dict[str, tuple[int, ...]] = {
            "attn_kv_a_mqa": (embd, self.rank + self.rope), "attn_k_b": (self.nope, self.rank, heads),
            "attn_v_b": (self.rank, self.v_head, heads), "attn_output": (heads * self.v_head, embd),
        }  # fmt: skip
        if not self.q_rank:
            return made | {"attn_q": (embd, query)}
        return made | {"attn_q_a": (embd, self.q_rank), "attn_q_b": (self.q_rank, query)}

    def _delta(self) -> dict[str, tuple[int, ...]]:
        """A layer with linear attention, which keeps a state."""
        channels = self.inner + 2 * self.state * self.groups
        return {
            "attn_qkv": (self.n_embd, channels), "attn_gate": (self.n_embd, self.inner),
            "ssm_conv1d": (self.taps, channels), "ssm_out": (self.inner, self.n_embd),
        }  # fmt: skip

    def _feed_forward(self, width: int) -> dict[str, tuple[int, ...]]:
        embd = self.n_embd
        return {"ffn_gate": (embd, width), "ffn_up": (embd, width), "ffn_down": (width, embd)}

    def _experts(self) -> dict[str, tuple[int, ...]]:
        embd, ff, n = self.n_embd, self.n_ff_expert, self.n_expert
        made: dict[str, tuple[int, ...]] = {
            "ffn_gate_inp": (embd, n), "ffn_gate_exps": (embd, ff, n), "ffn_up_exps": (embd, ff, n),
            "ffn_down_exps": (ff, embd, n),
        }  # fmt: skip
        if self.n_ff_shared:
            shared = self._feed_forward(self.n_ff_shared)
            made |= {f"{name}_shexp": dims for name, dims in shared.items()}
        return made

    def _kinds(self) -> tuple[str, ...]:
        """Per layer: `full`, `sliding` or `linear`."""
        named = self._text.texts("layer_types")
        if named:
            known = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "sliding",
                     "linear_attention": "linear"}  # fmt: skip
            if unknown := next((each for each in named if each not in known), None):
                self._refuse("layer_types", f"names layers of the kind {unknown!r}, which are not known here")
            if len(named) != self.n_layer:
                self._refuse("layer_types", f"names {len(named)} layers of {self.n_layer}")
            return tuple(known[each] for each in named)
        if other := next((key for key in _STATES if self._text.values.get(key) is not None), None):
            self._refuse(other, "says that its layers keep states of a kind that is not known here")
        if every := self._whole("full_attention_interval"):
            return tuple("full" if (layer + 1) % every == 0 else "linear" for layer in range(self.n_layer))
        window, uses = self._whole("sliding_window"), self._text.values.get("use_sliding_window", True)
        if not window or not uses:
            return ("full",) * self.n_layer
        every = self._whole("sliding_window_pattern", "_sliding_window_pattern") or 0
        return tuple("full" if every and (layer + 1) % every == 0 else "sliding" for layer in range(self.n_layer))

    def _whole(self, *names: str, most: int = MOST_WIDTH) -> int:
        for fields in (self._text, self._config):
            for name in names:
                if found := fields.whole(name, 0, most):
                    return found
        return 0

    def _needed(self, name: str, most: int, other: str = "") -> int:
        found = self._whole(name, *filter(None, (other,)), most=most)
        return found or self._refuse(name, "is missing")

    def _refuse(self, name: str, fault: str) -> Any:
        self._text.refuse(name, fault, "so its memory cannot be planned; give a GGUF file of this model")
