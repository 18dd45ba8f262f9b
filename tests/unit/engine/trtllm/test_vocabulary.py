"""Vocabularies of each kind, trained here: a text is tokens with its bytes, and none of them is a control token."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import amount
from tests.damage import KINDS as WRONG
from tests.damage import LEFT_OUT, damaged, places
from tests.unit.engine.trtllm.small_tokenizers import KINDS, trained

from shepherd.core import ConfigError, EngineError
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.trtllm.vocabulary import CheckpointVocabulary
from shepherd.models.checkpoint import Checkpoint

pytest.importorskip("tokenizers", reason="the package 'tokenizers' is not installed")

TEXTS = (
    "", " ", "Place a cup", " Place  a cup \n\n on\tthe table", "naïve 你好 🙂🇨🇭 é", "<|im_start|>user\n</s><s>",
    "<0x0 ▁ Ġ Ċ", "<think>hm</think>", "\0\x01\x7f", "x" * 3000, "\ud800 half",
)  # fmt: skip


def model(folder: Path, text: str, **facts: Any) -> Checkpoint:
    (folder / "tokenizer.json").write_text(text, "utf-8")
    return Checkpoint(folder, "checkpoint", "X", "x", 512, 0, (), 0, None, **facts)


class Trained(CheckpointVocabulary):
    """A vocabulary of a known kind."""

    kind: str


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("kind")
    facts = {"bos_text": "<s>", "eos_text": "<|im_end|>", "end_tokens": (2,)}
    made = Trained(model(folder, trained(request.param), **facts))
    made.kind = request.param
    return made


def expected(vocabulary: Trained, text: str) -> set[bytes]:
    """The bytes that the tokens of a text may have: SentencePiece puts a blank before it, NFC composes it."""
    kind = vocabulary.kind
    raw = text.encode("utf-8", "replace").decode()
    raw = unicodedata.normalize("NFC", raw) if kind == "bytes-nfc" else raw
    raw = raw.replace("▁", " ") if not kind.startswith("bytes") else raw  # SentencePiece has one letter for both
    if kind not in ("pieces-always", "unigram"):
        return {raw.encode()}
    after = raw.replace("<think>", "<think> ")  # a text begins behind it
    return {each.removesuffix(end).encode() for each in (raw, after, f" {raw}", f" {after}") for end in ("", " ")}


def joined(vocabulary: Trained, text: str) -> bytes:
    return b"".join(map(vocabulary.piece, vocabulary.tokenize(text)))


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_bytes_of_the_tokens_are_the_text(vocabulary: Trained, text: str) -> None:
    assert joined(vocabulary, text) in expected(vocabulary, text)


@settings(max_examples=amount(20, 2500), deadline=None)
@given(
    text=st.text(max_size=40)
    | st.lists(st.sampled_from(["<|im_start|>", "</s>", "<s>", "<", "s>", "a", "\n", " ", "▁", "é", "🙂"])).map("".join)
)
def test_any_text_comes_back_and_holds_no_control_token(vocabulary: Trained, text: str) -> None:
    tokens = vocabulary.tokenize(text)
    assert b"".join(map(vocabulary.piece, tokens)) in expected(vocabulary, text)
    assert not {special.id for special in vocabulary.specials if special.control} & set(tokens)


def test_blanks_between_words_are_in_the_tokens(vocabulary: Trained) -> None:
    assert joined(vocabulary, "Place a cup").endswith(b"Place a cup")


def test_special_tokens_are_known_by_kind(vocabulary: Trained) -> None:
    by_text = {special.text: special for special in vocabulary.specials}
    assert by_text["<|im_start|>"].control
    assert not by_text["<think>"].control
    assert vocabulary.tokenize("<think>")[-1] == by_text["<think>"].id
    assert vocabulary.piece(by_text["<|im_end|>"].id) == b"<|im_end|>"
    assert vocabulary.end_tokens == {2, by_text["<|im_end|>"].id}
    kind = vocabulary.kind
    assert vocabulary.bos == (by_text["<s>"].id if kind.startswith("pieces") else None)
    with pytest.raises(EngineError, match="outside the vocabulary"):
        vocabulary.piece(vocabulary.n_vocab)


def test_a_grammar_holds_over_such_a_vocabulary(vocabulary: Trained) -> None:
    """The answer is drawn greedily from what the mask allows: whatever a model prefers, it is JSON of the schema."""
    import numpy as np

    cup, number = {"enum": ["red", "blue"]}, {"type": "integer", "maximum": 9, "minimum": 0}
    schema: dict[str, Any] = {"type": "object", "properties": {"cup": cup, "n": number}, "required": ["cup", "n"]}
    schema["additionalProperties"] = False
    constrainer = Constrainer(vocabulary, vocabulary.end_tokens)
    lark = f"start: %json {json.dumps(schema)}"
    constrainer.check(lark)
    for seed in range(amount(3, 30)):
        mask, random, raw = constrainer.mask(lark), np.random.default_rng(seed), b""
        for _ in range(200):
            logits = random.normal(size=vocabulary.n_vocab).astype(np.float32)
            mask.allow(logits.data)
            token = int(logits.argmax())
            if token in vocabulary.end_tokens:
                break
            mask.accept(token)
            raw += vocabulary.piece(token)
        found = json.loads(raw)
        assert found["cup"] in ("red", "blue")
        assert isinstance(found["n"], int)


def test_a_larger_vocabulary_of_the_model_has_empty_tokens_behind_it(tmp_path: Path) -> None:
    made = CheckpointVocabulary(
        Checkpoint(model(tmp_path, trained("bytes")).path, "engine", "X", "x", 9, 2048, (), 0, "")
    )
    assert (made.n_vocab, made.piece(2047)) == (2048, b"")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("{", "tokenizer.json: is not JSON"),
        ("[]", "tokenizer.json: holds"),
        ("{}", "tokenizer.json: cannot be used"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "decoder: writes its tokens in the way"),
        ({"model": {"type": "Unknown"}}, "cannot be used"),
        ({"model": {"type": "BPE", "continuing_subword_prefix": "x"}}, "continuing_subword_prefix"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, change: Any, says: str) -> None:
    text = change if isinstance(change, str) else json.dumps(json.loads(trained("bytes", 300)) | change)
    with pytest.raises(ConfigError, match=says) as caught:
        CheckpointVocabulary(model(tmp_path, text))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("kind", ["bytes", "pieces", "unigram"])
def test_no_damage_to_the_file_raises_another_error(tmp_path: Path, kind: str) -> None:
    described = json.loads(trained(kind, 700 if kind == "pieces" else 600))
    whole = [at for at in places(described) if at[:2] != ("model", "vocab") or len(at) < 4]
    seen: set[tuple[Any, ...]] = set()
    for at in whole:
        where = tuple("*" if isinstance(each, int) else each for each in at)
        for by in WRONG if at and where not in seen and len(seen) < amount(9, 1000) else ():
            try:
                made = CheckpointVocabulary(model(tmp_path, json.dumps(damaged(described, at, by))))
                made.tokenize("Place a cup </s>")
            except (ConfigError, EngineError) as error:
                assert "\n" not in str(error), (at, by)  # noqa: PT017 - both ends are right
        seen.add(where)
    assert LEFT_OUT in WRONG
