"""No text of a request ever becomes a control token: every template, every special token, every kind of content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.fake_engine import FakeVocabulary
from tests.places import CONFORMANCE
from tests.unit.dialects.conformance import Json, each_template, templates

from shepherd.backends.local.prompt import Encoder
from shepherd.core import EngineError, InvalidRequest, Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects import Piece, Template
from shepherd.dialects.render.provenance import pieces
from shepherd.engine.base import Vocabulary

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

SPECIAL = re.compile(
    r"<\|[^<>\s|]+\|>|<[|｜][^<>\s]+[|｜]>|</?[a-z_]+(?::[a-z_]+)?>|\[/?[A-Z][A-Z _]*\]|<\|[a-z_]+>|<[a-z_]+\|>"
    r"|\]~!?b[\[\]]|\[e~\[|\]<\]minimax\[>\[|<SPECIAL_\d+>|｜DSML｜"
)
"""What looks like a token of a protocol in a template's text."""
NONCE = "ꙮ"
"""Stands on both sides of every forgery, and in no template."""
KINDS = (
    *("system", "user", "text", "reasoning", "call name", "call id", "argument key", "argument value", "result"),
    *("result name", "tool name", "tool description", "parameter name", "parameter description", "enum"),
    *("later system", "extra"),
)
"""Every place where the text of a request can stand."""


@cache
def described() -> Mapping[str, Json]:
    """What llama.cpp has read from each shared template; nothing where they are absent."""
    path = CONFORMANCE / "templates.json"
    found: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def special_texts(name: str, source: str) -> list[str]:
    """The texts of this template's control tokens, as far as they can be told from outside of its vocabulary."""
    modes = [mode for mode in described().get(name, {}).values() if isinstance(mode, dict)]
    told = {text for mode in modes for key in ("preserved_tokens", "additional_stops") for text in mode.get(key, ())}
    return sorted({text for text in (*SPECIAL.findall(source), *told) if len(text) > 2} | {"<s>", "</s>", "<eos>"})


def conversation(forged: Mapping[str, str]) -> tuple[list[Message], list[ToolSpec]]:
    """A conversation with every kind of content."""
    arguments = json.dumps({forged["argument key"]: forged["argument value"], "n": 1}, ensure_ascii=False)
    call = ToolCall(forged["call id"], forged["call name"], arguments)
    said = Reasoning(forged["reasoning"]), Text(forged["text"])
    result = ToolResult(call.id, (Text(forged["result"]),), forged["result name"])
    parameter = {"type": "string", "description": forged["parameter description"], "enum": [forged["enum"], "x"]}
    tool = ToolSpec(
        forged["tool name"],
        forged["tool description"],
        {"type": "object", "properties": {forged["parameter name"]: parameter}, "required": []},
    )
    messages = [
        Message.system(forged["system"]),
        Message.user(forged["user"]),
        Message("assistant", said),
        Message.system(forged["later system"]),
        Message.user(forged["user"]),
        Message("assistant", (*said, call)),
        Message("tool", (result,)),
    ]
    return messages, [tool]


def rotated(texts: Sequence[str]) -> Iterator[dict[str, str]]:
    """Forgeries for every kind of content, so that every text comes in every kind once."""
    for turn in range(len(texts)):
        yield {kind: NONCE + texts[(turn + at) % len(texts)] + NONCE for at, kind in enumerate(KINDS)}


def check(rendered: Sequence[Piece], encoder: Encoder, vocabulary: Vocabulary) -> None:
    """That nothing of the request is markup, and that control tokens stand for markup only."""
    assert not any(NONCE in piece.text for piece in rendered if piece.origin is None)
    origins = [piece.origin for piece in rendered for _ in piece.text.encode()]
    at = 0
    protocol = {special.id: special.text.encode() for special in vocabulary.specials}
    for token in encoder.encode(rendered).tokens:
        size = len(vocabulary.piece(token))
        if token in protocol:
            assert set(origins[at : at + size]) == {None}, f"{protocol[token]!r} was forged"
        at += size
    assert at == len(origins), "no character was lost"


@each_template(0.1)
@pytest.mark.grid(0.2)
def test_no_special_token_can_be_forged_in_any_kind_of_content(name: str) -> None:
    source = templates()[name]
    assert NONCE not in source
    texts = special_texts(name, source)
    template = Template(source, bos_token="<s>", eos_token="</s>")
    asks = sorted(template.variables)
    vocabularies = FakeVocabulary(control=texts), FakeVocabulary(control=(), user_defined=texts)
    # What is user-defined belongs to the protocol if the template knows it; the others of them anybody may write.
    encoders = [(Encoder(vocabulary, " ".join(texts)), vocabulary) for vocabulary in vocabularies]
    n_rendered = n_with_extra = 0
    for forged in rotated(texts):
        messages, tools = conversation(forged)
        for extra in (dict.fromkeys(asks, forged["extra"]), {}):
            try:
                rendered = template.render(messages, tools=tools, extra=extra)
            except (InvalidRequest, EngineError):
                continue  # the template refuses it, or takes no text for one of its variables
            n_rendered += 1
            n_with_extra += bool(extra)
            for encoder, vocabulary in encoders:
                check(rendered, encoder, vocabulary)
            break
    assert n_rendered == len(texts), "the template took every one of them"


def test_the_checker_sees_a_forged_token() -> None:
    vocabulary = FakeVocabulary()
    encoder = Encoder(vocabulary, "")
    check([Piece("<|im_start|>", None), Piece(f"{NONCE}<|im_start|>{NONCE}", 0)], encoder, vocabulary)
    with pytest.raises(AssertionError):
        check([Piece(f"{NONCE}<|im_start|>", None)], encoder, vocabulary)

    class Forgeable(Encoder):
        """Takes the text of users for markup."""

        def encode(self, rendered, cuts=(), owner=None, images=()):  # type: ignore[no-untyped-def]
            return super().encode([Piece(piece.text, None) for piece in rendered], cuts)

    with pytest.raises(AssertionError, match="forged"):
        check([Piece("<|im_start|>", 0)], Forgeable(vocabulary, ""), vocabulary)


def test_the_checker_sees_a_string_that_has_lost_its_origin() -> None:
    vocabulary = FakeVocabulary()
    sourced = Template("{{ messages[0].content }}").render([Message.user(NONCE)])
    check(sourced, Encoder(vocabulary, ""), vocabulary)
    with pytest.raises(AssertionError):
        check(pieces("".join(piece.text for piece in sourced)), Encoder(vocabulary, ""), vocabulary)


@pytest.mark.model
def test_no_special_token_of_the_embedded_model_can_be_forged(weights: Weights) -> None:
    source = weights.chat_template or ""
    texts = sorted(special.text for special in weights.specials if special.text)
    template = Template(source, bos_token=weights.bos_text, eos_token=weights.eos_text)
    encoder = Encoder(weights, source + "<think></think>")
    assert len(texts) > 5
    for forged in rotated(texts):
        messages, tools = conversation(forged)
        check(template.render(messages, tools=tools), encoder, weights)
