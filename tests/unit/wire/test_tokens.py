"""Text to tokens and back, in the shapes of llama-server and of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from shepherd.core import InvalidRequest
from shepherd.wire.base import Json
from shepherd.wire.llama.tokens import Tokenize, decode_detokenize, decode_tokenize, encode_text, encode_tokens


@pytest.mark.parametrize(
    ("body", "decoded"),
    [
        ({"content": "a"}, Tokenize("", "a", bos=False, special=True, pieces=False, strings=False)),
        ({"prompt": "a", "model": "m"}, Tokenize("m", "a", bos=True, special=True, pieces=False, strings=False)),
        ({"text": ""}, Tokenize("", "", bos=False, special=True, pieces=False, strings=False)),
        (
            {"content": "a", "add_special": True, "parse_special": False, "with_pieces": True},
            Tokenize("", "a", bos=True, special=False, pieces=True, strings=False),
        ),
        (
            {"prompt": "a", "add_special_tokens": False, "return_token_strs": True},
            Tokenize("", "a", bos=False, special=True, pieces=False, strings=True),
        ),
    ],
)
def test_each_client_says_it_in_its_own_way(body: Json, decoded: Tokenize) -> None:
    assert decode_tokenize(body) == decoded


@pytest.mark.parametrize(
    ("decode", "body", "field", "said"),
    [
        (decode_tokenize, {}, "content", "missing"),
        (decode_tokenize, {"messages": []}, "content", "count_tokens"),
        (decode_tokenize, {"content": 5}, "content", "a string, not 5"),
        (decode_tokenize, {"content": "a", "add_special": 1}, "add_special", "true or false"),
        (decode_detokenize, {}, "tokens", "missing"),
        (decode_detokenize, {"tokens": "a"}, "tokens", "an array"),
        (decode_detokenize, {"tokens": [1, -1]}, "tokens[1]", "at least 0, not -1"),
        (decode_detokenize, {"tokens": [True]}, "tokens[0]", "not true"),
    ],
)
def test_what_is_wrong_is_named(decode: Any, body: Json, field: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        decode(body)
    assert caught.value.field == field


def test_both_kinds_of_clients_find_their_fields() -> None:
    asked = decode_tokenize({"content": "a€"})
    assert encode_tokens(asked, [97, 5], [], n_ctx=8) == {"tokens": [97, 5], "count": 2, "max_model_len": 8}
    pieces = [b"a", b"\xe2"]
    asked = decode_tokenize({"content": "a€", "with_pieces": True, "return_token_strs": True})
    told = encode_tokens(asked, [97, 5], pieces, n_ctx=8)
    assert told["tokens"] == [{"id": 97, "piece": "a"}, {"id": 5, "piece": [0xE2]}]
    assert told["token_strs"] == ["a", "\ufffd"]
    assert encode_text([b"a", b"\xe2", b"\x82\xac"]) == {"content": "a€", "prompt": "a€"}
