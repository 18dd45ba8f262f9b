"""Bodies and answers of OpenAI's embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import InvalidRequest
from shepherd.wire.ollama.embed import decode_embed, decode_embeddings
from shepherd.wire.openai import embeddings as openai_embeddings
from shepherd.wire.openai.embeddings import MAX_INPUTS, EmbeddingRequest, decode_request, encode_answer, pack, plain

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("said", "inputs"),
    [
        ("a text", ("a text",)),
        (["one", "two"], ("one", "two")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["one", [0, 2**31 - 1]], ("one", (0, 2**31 - 1))),
        (" ", (" ",)),
        ("", ("",)),
        (["a", ""], ("a", "")),
        ([12, "a", 34], ((12, "a", 34),)),
        (["a", 5], (("a", 5),)),
        ([[1, 2], [3, "b"]], ((1, 2), (3, "b"))),
        ([["a", "b"]], (("a", "b"),)),
        ({"prompt_string": "a"}, ("a",)),
        ({"content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}, ("a b",)),
        (["a", {"prompt_string": "b"}, {"content": [{"type": "text", "text": "c"}]}], ("a", "b", "c")),
    ],
)
def test_inputs_are_texts_or_tokens(said: Any, inputs: tuple[Any, ...]) -> None:
    assert decode_request({"model": "m", "input": said}) == EmbeddingRequest(
        "m", inputs, None, truncate=False, packed=False
    )


@pytest.mark.parametrize("decode", [decode_request, decode_embed, decode_embeddings])
def test_adapters_are_refused(decode: Any) -> None:
    body = {"model": "m", "input": "a", "prompt": "a"}
    decode(body | {"lora": []})
    with pytest.raises(InvalidRequest, match="computed without them; leave lora out") as caught:
        decode(body | {"lora": [{"id": 0, "scale": 1}]})
    assert caught.value.field == "lora"


def test_the_rest_says_how_to_write_the_vectors() -> None:
    body = {"input": "a", "encoding_format": "base64", "dimensions": 64, "truncate": True, "user": "anna", "odd": 1}
    assert decode_request(body) == EmbeddingRequest("", ("a",), 64, truncate=True, packed=True)
    nothing = {"model": None, "encoding_format": None, "dimensions": None, "truncate": None, "user": None}
    assert decode_request({"input": "a", **nothing}) == EmbeddingRequest("", ("a",), None, truncate=False, packed=False)


@pytest.mark.parametrize(
    ("fields", "words", "field"),
    [
        ({"input": None}, "input is missing", "input"),
        ({"input": []}, "input is an empty array", "input"),
        ({"input": {}}, "input.prompt_string is missing", "input.prompt_string"),
        ({"input": {"content": "a"}}, "input.content must be an array", "input.content"),
        ({"input": [{"content": [{"type": "image_url"}]}]}, 'is "image_url"; models', "input[0].content[0].type"),
        ({"input": {"prompt_string": "a", "multimodal_data": ["x"]}}, "not supported", "input.multimodal_data"),
        ({"input": True}, "input must be a string", "input"),
        ({"input": ["a", []]}, "input[1] is an empty array", "input[1]"),
        ({"input": ["a", None]}, "input[1] must be a string, an array of tokens, or an array of these", "input[1]"),
        ({"input": [True]}, "input[0] must be a token: an integer of at least 0, not true", "input[0]"),
        ({"input": [1, None]}, "input[1] must be a token: an integer of at least 0, not null", "input[1]"),
        ({"input": [[1, "a", -1]]}, "input[0][2] must be a token", "input[0][2]"),
        ({"input": [[1, -1]]}, "input[0][1] must be a token", "input[0][1]"),
        ({"input": [2**31]}, "input[0] must be a token", "input[0]"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input has 2049 elements; at most 2048", "input"),
        ({"encoding_format": "hex"}, 'encoding_format must be "float" or "base64", not "hex"', "encoding_format"),
        ({"dimensions": 0}, "dimensions must be an integer of at least 1, not 0", "dimensions"),
        ({"dimensions": "many"}, "dimensions must be an integer", "dimensions"),
        ({"model": 1}, "model must be a string", "model"),
    ],
)
def test_a_wrong_field_is_named(fields: Mapping[str, Any], words: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_request({"input": "a", **fields})
    assert words in caught.value.message
    assert caught.value.field == field
    status, body = openai_embeddings.encode_error(caught.value)
    assert (status, body["error"]["param"]) == (400, field)


@given(st.lists(FLOAT32))
def test_packed_numbers_are_little_endian_float32(vector: list[float]) -> None:
    content = base64.b64decode(pack(vector))
    assert list(struct.unpack(f"<{len(vector)}f", content)) == vector


@given(st.lists(FLOAT32))
def test_plain_numbers_are_the_same(vector: list[float]) -> None:
    assert np.array(plain(vector), np.float32).tolist() == vector


@given(st.lists(st.floats(-1, 1, width=32)))
def test_plain_numbers_are_short(vector: list[float]) -> None:
    assert all(len(repr(value)) <= 16 for value in plain(vector))


def test_the_answer_is_a_list_of_vectors() -> None:
    vectors = [[0.6, 0.8], [1.0, 0.0]]
    answer = encode_answer(vectors, model="m", n_tokens=7, packed=False)
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.6, 0.8]},
            {"object": "embedding", "index": 1, "embedding": [1.0, 0.0]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    packed = encode_answer(vectors, model="m", n_tokens=7, packed=True)["data"]
    assert [one["embedding"] for one in packed] == [pack([0.6, 0.8]), pack([1, 0])]


@pytest.mark.parametrize(
    ("body", "texts", "truncate", "keep_alive_s"),
    [
        ({"input": "a"}, ("a",), True, None),
        ({"input": ["a", ""], "truncate": False}, ("a", ""), False, None),
        ({"input": "", "keep_alive": "0s"}, (), True, 0.0),
        ({"keep_alive": 5}, (), True, 5.0),
        ({"input": [], "truncate": None}, (), True, None),
    ],
)
def test_ollama_embeds_texts(
    body: Mapping[str, Any], texts: tuple[str, ...], truncate: bool, keep_alive_s: float | None
) -> None:
    wanted = decode_embed({"model": "m", **body})
    assert (wanted.texts, wanted.truncate, wanted.keep_alive_s) == (texts, truncate, keep_alive_s)


def test_ollamas_older_way_takes_one_prompt() -> None:
    assert decode_embeddings({"model": "m", "prompt": "a"}).texts == ("a",)
    assert decode_embeddings({"model": "m", "prompt": ""}).texts == ()
