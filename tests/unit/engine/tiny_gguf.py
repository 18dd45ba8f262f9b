"""Makes GGUFs with random weights, a few hundred kB each: one of every kind of memory that the gate tells apart.

They know nothing, and have no text, only numbered tokens, unless they are given a vocabulary; what is computed from
them is as exact as with a real model.
Run by `matrix_life.py` in its own process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

N_VOCAB = 128
N_CTX_TRAIN = 4096
N_SWA = 24
N_EMBD, N_FF = 64, 96
EPSILON = 1e-5
SHARPNESS = 1.5
"""Of the weights: with timid ones attention looks at everything alike, and a wrong cache changes nothing."""

Values = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
"""Tensor name -> shape as NumPy has it: rows first."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model."""

    architecture: str
    tensors: Callable[[Recipe], Shapes]
    n_layer: int = 3
    n_head: int = 2
    n_head_kv: int | tuple[int, ...] = 1
    head: int = 32
    keys: Mapping[str, int | float | str | list[int]] = field(default_factory=dict)
    """Metadata beyond the usual, without the architecture's prefix."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The texts of the tokens."""

    kind: str
    """Such as `gpt2`."""
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str] = ()
    special: Mapping[str, int] = field(default_factory=dict)
    """Such as `eos_token_id`."""
    template: str = ""


def _outside() -> Shapes:
    return {"token_embd.weight": (N_VOCAB, N_EMBD), "output.weight": (N_VOCAB, N_EMBD), "output_norm.weight": (N_EMBD,)}


def _feed_forward(prefix: str) -> Shapes:
    return {
        prefix + "ffn_norm.weight": (N_EMBD,),
        prefix + "ffn_gate.weight": (N_FF, N_EMBD),
        prefix + "ffn_up.weight": (N_FF, N_EMBD),
        prefix + "ffn_down.weight": (N_EMBD, N_FF),
    }


def _attention(recipe: Recipe, prefix: str, *, norms: tuple[str, ...] = (), biases: bool = False) -> Shapes:
    n_head_kv = recipe.n_head_kv if isinstance(recipe.n_head_kv, int) else max(recipe.n_head_kv)
    q, kv = recipe.n_head * recipe.head, n_head_kv * recipe.head
    return {
        prefix + "attn_norm.weight": (N_EMBD,),
        prefix + "attn_q.weight": (q, N_EMBD),
        prefix + "attn_k.weight": (kv, N_EMBD),
        prefix + "attn_v.weight": (kv, N_EMBD),
        prefix + "attn_output.weight": (N_EMBD, q),
        **({f"{prefix}attn_{name}.bias": (size,) for name, size in (("q", q), ("k", kv), ("v", kv))} if biases else {}),
        **{f"{prefix}attn_{name}_norm.weight": (recipe.head,) for name in norms},
    }


def _plain(recipe: Recipe) -> Shapes:
    """llama, smollm3."""
    made = _outside()
    for layer in range(recipe.n_layer):
        made |= _attention(recipe, f"blk.{layer}.") | _feed_forward(f"blk.{layer}.")
    return made


def _qwen2(recipe: Recipe) -> Shapes:
    """qwen2, qwen2vl."""
    made = _outside()
    for layer in range(recipe.n_layer):
        made |= _attention(recipe, f"blk.{layer}.", biases=True) | _feed_forward(f"blk.{layer}.")
    return made


def _qwen3(recipe: Recipe) -> Shapes:
    made = _outside()
    for layer in range(recipe.n_layer):
        made |= _attention(recipe, f"blk.{layer}.", norms=("q", "k")) | _feed_forward(f"blk.{layer}.")
    return made


def _gemma(recipe: Recipe) -> Shapes:
    """gemma, gemma2, gemma3."""
    made = _outside()
    del made["output.weight"]
    for layer in range(recipe.n_layer):
        prefix = f"blk.{layer}."
        norms = ("q", "k") if recipe.architecture == "gemma3" else ()
        made |= _attention(recipe, prefix, norms=norms) | _feed_forward(prefix)
        if recipe.architecture != "gemma":
            made |= {prefix + "post_attention_norm.weight": (N_EMBD,), prefix + "post_ffw_norm.weight": (N_EMBD,)}
    return made


