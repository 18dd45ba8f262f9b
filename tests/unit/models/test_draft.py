"""Which model may draft for which, and the memory that it takes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engine.tiny_gguf import RECIPES, Vocabulary, write

from shepherd.core import ConfigError
from shepherd.models import draft
from shepherd.models.draft import MOST_CELLS, MOST_UNUSED, DraftFile, cells_of, fits
from shepherd.models.gguf import Header, read_header
from shepherd.models.sizing import fit

WORDS = tuple(f"word{n}" for n in range(128))


def made(path: Path, *words: str, kind: str = "gpt2", recipe: str = "plain-1") -> Header:
    tokens = words or WORDS
    n = len(tokens)
    write(RECIPES[recipe], path, Vocabulary(kind, tokens, [1] * n, [0.0] * n))
    return read_header(path)


def test_a_model_of_the_same_tokens_may_draft(tmp_path: Path) -> None:
    model = made(tmp_path / "model.gguf")
    draft.check(model, model)
    draft.check(made(tmp_path / "draft.gguf"), model)


def test_unused_tokens_at_the_end_are_no_other_vocabulary(tmp_path: Path) -> None:
    model = made(tmp_path / "model.gguf")
    longer = made(tmp_path / "padded.gguf", *WORDS, *(f"[PAD{n}]" for n in range(MOST_UNUSED)))
    draft.check(replace(longer, size_bytes=model.size_bytes), model)
    draft.check(model, longer)
    longest = made(tmp_path / "longest.gguf", *WORDS, *(f"[PAD{n}]" for n in range(MOST_UNUSED + 1)))
    with pytest.raises(ConfigError, match=r"draft model model\.gguf has a vocabulary of 128 tokens, longest\.gguf one"):
        draft.check(model, longest)


def test_the_first_other_token_is_named(tmp_path: Path) -> None:
    model = made(tmp_path / "model.gguf")
    words = [*WORDS[:7], "other", *WORDS[8:90], "and another", *WORDS[91:]]
    says = "token 7 of the draft model draft.gguf is 'other', of model.gguf 'word7'; name another draft model, or leave"
    with pytest.raises(ConfigError, match=re.escape(says)):
        draft.check(made(tmp_path / "draft.gguf", *words), model)
    words[7] = "x" * 5000
    with pytest.raises(ConfigError) as raised:
        draft.check(made(tmp_path / "draft.gguf", *words), model)
    assert len(raised.value.message) < 300


def test_another_kind_of_tokenizer_is_another_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer of the kind 'llama', model\.gguf of 'gpt2'"):
        draft.check(made(tmp_path / "draft.gguf", kind="llama"), made(tmp_path / "model.gguf"))


def test_a_model_without_texts_or_weights_is_refused(tmp_path: Path) -> None:
    model = made(tmp_path / "model.gguf")
    write(RECIPES["plain-1"], tmp_path / "numbers.gguf")
    with pytest.raises(ConfigError, match=r"numbers\.gguf has no vocabulary of texts"):
        draft.check(read_header(tmp_path / "numbers.gguf"), model)
    with pytest.raises(ConfigError, match=r"model\.gguf has no weights, only a vocabulary"):
        draft.check(replace(model, tensors={}, size_bytes=0), model)


def test_a_draft_model_is_no_larger_than_the_model(tmp_path: Path) -> None:
    model = made(tmp_path / "model.gguf")
    larger = replace(model, path=tmp_path / "larger.gguf", size_bytes=5 << 30)
    with pytest.raises(ConfigError, match=r"weights of the draft model larger\.gguf take 5\.0 GiB, more than those of"):
        draft.check(larger, model)


def test_what_keeps_a_state_neither_drafts_nor_is_drafted_for(tmp_path: Path) -> None:
    model, state = made(tmp_path / "model.gguf"), made(tmp_path / "state.gguf", recipe="recurrent")
    for pair in ((state, replace(model, size_bytes=1 << 30)), (replace(model, size_bytes=1), state)):
        with pytest.raises(ConfigError, match=r"state\.gguf has layers that keep a state"):
            draft.check(*pair)


def test_its_context_has_a_limit_and_its_weights_count_once(tmp_path: Path) -> None:
    header = made(tmp_path / "model.gguf")
    assert header.n_ctx_train == 4096
    wide = replace(header, metadata={**header.metadata, f"{header.architecture}.context_length": 100_000})
    sizes = [cells_of(each, n, 4, flash_attention=False).n_ctx for each in (header, wide) for n in (0, 512, 50_000)]
    assert sizes == [4096, 512, 4096, MOST_CELLS, 512, MOST_CELLS]
    cells = cells_of(header, 512, 3, flash_attention=True)
    assert (cells.n_seq, cells.flash_attention) == (6, True)
    one, two = DraftFile(header, cells), DraftFile(header, replace(cells, n_ctx=1024))
    other = DraftFile(made(tmp_path / "other.gguf"), cells)
    found = fits([one, other, two])
    assert found == [fit(header, [one.cells, two.cells]), fit(other.header, [cells])]
    assert sum(each.weights for each in found) == header.size_bytes + other.header.size_bytes
