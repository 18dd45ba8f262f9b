"""A tiny encoder with random weights, as a file and as the same sums in NumPy; with a classifier, a reranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tests.unit.engine.tiny_gguf import finish

from shepherd.engine.llamacpp.embedding import Pooling

Values = npt.NDArray[np.float32]


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{letter}" for letter in "abcdefghijklmnop")]
CLS, SEP = 2, 3
N_EMBD, N_HEAD, N_FF, N_LAYER, N_CTX = 32, 2, 48, 2, 24


@dataclass(frozen=True, slots=True)
class Bert:
    """A tiny encoder with random weights, which knows sixteen words of one letter."""

    path: Path
    tensors: dict[str, Values]

    def tokens(self, text: str) -> list[int]:
        return [CLS, *(WORDS.index(f"\u2581{word}") for word in text.split()), SEP]

    def states(self, tokens: Sequence[int]) -> Values:
        """[n_tokens, N_EMBD]."""
        t = self.tensors
        n = len(tokens)
        x = t["token_embd.weight"][list(tokens)] + t["token_types.weight"][0] + t["position_embd.weight"][:n]
        x = self._normed(x, "token_embd_norm")
        for layer in range(N_LAYER):
            prefix = f"blk.{layer}."
            q, k, v = (
                self._linear(x, f"{prefix}attn_{name}").reshape(n, N_HEAD, -1).swapaxes(0, 1)
                for name in ("q", "k", "v")
            )
            scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(N_EMBD / N_HEAD))
            looked = (scores / scores.sum(axis=-1, keepdims=True)) @ v
            x = x + self._linear(looked.swapaxes(0, 1).reshape(n, N_EMBD), f"{prefix}attn_output")
            x = self._normed(x, f"{prefix}attn_output_norm")
            up = self._linear(x, f"{prefix}ffn_up")
            gelu = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
            x = self._normed(x + self._linear(gelu, f"{prefix}ffn_down"), f"{prefix}layer_output_norm")
        return x

    def vector(self, tokens: Sequence[int], pooling: Pooling) -> Values:
        states = self.states(tokens)
        pooled = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
        unit: Values = pooled / np.linalg.norm(pooled)
        return unit

    def pair(self, query: str, document: str) -> list[int]:
        """As llama-server writes a pair: nothing ends the document."""
        return [*self.tokens(query), *self.tokens(document)[1:-1]]

    def score(self, tokens: Sequence[int]) -> float:
        """Of a reranker: the first label."""
        hidden = np.tanh(self._linear(self.states(tokens)[0], "cls"))
        return float(self._linear(hidden, "cls.output")[0])

    def _linear(self, x: Values, name: str) -> Values:
        made: Values = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return made

    def _normed(self, x: Values, name: str) -> Values:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        made: Values = scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]
        return made


def shapes(n_ctx: int) -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(WORDS), N_EMBD),
        "position_embd.weight": (n_ctx, N_EMBD),
        "token_types.weight": (2, N_EMBD),
        "token_embd_norm.weight": (N_EMBD,),
        "token_embd_norm.bias": (N_EMBD,),
    }
    linear = {"attn_q": (N_EMBD, N_EMBD), "attn_k": (N_EMBD, N_EMBD), "attn_v": (N_EMBD, N_EMBD)}
    linear |= {"attn_output": (N_EMBD, N_EMBD), "ffn_up": (N_FF, N_EMBD), "ffn_down": (N_EMBD, N_FF)}
    for layer in range(N_LAYER):
        for name, shape in linear.items():
            made |= {f"blk.{layer}.{name}.weight": shape, f"blk.{layer}.{name}.bias": shape[:1]}
        for name in ("attn_output_norm", "layer_output_norm"):
            made |= {f"blk.{layer}.{name}.{kind}": (N_EMBD,) for kind in ("weight", "bias")}
    return made


def write_bert(
    path: Path, *, pooling: int | None = 1, has_words: bool = True, n_ctx: int = N_CTX, n_labels: int = 0
) -> Bert:
    """`n_labels`: of the classifier of a reranker; 0 = it has none."""
    random = np.random.default_rng(5)

    def values(name: str, shape: tuple[int, ...]) -> Values:
        drawn = random.standard_normal(shape).astype(np.float32)
        if name.endswith("norm.weight"):
            return 1 + drawn * np.float32(0.1)
        return drawn * np.float32(0.3 if len(shape) == 1 or "position" in name else 1.5 / np.sqrt(shape[-1]))

    tensors = {name: values(name, shape) for name, shape in shapes(n_ctx).items()}
    if n_labels:
        heads = {"cls": (N_EMBD, N_EMBD), "cls.output": (n_labels, N_EMBD)}
        for name, shape in heads.items():
            tensors |= {f"{name}.weight": values(name, shape), f"{name}.bias": values(name, shape[:1])}
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(N_LAYER)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_token_type_count(2)
    writer.add_vocab_size(len(WORDS))
    if n_labels > 1:
        writer.add_classifier_output_labels([f"label {n}" for n in range(n_labels)])
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    if has_words:
        writer.add_tokenizer_model("bert")
        writer.add_token_list(WORDS)
        writer.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * (len(WORDS) - 5))
        for add, token in (("bos", CLS), ("sep", SEP), ("unk", 1), ("pad", 0), ("mask", 4)):
            getattr(writer, f"add_{add}_token_id")(token)
    else:
        writer.add_tokenizer_model("no_vocab")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    finish(writer)
    return Bert(path, tensors)