def _mamba(recipe: Recipe) -> Shapes:
    made = _outside()
    inner, state, rank, conv = 2 * N_EMBD, 16, 4, 4
    for layer in range(recipe.n_layer):
        prefix = f"blk.{layer}."
        made |= {
            prefix + "attn_norm.weight": (N_EMBD,),
            prefix + "ssm_in.weight": (2 * inner, N_EMBD),
            prefix + "ssm_conv1d.weight": (inner, conv),
            prefix + "ssm_conv1d.bias": (inner,),
            prefix + "ssm_x.weight": (rank + 2 * state, inner),
            prefix + "ssm_dt.weight": (inner, rank),
            prefix + "ssm_dt.bias": (inner,),
            prefix + "ssm_a": (inner, state),
            prefix + "ssm_d": (inner,),
            prefix + "ssm_out.weight": (N_EMBD, inner),
        }
    return made


def _lfm2(recipe: Recipe) -> Shapes:
    """Layers with no heads for keys are short convolutions: they keep a state."""
    assert isinstance(recipe.n_head_kv, tuple)
    made = _outside()
    del made["output_norm.weight"]
    made["token_embd_norm.weight"] = (N_EMBD,)
    for layer, n_head_kv in enumerate(recipe.n_head_kv):
        prefix = f"blk.{layer}."
        made |= _feed_forward(prefix)
        if n_head_kv:
            made |= _attention(recipe, prefix, norms=("q", "k"))
        else:
            made |= {
                prefix + "attn_norm.weight": (N_EMBD,),
                prefix + "shortconv.conv.weight": (N_EMBD, 3),
                prefix + "shortconv.in_proj.weight": (3 * N_EMBD, N_EMBD),
                prefix + "shortconv.out_proj.weight": (N_EMBD, N_EMBD),
            }
    return made


def _qwen35(recipe: Recipe) -> Shapes:
    """Every second layer is a gated delta net, which keeps a state; the others are attention."""
    made = _outside()
    state, heads, conv = 32, 2, 4
    for layer in range(recipe.n_layer):
        prefix = f"blk.{layer}."
        if layer % 2:
            made |= _attention(recipe, prefix, norms=("q", "k"))
            made[prefix + "attn_q.weight"] = (2 * recipe.n_head * recipe.head, N_EMBD)  # with its gate
        else:
            inner = heads * state
            made |= {
                prefix + "attn_norm.weight": (N_EMBD,),
                prefix + "attn_qkv.weight": (3 * inner, N_EMBD),
                prefix + "attn_gate.weight": (inner, N_EMBD),
                prefix + "ssm_conv1d.weight": (3 * inner, conv),
                prefix + "ssm_dt.bias": (heads,),
                prefix + "ssm_a": (heads,),
                prefix + "ssm_alpha.weight": (heads, N_EMBD),
                prefix + "ssm_beta.weight": (heads, N_EMBD),
                prefix + "ssm_norm.weight": (state,),
                prefix + "ssm_out.weight": (N_EMBD, inner),
            }
        made |= {
            name: shape for name, shape in _feed_forward(prefix).items() if not name.endswith("ffn_norm.weight")
        } | {prefix + "post_attention_norm.weight": (N_EMBD,)}
    return made


def _falcon_h1(recipe: Recipe) -> Shapes:
    """Every layer has attention and Mamba2 side by side."""
    made = _outside()
    inner, state, heads, conv = 2 * N_EMBD, 16, 4, 4
    for layer in range(recipe.n_layer):
        prefix = f"blk.{layer}."
        made |= _attention(recipe, prefix) | _feed_forward(prefix)
        made[prefix + "ffn_norm"] = made.pop(prefix + "ffn_norm.weight")  # as llama.cpp names it in this family
        made |= {
            prefix + "ssm_in.weight": (2 * inner + 2 * state + heads, N_EMBD),
            prefix + "ssm_conv1d.weight": (inner + 2 * state, conv),
            prefix + "ssm_conv1d.bias": (inner + 2 * state,),
            prefix + "ssm_dt.bias": (heads,),
            prefix + "ssm_a": (heads, 1),
            prefix + "ssm_d": (heads, 1),
            prefix + "ssm_norm.weight": (1, inner),
            prefix + "ssm_out.weight": (N_EMBD, inner),
        }
    return made


_SWA: dict[str, int | float | str | list[int]] = {"attention.sliding_window": N_SWA}
_YARN: dict[str, int | float | str | list[int]] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 1024,
}
_MAMBA: dict[str, int | float | str | list[int]] = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 2 * N_EMBD, "ssm.state_size": 16, "ssm.time_step_rank": 4,
}  # fmt: skip

