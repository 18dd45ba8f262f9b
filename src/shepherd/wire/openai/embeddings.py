"""OpenAI's `POST /v1/embeddings`: texts or tokens to vectors, as lists of numbers or packed in base64."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate

from shepherd.core import TextOrTokens
from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Fields, Json, field_error
from shepherd.wire.openai.shapes import encode_error
from shepherd.wire.sampling import MODEL, refuse_lora
from shepherd.wire.table import BOOLEAN, Field, FieldKind, body_schema, integer, one_of, read_fields
from shepherd.wire.texts import TEXTS, check_inputs, decode_texts

__all__ = ["EmbeddingRequest", "decode_request", "encode_answer", "encode_error"]

MAX_INPUTS = 2048
"""As many as OpenAI takes in one body; clients cut their lists accordingly."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    model: str
    inputs: tuple[TextOrTokens, ...]
    dimensions: int | None
    """The first so many of each vector; None = all."""
    truncate: bool
    """Shorten a text that is too long, instead of refusing it. Not a field of OpenAI."""
    packed: bool
    """As base64 of little-endian float32."""


def _decode_inputs(body: Fields, key: str) -> tuple[TextOrTokens, ...]:
    inputs = decode_texts(body, key, "send a text, or an array of texts")
    check_inputs(len(inputs), key, MAX_INPUTS)
    for at, text in enumerate(inputs):
        if text == ():  # an empty text has the special tokens of its model
            raise field_error(f"{key}[{at}]", "is an empty array; there is nothing to embed")
    return inputs


DIMENSIONS = Field("dimensions", integer(1), "How many numbers of each vector to keep.")
_ABOUT = f"A text, its tokens, or an array of at most {MAX_INPUTS} texts and arrays of tokens."
FIELDS = (
    MODEL,
    Field("input", FieldKind(_decode_inputs, TEXTS), _ABOUT),
    Field("encoding_format", one_of("float", "base64"), default="float"),
    DIMENSIONS,
    Field("truncate", BOOLEAN, "Shorten a text that is too long.", default=False),
)
BODY = body_schema(*FIELDS, required=["input"], example={"model": "default", "input": ["Hello!", "Good day!"]})


def decode_request(body: Json) -> EmbeddingRequest:
    fields = Fields(body)
    refuse_lora(fields)
    given = read_fields(fields, FIELDS)
    is_packed = given["encoding_format"] == "base64"
    return EmbeddingRequest(given["model"], given["input"], given["dimensions"], given["truncate"], is_packed)


def encode_answer(vectors: Sequence[Sequence[float]], *, model: str, n_tokens: int, packed: bool) -> Json:
    """The list of vectors. `n_tokens`: read of all inputs together."""
    encode = pack if packed else plain
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def encode_states(vectors: Sequence[Sequence[float]], n_tokens: Sequence[int]) -> list[Json]:
    """llama-server's list for a model that does not pool. `vectors`: of each token, input after input."""
    stops = list(accumulate(n_tokens))
    return [
        {"index": index, "embedding": [plain(vector) for vector in vectors[stop - n : stop]]}
        for index, (n, stop) in enumerate(zip(n_tokens, stops, strict=True))
    ]


def pack(vector: Sequence[float]) -> str:
    """Base64 of little-endian float32."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def plain(vector: Sequence[float]) -> list[float]:
    """Numbers with the nine digits that tell every float32 from its neighbours: as doubles they have seventeen."""
    return [float(f"{value:.9g}") for value in vector]
