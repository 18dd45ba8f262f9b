"""A tiny decoder that scores pairs, as Qwen3-Reranker does: a file with random weights, and the same sums in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
from tests.recorded_sessions import byte_spelling
from tests.unit.engine.tiny_gguf import EPSILON, N_EMBD, RECIPES, Recipe, Shapes, Values, Vocabulary, write

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    f"{START}system\nJudge.{END}\n{START}user\n<Query>: {{query}}\n<Document>: {{document}}{END}\n{START}assistant\n"
)
N_BYTES = 256


@dataclass(frozen=True, slots=True)
class Qwen3:
    """Every byte is a token, but for the two control tokens."""

    path: Path
    tensors: dict[str, Values]
    recipe: Recipe

    def pair(self, query: str, document: str) -> list[int]:
        """The tokens of a pair that has no control token in its texts."""
        tokens: list[int] = []
        before, between, after = TEMPLATE.replace("{query}", "\0").replace("{document}", "\0").split("\0")
        for text, is_markup in ((before, True), (query, False), (between, True), (document, False), (after, True)):
            for at, part in enumerate(text.split(START)) if is_markup else [(0, text)]:
                tokens += [N_BYTES] if at else []
                for number, piece in enumerate(part.split(END)) if is_markup else [(0, part)]:
                    tokens += [N_BYTES + 1] if number else []
                    tokens += piece.encode()
        return tokens

    def score(self, tokens: Sequence[int]) -> float:
        """The probability of the first label."""
        logits = self.tensors["cls.output.weight"] @ self._states(tokens)[-1]
        chances = np.exp(logits - logits.max())
        return float(chances[0] / chances.sum())

    def _states(self, tokens: Sequence[int]) -> Values:
        t, n, head = self.tensors, len(tokens), self.recipe.head
        x = t["token_embd.weight"][list(tokens)]
        future = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        for layer in range(self.recipe.n_layer):
            prefix = f"blk.{layer}."

            def seen_by(name: str, seen: Values, prefix: str = prefix) -> Values:
                made: Values = seen @ t[f"{prefix}{name}.weight"].T
                return made

            seen = _normed(x, t[f"{prefix}attn_norm.weight"])
            q, k, v = (seen_by(f"attn_{name}", seen).reshape(n, -1, head).swapaxes(0, 1) for name in "qkv")
            q, k = (
                _turned(_normed(each, t[f"{prefix}attn_{name}_norm.weight"])) for each, name in ((q, "q"), (k, "k"))
            )
            scores = q @ k.swapaxes(1, 2) / np.sqrt(head) + future
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            looked = (weights / weights.sum(axis=-1, keepdims=True)) @ v
            x = x + seen_by("attn_output", looked.swapaxes(0, 1).reshape(n, -1))
            seen = _normed(x, t[f"{prefix}ffn_norm.weight"])
            gate = seen_by("ffn_gate", seen)
            x = x + seen_by("ffn_down", gate / (1 + np.exp(-gate)) * seen_by("ffn_up", seen))
        return _normed(x, t["output_norm.weight"])


def _normed(x: Values, weight: Values) -> Values:
    made: Values = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON) * weight
    return made


def _turned(x: Values) -> Values:
    """[n_head, n, size] with the rotation of each position: halves, as this architecture has them."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(half) / half)
    one, other = x[..., :half], x[..., half:]
    both = [one * np.cos(angles) - other * np.sin(angles), one * np.sin(angles) + other * np.cos(angles)]
    made: Values = np.concatenate(both, axis=-1).astype(np.float32)
    return made


def write_qwen3(path: Path, *, template: str | None = TEMPLATE, n_layer: int = 2) -> Qwen3:
    """`template`: of pairs; None = the file has none."""
    plain = RECIPES["qwen3"]

    def tensors(recipe: Recipe) -> Shapes:
        return plain.tensors(recipe) | {"cls.output.weight": (2, N_EMBD)}

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_tokenizer_pre("qwen2")
        writer.add_bos_token_id(N_BYTES)  # llama-server ranks nothing without one
        writer.add_eos_token_id(N_BYTES + 1)
        writer.add_add_bos_token(False)
        if template is not None:
            writer.add_string("tokenizer.chat_template.rerank", template)

    words = [*byte_spelling(), START, END, "zq"]
    kinds = [gguf.TokenType.NORMAL] * N_BYTES + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL]
    recipe = replace(plain, tensors=tensors, n_layer=n_layer)
    write(recipe, path, Vocabulary("gpt2", words, kinds, [0.0] * len(words), ["z q"]), add)
    made = {each.name: np.array(each.data) for each in gguf.GGUFReader(path).tensors}
    return Qwen3(path, made, recipe)
