"""Prompts to tokens: control tokens from markup only, and histories that come back as the very tokens generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import BYTES, FakeVocabulary

from shepherd.backends.local.prompt import Encoder
from shepherd.dialects import Piece
from shepherd.dialects.render.replay import OWN
from shepherd.engine.base import Special

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

TEMPLATE = "<|im_start|> <|im_end|> <tool_call>"
MARKERS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "<h1>"]


def vocabulary() -> FakeVocabulary:
    return FakeVocabulary(control=MARKERS[:2], user_defined=MARKERS[2:])


def spell(vocab: FakeVocabulary, tokens: Sequence[int]) -> str:
    return b"".join(map(vocab.piece, tokens)).decode()


contents = st.lists(st.sampled_from([*MARKERS, "a", "<", "|>", "\n", "é"]), max_size=6).map("".join)


@given(st.lists(contents, max_size=4))
def test_content_never_becomes_a_protocol_token_and_loses_no_character(texts: list[str]) -> None:
    vocab = vocabulary()
    pieces = []
    for index, text in enumerate(texts):
        pieces += [
            Piece("<|im_start|>user\n", None),
            *([Piece(text, index)] if text else []),
            Piece("<|im_end|>\n", None),
        ]
    tokens = list(Encoder(vocab, TEMPLATE).encode(pieces).tokens)
    assert spell(vocab, tokens) == "".join(piece.text for piece in pieces)
    assert tokens.count(vocab.ids["<|im_start|>"]) == len(texts)
    assert tokens.count(vocab.ids["<|im_end|>"]) == len(texts)
    assert vocab.ids["<tool_call>"] not in tokens


def test_the_templates_own_markup_becomes_protocol_tokens() -> None:
    vocab = vocabulary()
    tokens = Encoder(vocab, TEMPLATE).encode([Piece("<|im_start|>assistant\n<tool_call>{}", None)]).tokens
    assert tokens[0] == vocab.ids["<|im_start|>"]
    assert vocab.ids["<tool_call>"] in tokens


def test_user_defined_tokens_that_are_no_protocol_stay_what_the_tokeniser_makes_of_them() -> None:
    vocab = vocabulary()
    assert vocab.ids["<h1>"] in Encoder(vocab, TEMPLATE).encode([Piece("a <h1> title", 0)]).tokens


def test_a_token_cannot_be_forged_inside_of_another() -> None:
    vocab = FakeVocabulary(control=(), user_defined=("<a<b>>", "<b>", "b>>", "<b>>c"))
    encoder = Encoder(vocab, "<a<b>> <b> b>> <b>>c")
    for text in ("<a<b>>", "<a<b>>c", "<b<b>>c", "<<a<b>>>"):
        tokens = encoder.encode([Piece(text, 0)]).tokens
        assert max(tokens) < BYTES
        assert spell(vocab, tokens) == text


def test_runs_of_blanks_are_no_protocol_though_the_template_has_some() -> None:
    vocab = FakeVocabulary(control=(), user_defined=("    ", "\n\n"))
    encoder = Encoder(vocab, "{% if x %}\n\n    {% endif %}")
    assert list(encoder.encode([Piece("a\n\n    b", 0)]).tokens) == [*b"a", 257, 256, *b"b"]


def test_a_marker_cannot_be_assembled_from_markup_and_content() -> None:
    vocab = vocabulary()
    encoded = Encoder(vocab, TEMPLATE).encode(
        [Piece("<|im_", None), Piece("start|>", 0), Piece("<tool_", 1), Piece("call>", None)]
    )
    assert max(encoded.tokens) < BYTES


@pytest.mark.parametrize("written", [True, False])
def test_the_beginning_token_comes_exactly_once(written: bool) -> None:
    vocab = FakeVocabulary(control=["<s>", "<|im_end|>"])
    vocab.bos = vocab.ids["<s>"]
    encoded = Encoder(vocab, "").encode([Piece("<s>" if written else "", None), Piece("hello", 0)], [0])
    assert list(encoded.tokens) == [vocab.bos, *b"hello"]
    assert encoded.edges == [1], "and no cut is before it"


def test_white_space_that_belongs_to_a_token_is_not_tokenised_twice() -> None:
    vocab = FakeVocabulary()
    vocab.specials = (Special(BYTES, "<|end|>", True, strip_left=True, strip_right=True),)
    encoded = Encoder(vocab, "").encode([Piece("a  <|end|> \n b", None)], [1, 2, 3, 9, 11, 13, 14])
    assert list(encoded.tokens) == [*b"a", BYTES, *b"b"]
    assert encoded.edges == [1, 1, 1, 2, 2, 2, 3]


class TwoSpellings(FakeVocabulary):
    """Tokenises `ab` as one token that a model would not have to use."""

    def tokenize(self, text: str) -> list[int]:
        return [token for part in text.split("ab") for token in (999, *super(TwoSpellings, self).tokenize(part))][1:]

    def piece(self, token: int) -> bytes:
        return b"ab" if token == 999 else super().piece(token)


def test_a_history_comes_back_as_the_tokens_that_were_generated() -> None:
    vocab = TwoSpellings()
    encoder = Encoder(vocab, "")
    asked = [Piece("<|im_start|>user\n", None), Piece("ab", 0), Piece("<|im_end|>\n<|im_start|>assistant\n", None)]
    encoded = encoder.encode(asked)
    prompt = list(encoded.tokens)
    assert 999 in prompt
    generated = list(b"ab!")  # the model spelt it in two tokens
    encoder.remember(encoded, generated)
    history = [*asked[:-1], Piece(asked[-1].text, None), Piece("ab!", 1), Piece("<|im_end|>\n", None)]
    assert list(encoder.encode(history).tokens)[: len(prompt) + 3] == [*prompt, *generated]


def test_a_text_that_was_generated_in_two_ways_keeps_each_at_its_place() -> None:
    vocab = TwoSpellings()
    encoder = Encoder(vocab, "<|im_start|>")
    history, tokens = [Piece("<|im_start|>", None)], [vocab.ids["<|im_start|>"]]
    for generated in (b"ab!", [999, ord("!")], b"ab!", [999, ord("!")]):
        encoded = encoder.encode(history)
        assert list(encoded.tokens) == tokens, "what came later changes no place before it"
        encoder.remember(encoded, generated)
        history += [Piece("ab!", 1), Piece("<|im_start|>", None)]
        tokens += [*generated, vocab.ids["<|im_start|>"]]
    assert list(encoder.encode(history).tokens) == tokens
    encoder.remember(encoder.encode(history[:1]), [999, ord("!")])
    assert list(encoder.encode(history[:2]).tokens) == [tokens[0], 999, ord("!")], "the newest of one place"


def test_what_was_generated_for_one_owner_spells_no_text_of_another() -> None:
    """Else the number of tokens of a guess would tell whether the model has written it to the other."""
    encoder = Encoder(TwoSpellings(), "")
    encoder.remember(encoder.encode(()), b"ab!", "bob")
    counts = {owner: len(encoder.encode([Piece("ab!", 0)], (), owner).tokens) for owner in ("bob", "ada", "", None)}
    assert counts == {"bob": 3, "ada": 2, "": 2, None: 2}
    assert len(encoder.tokenize("ab!", special=True)) == 2


def test_generated_protocol_tokens_cut_the_memory_like_the_template_does() -> None:
    vocab = vocabulary()
    encoder = Encoder(vocab, TEMPLATE)
    asked = [Piece("<|im_start|>assistant\n", None)]
    encoded = encoder.encode(asked)
    generated = [*b"Sure.\n", vocab.ids["<tool_call>"], *b"\n{}"]
    encoder.remember(encoded, generated)
    again = encoder.encode(
        [Piece("<|im_start|>assistant\n", None), Piece("Sure.", 0), Piece("\n<tool_call>\n{}", None)]
    )
    assert list(again.tokens) == [*encoded.tokens, *generated]


def test_what_was_generated_is_told_as_markup_and_text() -> None:
    vocab = vocabulary()
    encoder = Encoder(vocab, TEMPLATE)
    call = vocab.ids["<tool_call>"]
    assert encoder.spell([*"Né ".encode(), call, *b"<|im_end|>"]) == (
        Piece("Né ", OWN),
        Piece("<tool_call>", None),
        Piece("<|im_end|>", OWN),
    )
    assert encoder.spell([call]) == (Piece("<tool_call>", None),)
    assert encoder.spell(["é".encode()[0], call]) is encoder.spell(["é".encode()[0]]) is None
    assert (encoder.find_token("<tool_call>"), encoder.find_token("<h1>")) == (call, None)


def test_a_generation_that_ends_inside_a_character_is_not_remembered_wrongly() -> None:
    vocab = vocabulary()
    encoder = Encoder(vocab, TEMPLATE)
    encoder.remember(encoder.encode(()), list("é".encode())[:1])
    assert list(encoder.encode([Piece("\ufffd", 0)]).tokens) == list("\ufffd".encode())


def test_the_text_behind_the_last_protocol_token_is_what_generation_continues() -> None:
    encoder = Encoder(vocabulary(), TEMPLATE)
    assert encoder.encode([Piece("<|im_start|>a", None), Piece("b", 0)]).tail == "ab"
    assert encoder.encode([Piece("a<|im_end|>", None)]).tail == ""
    assert encoder.encode([]).tail == ""


class Words(FakeVocabulary):
    """One token per three bytes, and a blank before the first word, as SentencePiece has it."""

    def tokenize(self, text: str) -> list[int]:
        raw = b" " + text.encode()
        return [1000 + int.from_bytes(b"\1" + raw[at : at + 3], "big") for at in range(0, len(raw), 3)]

    def piece(self, token: int) -> bytes:
        if token < 1000:
            return super().piece(token)
        raw = token - 1000
        return raw.to_bytes((raw.bit_length() + 7) // 8, "big")[1:]


@given(st.data())
def test_cuts_snap_forward_to_the_next_edge_and_change_no_token(data: st.DataObject) -> None:
    vocab = data.draw(st.sampled_from([Words, FakeVocabulary]))()
    texts = data.draw(st.lists(st.sampled_from(["é", "abc", "\n", *MARKERS[:2]]), max_size=12))
    pieces = [Piece(text, data.draw(st.sampled_from([None, 0]))) for text in texts]
    whole = "".join(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    encoded = Encoder(vocab, TEMPLATE).encode(pieces, cuts)
    assert encoded.tokens == Encoder(vocab, TEMPLATE).encode(pieces).tokens
    ends = [0]
    for token in encoded.tokens:
        chunk_start = token >= 1000 and vocab.piece(token)[:1] == b" "
        ends.append(ends[-1] + len(vocab.piece(token)) - chunk_start)
    wanted = [next(at for at, end in enumerate(ends) if end >= len(whole[:cut].encode())) for cut in cuts]
    assert encoded.edges == wanted


@pytest.mark.model
@given(st.text(max_size=40))
def test_on_the_embedded_model_the_tokens_spell_the_prompt(weights: Weights, text: str) -> None:
    encoder = Encoder(weights, weights.chat_template or "")
    pieces = [Piece("<|im_start|>user\n", None), *([Piece(text, 0)] if text else []), Piece("<|im_end|>\n", None)]
    tokens = encoder.encode(pieces).tokens
    spelled = b"".join(map(weights.piece, tokens)).decode()
    assert spelled == "".join(piece.text for piece in pieces).encode("utf-8", "replace").decode()
    ends = [special.id for special in weights.specials if special.text == "<|im_end|>"]
    assert [token for token in tokens if token in ends] == ends
