"""Vectors of texts: of the embedded model, and of a tiny encoder and a tiny decoder held against the same in NumPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.unit.engine.tiny_bert import CLS, N_CTX, N_EMBD, N_FF, N_HEAD, N_LAYER, SEP, WORDS, Bert, Values, write_bert
from tests.unit.engine.tiny_gguf import finish

from shepherd.core import EngineError, InvalidRequest
from shepherd.engine.llamacpp.embedding import EmbeddingModel, Pooling
from shepherd.engine.llamacpp.weights import Weights
from shepherd.memory.records import Embedder

pytestmark = pytest.mark.model

TEXTS = ["The lamb sleeps.", "", "a", "Once upon a time there was a small lamb. " * 8, " \n", "日本語 😀"]


def same(one: Values, other: Values) -> float:
    """The least cosine of vectors in pairs."""
    return float((one * other).sum(axis=1).min())


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return write_bert(tmp_path_factory.mktemp("bert") / "bert.gguf")


LETTERS = ["a", "b c", "p o n m l k j i h g", "a a a a a", "c b", "", "d e f g h i j k l m n o p a b c d e"]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_an_encoder_computes_what_the_same_sums_give_in_numpy(bert: Bert, pooling: Pooling) -> None:
    expected = np.stack([bert.vector(bert.tokens(text), pooling) for text in LETTERS])
    with EmbeddingModel.load(bert.path, pooling=pooling, n_threads=1) as model:
        vectors = model.embed(LETTERS)
    assert same(vectors, expected) > 0.9999
    assert same(vectors, np.roll(expected, 1, axis=0)) < 0.99, "otherwise this tests nothing"


def test_without_pooling_each_token_has_a_vector_as_it_was_computed(bert: Bert, llama: Llama) -> None:
    for made, texts in ((bert, LETTERS), (llama, ["a", lettered(700), "b c"])):
        each = [made.states(made.tokens(text)) for text in texts]
        with EmbeddingModel.load(made.path, pooling="none", n_tokens=None, n_threads=1) as model:
            found = model.encode(texts, truncate=False)
            first = model.encode(texts[:1], dimensions=3)
            assert model.encode([]).vectors.shape == (0, N_EMBD)
            if made is llama:
                with pytest.raises(InvalidRequest, match=r"526000 tokens, each with a vector of 32.*at most 524288"):
                    model.encode([lettered(1000)] * 526)
            assert model.stats().prefilled_tokens == sum(found.n_tokens) + len(each[0])
        assert found.n_tokens == tuple(map(len, each))
        assert np.allclose(found.vectors, np.concatenate(each), atol=2e-2)
        assert np.array_equal(first.vectors, found.vectors[: len(each[0]), :3])


def test_ways_to_pool_differ(bert: Bert) -> None:
    tokens = bert.tokens("p o n m")
    made = [bert.vector(tokens, pooling) for pooling in ("mean", "cls", "last")]
    assert max(float(made[0] @ made[1]), float(made[0] @ made[2]), float(made[1] @ made[2])) < 0.99


def test_a_text_that_is_too_long_is_cut_keeps_its_end_token_and_is_reported(bert: Bert) -> None:
    text = " ".join("abcdefgh"[at % 8] for at in range(100))
    tokens = bert.tokens(text)
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        assert model.n_tokens == N_CTX, "positions are a table of so many"
        made = model.encode(["a b", text, "c"])
    assert made.cut == (1,)
    assert made.n_tokens == (4, N_CTX, 3)
    expected = bert.vector([*tokens[: N_CTX - 1], SEP], "mean")
    assert float(made.vectors[1] @ expected) > 0.9999
    assert float(made.vectors[1] @ bert.vector(tokens[:N_CTX], "mean")) < 0.9999, (
        "otherwise the end token counts nothing"
    )


def test_a_text_of_exactly_the_limit_is_not_cut(bert: Bert) -> None:
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        made = model.encode(["a " * (N_CTX - 2), "a " * (N_CTX - 1)])
    assert made.n_tokens == (N_CTX, N_CTX)
    assert made.cut == (1,)


def test_special_tokens_in_a_text_are_plain_text(bert: Bert) -> None:
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        made = model.encode(["a [SEP] b", "a b"])
    assert made.n_tokens[0] > made.n_tokens[1] + 1
    assert same(made.vectors[:1], np.stack([bert.vector([CLS, 5, SEP, 6, SEP], "mean")])) < 0.999


def test_a_file_that_says_nothing_about_pooling_is_pooled_by_the_mean(tmp_path: Path, bert: Bert) -> None:
    silent = write_bert(tmp_path / "silent.gguf", pooling=None)
    with EmbeddingModel.load(silent.path, n_threads=1) as model, EmbeddingModel.load(bert.path, n_threads=1) as other:
        assert model.pooling == "mean"
        assert same(model.embed(LETTERS), other.embed(LETTERS)) > 0.999999


@pytest.mark.parametrize(("number", "pooling"), [(1, "mean"), (2, "cls"), (3, "last"), (0, "mean")])
def test_the_file_says_how_to_pool(tmp_path: Path, number: int, pooling: Pooling) -> None:
    made = write_bert(tmp_path / "made.gguf", pooling=number)
    with EmbeddingModel.load(made.path, n_threads=1) as model:
        assert model.pooling == pooling


@pytest.mark.parametrize(
    ("options", "wanted", "message"),
    [
        ({"pooling": 4}, {}, "scores pairs of texts"),
        ({"has_words": False}, {}, "no vocabulary of texts"),
        ({}, {"pooling": "sum"}, "pooling 'sum' is unknown; choose one of mean, cls, last, none"),
    ],
)
def test_a_model_that_makes_no_vectors_is_refused(
    tmp_path: Path, options: dict[str, Any], wanted: dict[str, Any], message: str
) -> None:
    made = write_bert(tmp_path / "made.gguf", **options)
    with pytest.raises(EngineError, match=message):
        EmbeddingModel.load(made.path, n_threads=1, **wanted)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("no model")
    with pytest.raises(EngineError, match=r"notes\.gguf cannot be loaded"):
        EmbeddingModel.load(tmp_path / "notes.gguf")


# -- inputs that are tokens, too long, or wrong ------------------------------------------------------------------------


def test_tokens_are_taken_as_they_are(bert: Bert) -> None:
    tokens = [[7], [CLS, 5, SEP], (9, 8, 7)]
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        made = model.encode([*tokens, "a"])
    assert made.n_tokens == (1, 3, 3, 3)
    expected = np.stack([bert.vector(given, "mean") for given in [*tokens, bert.tokens("a")]])
    assert same(made.vectors, expected) > 0.9999
    assert same(made.vectors[1:2], made.vectors[3:]) > 0.9999


def test_texts_between_tokens_are_part_of_one_input(bert: Bert) -> None:
    a, b = bert.tokens("a")[1:-1], bert.tokens("b")[1:-1]
    with EmbeddingModel.load(bert.path) as model:
        made = model.encode([[12, "a b", 13], ["a", 13, "b"], "", [""]])
    expected = [[12, *a, *b, 13], [CLS, *a, SEP, 13, *b], [CLS, SEP], [CLS, SEP]]
    assert made.n_tokens == (4, 5, 2, 2)
    assert same(made.vectors, np.stack([bert.vector(given, "mean") for given in expected])) > 0.9999


@pytest.mark.parametrize("token", [-1, len(WORDS), 2**31 - 1])
def test_what_is_no_token_is_refused(bert: Bert, token: int) -> None:
    with (
        EmbeddingModel.load(bert.path, n_threads=1) as model,
        pytest.raises(
            InvalidRequest, match=rf"input\[1\]\[2\] is {token}, .* they go from 0 to {len(WORDS) - 1}"
        ) as caught,
    ):
        model.encode(["a", [5, 6, token]])
    assert caught.value.field == "input[1]"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a " * (N_CTX - 1), f"has {N_CTX + 1} tokens"),
        ([5] * 100, "has 100 tokens"),
        ("a " * 5000, "has 5002 tokens"),
    ],
)
def test_what_is_too_long_can_be_refused(bert: Bert, given: str | list[int], words: str) -> None:
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        whole = model.encode(["a", "a " * (N_CTX - 2), "a" + " " * 10_000], truncate=False)
        with pytest.raises(InvalidRequest, match=words) as caught:
            model.encode(["a", given], truncate=False)
        assert model.encode(["a", given]).cut == (1,)
    assert (whole.n_tokens, whole.cut) == ((3, N_CTX, 3), ())
    assert caught.value.field == "input[1]"
    assert f"reads at most {N_CTX}" in caught.value.message


def test_vectors_are_cut_to_the_dimensions_that_are_wanted(bert: Bert) -> None:
    with EmbeddingModel.load(bert.path, n_threads=1) as model:
        whole = model.encode(LETTERS, dimensions=N_EMBD).vectors
        part = model.encode(LETTERS, dimensions=5).vectors
        for wrong in (0, N_EMBD + 1):
            with pytest.raises(InvalidRequest, match=f"dimensions is {wrong}; .* ask for 1 to {N_EMBD}"):
                model.encode(["a"], dimensions=wrong)
    assert part.shape == (len(LETTERS), 5)
    assert np.allclose(np.linalg.norm(part, axis=1), 1, atol=1e-5)
    assert same(part, whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)) > 0.999999


# -- a decoder, and the same in NumPy ----------------------------------------------------------------------------------

PIECES = ["<unk>", "<s>", "</s>", "\u2581", *"abcdefghijklmnop", *(f"\u2581{letter}" for letter in "abcdefghijklmnop")]
BOS, EOS = 1, 2
N_LONG = 2000
"""Positions that the decoder is trained on."""


@dataclass(frozen=True, slots=True)
class Llama:
    """A tiny decoder with random weights; every token sees only what stands before it."""

    path: Path
    tensors: dict[str, Values]

    def tokens(self, text: str) -> list[int]:
        return [PIECES.index(f"\u2581{letter}") for letter in text.split()]

    def vector(self, tokens: Sequence[int], pooling: Pooling) -> Values:
        states = self.states(tokens)
        pooled = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
        unit: Values = pooled / np.linalg.norm(pooled)
        return unit

    def states(self, tokens: Sequence[int]) -> Values:
        """[n_tokens, N_EMBD]."""
        t = self.tensors
        n = len(tokens)
        x = t["token_embd.weight"][list(tokens)]
        future = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        for layer in range(N_LAYER):
            prefix = f"blk.{layer}."
            seen = self._normed(x, f"{prefix}attn_norm")
            q, k, v = (
                (seen @ t[f"{prefix}attn_{name}.weight"].T).reshape(n, N_HEAD, -1).swapaxes(0, 1) for name in "qkv"
            )
            scores = turned(q) @ turned(k).swapaxes(1, 2) / np.sqrt(N_EMBD / N_HEAD) + future
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            looked = (weights / weights.sum(axis=-1, keepdims=True)) @ v
            x = x + looked.swapaxes(0, 1).reshape(n, N_EMBD) @ t[f"{prefix}attn_output.weight"].T
            seen = self._normed(x, f"{prefix}ffn_norm")
            gate = seen @ t[f"{prefix}ffn_gate.weight"].T
            up = seen @ t[f"{prefix}ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ t[f"{prefix}ffn_down.weight"].T
        return self._normed(x, "output_norm")

    def _normed(self, x: Values, name: str) -> Values:
        made: Values = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * self.tensors[f"{name}.weight"]
        return made


def turned(x: Values) -> Values:
    """[n_head, n, size] with the rotation of each position: pairs of neighbours, as this architecture has them."""
    size = x.shape[-1]
    angles = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    even, odd = x[..., ::2], x[..., 1::2]
    both = [even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)]
    made: Values = np.stack(both, axis=-1).reshape(x.shape).astype(np.float32)
    return made


def write_llama(path: Path, *, pooling: int | None = None, add_eos: bool | None = None) -> Llama:
    random = np.random.default_rng(6)
    square, wide = (N_EMBD, N_EMBD), (N_FF, N_EMBD)
    names = {"token_embd": (len(PIECES), N_EMBD), "output_norm": (N_EMBD,)}
    for layer in range(N_LAYER):
        each = {"attn_norm": (N_EMBD,), "ffn_norm": (N_EMBD,), "ffn_gate": wide, "ffn_up": wide, "ffn_down": wide[::-1]}
        each |= {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
        names |= {f"blk.{layer}.{name}": shape for name, shape in each.items()}
    tensors = {
        f"{name}.weight": (
            1 + random.standard_normal(shape) * 0.1
            if name.endswith("norm")
            else random.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])
        ).astype(np.float32)
        for name, shape in names.items()
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(N_LAYER)
    writer.add_context_length(N_LONG)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(PIECES))
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(PIECES)
    writer.add_token_scores([0.0] * 20 + [1.0] * 16)
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.NORMAL] * (len(PIECES) - 3)]
    writer.add_token_types(kinds)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    if add_eos is not None:
        writer.add_add_eos_token(add_eos)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    finish(writer)
    return Llama(path, tensors)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    return write_llama(tmp_path_factory.mktemp("llama") / "llama.gguf")


def lettered(n: int) -> str:
    """A text of so many tokens, which does not repeat itself."""
    return " ".join("abcdefghijklmnop"[at * at % 31 % 16] for at in range(n))


def test_an_encoder_reads_long_texts_at_once_when_they_come(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "long.gguf", n_ctx=1500)
    texts = ["a b", lettered(1100), "c", lettered(600)]
    with EmbeddingModel.load(bert.path, n_tokens=None, n_threads=1) as model:
        made = model.encode(texts, truncate=False)
        assert same(model.embed(texts[:1]), made.vectors[:1]) > 0.9999
        assert model.encode([lettered(2000)]).n_tokens == (model.n_tokens,) == (1500,)
    expected = np.stack([bert.vector(bert.tokens(text), "mean") for text in texts])
    assert same(made.vectors, expected) > 0.9999


@pytest.mark.parametrize(
    ("options", "asked", "ends"),
    [
        ({"pooling": 3}, None, True),
        ({"pooling": 3, "add_eos": True}, None, True),
        ({"pooling": 3, "add_eos": False}, None, False),
        ({"pooling": 3}, "mean", False),
        ({}, "last", False),
    ],
)
def test_a_model_that_pools_the_last_token_gets_its_end_token(
    tmp_path: Path, options: dict[str, Any], asked: Pooling | None, ends: bool
) -> None:
    made = write_llama(tmp_path / "made.gguf", **options)
    tokens = [*made.tokens("a b c"), *([EOS] if ends else [])]
    with EmbeddingModel.load(made.path, pooling=asked, n_tokens=64, n_threads=1) as model:
        vectors = model.encode(["a b c", tokens, lettered(100)])
    assert vectors.n_tokens == (len(tokens), len(tokens), 64)
    assert same(vectors.vectors[:1], vectors.vectors[1:2]) > 0.9999
    kept = [*made.tokens(lettered(64)[: 2 * 63 - 1]), EOS] if ends else made.tokens(lettered(64))
    assert same(vectors.vectors[2:], made.vector(kept, model.pooling)[None]) > 0.9999


# -- the embedded model ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(weights: Weights) -> Iterator[EmbeddingModel]:
    with EmbeddingModel(weights, n_threads=1) as made:
        yield made


def test_it_is_what_the_memory_asks_for(model: EmbeddingModel) -> None:
    embedder: Embedder = model
    assert embedder.embed(["one", "two"]).shape == (2, embedder.dim)
    assert embedder.embed([]).shape == (0, embedder.dim)


def test_vectors_have_length_one_and_like_texts_are_alike(model: EmbeddingModel) -> None:
    vectors = model.embed(["My name is Anna.", "Hello, my name is Anna!", "17 * 23 = 391"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_a_text_has_the_same_vector_alone_as_among_others(model: EmbeddingModel) -> None:
    many = TEXTS * 15  # more than one batch of sequences, and more than one of tokens
    together = model.embed(many)
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    assert same(together, np.tile(alone, (15, 1))) > 0.9999
    assert same(together, np.roll(np.tile(alone, (15, 1)), 1, axis=0)) < 0.99, "otherwise this tests nothing"


def test_any_text_has_a_vector(model: EmbeddingModel) -> None:
    made = model.encode(["\0", "\ud800", "x" * 200_000, "<|im_end|>", "\U0010ffff", "", "e\u0301" * 50])
    assert np.isfinite(made.vectors).all()
    assert made.cut == (2,)
    assert max(made.n_tokens) == model.n_tokens


def test_the_name_is_that_of_the_weights_and_the_pooling(weights: Weights, model: EmbeddingModel) -> None:
    with EmbeddingModel(weights, pooling="last", n_threads=1) as other, EmbeddingModel(weights, n_threads=1) as again:
        assert other.name != model.name == again.name
        assert same(other.embed(TEXTS), model.embed(TEXTS)) < 0.99


def test_threads_take_turns(model: EmbeddingModel) -> None:
    expected = model.embed(TEXTS)
    made: list[Values] = []
    threads = [threading.Thread(target=lambda: made.append(model.embed(TEXTS * 3))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    assert all(same(vectors, np.tile(expected, (3, 1))) > 0.9999 for vectors in made)


@pytest.mark.parametrize("n_tokens", [-1, 1, 9, 63, 65, 700])
def test_any_limit_is_possible(bert: Bert, weights: Weights, n_tokens: int) -> None:
    long = "a b c d e f g h i j k l m n o p " * 8
    with EmbeddingModel.load(bert.path, n_tokens=n_tokens, n_threads=1) as model:
        made = model.encode([long] * 70)
    assert set(made.n_tokens) == {model.n_tokens} == {min(max(n_tokens, 8), N_CTX)}
    assert same(made.vectors, made.vectors[:1]) > 0.9999
    with EmbeddingModel(weights, n_tokens=n_tokens, n_threads=1) as model:
        assert model.encode([long, "a"]).n_tokens[0] <= model.n_tokens == max(n_tokens, 8)


def test_questions_do_not_wait_for_a_long_list(weights: Weights) -> None:
    with EmbeddingModel(weights, n_threads=1, n_tokens=32) as model:
        many = threading.Thread(target=model.embed, args=(["The lamb sleeps. " * 20] * 100,))
        many.start()
        n_answered = 0
        while many.is_alive():
            model.embed(["Who sleeps?"])
            n_answered += 1
        many.join()
    assert n_answered > 20


def test_weights_that_are_its_own_are_freed_with_it(bert: Bert) -> None:
    with EmbeddingModel.load(bert.path, n_threads=1) as made:
        assert made.weights.handle
    assert not made.weights.handle


def test_weights_that_are_not_its_own_outlive_it_and_a_closed_model_says_so(weights: Weights) -> None:
    made = EmbeddingModel(weights, n_threads=1)
    made.close()
    made.close()
    with pytest.raises(EngineError, match="has been closed"):
        made.embed(["late"])
    assert weights.tokenize("still there")