RECIPES = {
    "plain": Recipe("llama", _plain),
    "plain-1": Recipe("llama", _plain, n_layer=1),
    "plain-64": Recipe("llama", _plain, head=64, n_head=1),
    "qwen2": Recipe("qwen2", _qwen2),
    "qwen3": Recipe("qwen3", _qwen3),
    "gemma": Recipe("gemma", _gemma),
    "gemma2": Recipe("gemma2", _gemma, n_layer=4, keys=_SWA),
    "gemma3": Recipe("gemma3", _gemma, n_layer=7, keys=_SWA),
    "yarn": Recipe("qwen3", _qwen3, keys=_YARN),
    "nope": Recipe("smollm3", _plain, n_layer=4),
    "mrope": Recipe("qwen2vl", _qwen2, keys={"rope.dimension_sections": [4, 6, 6, 0]}),
    "recurrent": Recipe("mamba", _mamba, n_head=0, n_head_kv=0, keys=_MAMBA),
    "hybrid": Recipe("lfm2", _lfm2, n_layer=4, n_head_kv=(0, 1, 0, 1), keys={"shortconv.l_cache": 3}),
    "delta": Recipe(
        "qwen35", _qwen35, n_layer=4,
        keys={
            "ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 32, "ssm.time_step_rank": 2,
            "ssm.group_count": 2, "full_attention_interval": 2, "rope.dimension_sections": [4, 6, 6, 0],
        },
    ),
    "mamba2": Recipe("falcon-h1", _falcon_h1, keys={**_MAMBA, "ssm.group_count": 1}),
    "hybrid-swa": Recipe("lfm2", _lfm2, n_layer=4, n_head_kv=(0, 1, 0, 1), keys={"shortconv.l_cache": 3, **_SWA}),
}  # fmt: skip
"""Kind of memory -> a model that has it."""


def add_keys(writer: gguf.GGUFWriter, architecture: str, keys: Mapping[str, int | float | str | list[int]]) -> None:
    """Write the keys of an architecture, each in the type that its value has."""
    for name, value in keys.items():
        key = f"{architecture}.{name}"
        match value:
            case str():
                writer.add_string(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)


def write(
    recipe: Recipe,
    path: Path,
    vocabulary: Vocabulary | None = None,
    add: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> None:
    """Write the model; the same bytes every time. `add`: writes more of its header."""
    random = np.random.default_rng(7)
    name = recipe.architecture
    writer = gguf.GGUFWriter(path, name)
    n_vocab = N_VOCAB
    writer.add_tokenizer_model(vocabulary.kind if vocabulary else "no_vocab")
    if vocabulary:
        n_vocab = len(vocabulary.tokens)
        writer.add_token_list(vocabulary.tokens)
        writer.add_token_types(vocabulary.types)
        writer.add_token_scores(vocabulary.scores)
        if vocabulary.merges:
            writer.add_token_merges(vocabulary.merges)
        for key, token in vocabulary.special.items():
            writer.add_uint32(f"tokenizer.ggml.{key}", token)
        if vocabulary.template:
            writer.add_chat_template(vocabulary.template)
    usual: dict[str, int | float | str | list[int]] = {
        "vocab_size": n_vocab,
        "block_count": recipe.n_layer,
        "context_length": N_CTX_TRAIN,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": recipe.n_head,
        "attention.head_count_kv": recipe.n_head_kv if isinstance(recipe.n_head_kv, int) else list(recipe.n_head_kv),
        "attention.key_length": recipe.head,
        "attention.value_length": recipe.head,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "rope.dimension_count": recipe.head,
        "rope.freq_base": 10000.0,
    }
    add_keys(writer, name, usual | dict(recipe.keys))
    add(writer)
    for tensor, shape in recipe.tensors(recipe).items():
        shape = (n_vocab, *shape[1:]) if tensor in ("token_embd.weight", "output.weight") else shape
        writer.add_tensor(tensor, values(random, tensor, shape))
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write all that was added to a file, and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def amplified(source: Path, target: Path) -> None:
    """Copy a model of others and give its tensors our values: weights and scales near zero hide every fault."""
    shutil.copyfile(source, target)
    target.chmod(0o600)
    random = np.random.default_rng(7)
    for tensor in gguf.GGUFReader(target, "r+").tensors:
        data = tensor.data
        if data.dtype == np.float32:
            data[...] = values(random, tensor.name, data.shape)


def values(random: np.random.Generator, tensor: str, shape: tuple[int, ...]) -> Values:
    """Random weights for a tensor of this name."""
    drawn: Values = random.standard_normal(shape, dtype=np.float32)
    if tensor.endswith("ssm_a"):  # decays: a state that explodes or dies at once would hide what it remembers
        made = -np.exp(drawn * 0.5) * 0.2
    elif tensor.endswith("scale"):
        made = np.ones(shape)
    elif "norm" in tensor:
        made = 1 + drawn * 0.1
    elif len(shape) == 1:
        made = drawn * 0.3
    else:
        made = drawn * SHARPNESS / np.sqrt(shape[-1])
    typed: Values = made.astype(np.float32)
    return typed
