"""OpenAI's `POST /v1/embeddings`: texts or tokens to vectors, as lists of numbers or packed in base64.

Not here: which model makes the vectors, and what it does with an input that is too long (the service).
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shepherd.core import InvalidRequest
from shepherd.wire.base import Fields, Json, Range, check_tokens, is_integer, wrong
from shepherd.wire.openai.shapes import encode_error

__all__ = ["EmbeddingRequest", "Input", "decode_request", "encode_answer", "encode_error"]

Input = str | tuple[int, ...]
"""A text, or the tokens themselves."""

MAX_INPUTS = 2048
"""As many as OpenAI takes in one body; clients cut their lists accordingly."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """What a body asks for."""

    model: str
    inputs: tuple[Input, ...]
    dimensions: int | None
    """The first so many of each vector; None = all."""
    truncate: bool
    """Shorten what is too long, in place of refusing it. Not a field of OpenAI's own."""
    packed: bool
    """As base64 of little-endian float32."""


def decode_request(body: Json) -> EmbeddingRequest:
    """What the client asks. Raises: `InvalidRequest`."""
    fields = Fields(body)
    form = fields.find_string("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise wrong("encoding_format", '"float" or "base64"', form)
    inputs = _decode_inputs(fields)
    if len(inputs) > MAX_INPUTS:
        message = f"input has {len(inputs)} elements; at most {MAX_INPUTS} are taken at a time: send several requests"
        raise InvalidRequest(message, field="input")
    return EmbeddingRequest(
        model=fields.find_string("model") or "",
        inputs=inputs,
        dimensions=fields.find_integer("dimensions", Range(low=1)),
        truncate=fields.find_boolean("truncate") is True,
        packed=form == "base64",
    )


def _decode_inputs(fields: Fields) -> tuple[Input, ...]:
    """A text, tokens, or an array of texts and arrays of tokens; none of them empty."""
    said = fields.find_any("input")
    if said is None:
        raise InvalidRequest("input is missing; send a text, or an array of texts", field="input")
    if isinstance(said, str):
        return (_decode_input(said, "input"),)
    if not isinstance(said, list):
        raise wrong("input", "a string, an array of strings, or an array of tokens", said)
    if not said:
        raise InvalidRequest("input is an empty array; send at least one text", field="input")
    if is_integer(said[0]):
        return (_decode_input(said, "input"),)
    return tuple(_decode_input(one, f"input[{index}]") for index, one in enumerate(said))


def _decode_input(said: Any, path: str) -> Input:
    if isinstance(said, str):
        if not said:
            raise InvalidRequest(f"{path} is an empty string; there is nothing to embed", field=path)
        return said
    if not isinstance(said, list):
        raise wrong(path, "a string or an array of tokens", said)
    if not said:
        raise InvalidRequest(f"{path} is an empty array; there is nothing to embed", field=path)
    return check_tokens(said, path)


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


def pack(vector: Sequence[float]) -> str:
    """Base64 of little-endian float32."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def plain(vector: Sequence[float]) -> list[float]:
    """Numbers with the nine digits that tell every float32 from its neighbours: as doubles they have seventeen."""
    return [float(f"{value:.9g}") for value in vector]
