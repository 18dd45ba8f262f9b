"""Text to tokens and back, with the fields of llama-server and of vLLM. Only the shapes: the service has the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Fields, Json, field_error
from shepherd.wire.sampling import MODEL
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, body_schema, read_fields
from shepherd.wire.texts import TOKENS, check_tokens


@dataclass(frozen=True, slots=True)
class Tokenize:
    model: str
    text: str
    bos: bool
    """With the first token that every prompt has."""
    special: bool
    """Control tokens are recognised in it."""
    pieces: bool
    """Each token with its text, as in llama-server."""
    strings: bool
    """The texts of all tokens besides, as in vLLM."""


_TEXTS = (
    Field("content", STRING, "The text (llama-server)."),
    Field("prompt", STRING, "The text (vLLM); begins with BOS unless add_special is false."),
    Field("text", STRING, "The text."),
)
_FIELDS = (
    MODEL,
    *_TEXTS,
    Field("add_special", BOOLEAN, "Begin with the token that begins every prompt.", also=("add_special_tokens",)),
    Field("parse_special", BOOLEAN, "Recognise control tokens.", default=True),
    Field("with_pieces", BOOLEAN, "Each token with its text.", default=False),
    Field("return_token_strs", BOOLEAN, "The texts of all tokens besides.", default=False),
)
TOKENIZE_BODY = body_schema(*_FIELDS, example={"content": "Hello there"})


def decode_tokenize(body: Json) -> Tokenize:
    """`content` is llama-server's name of the text, `prompt` vLLM's. Raises: `InvalidRequest`."""
    given = read_fields(Fields(body), _FIELDS)
    key = next((field.name for field in _TEXTS if given[field.name] is not None), None)
    if key is None:
        hint = "; messages are counted by /v1/messages/count_tokens" if body.get("messages") is not None else ""
        raise InvalidRequest(f"content is missing: the text to be cut into tokens{hint}", field="content")
    # Their own defaults: a prompt begins with BOS, a mere text does not.
    bos = key == "prompt" if given["add_special"] is None else given["add_special"]
    return Tokenize(
        given["model"], given[key], bos, given["parse_special"], given["with_pieces"], given["return_token_strs"]
    )


def encode_tokens(asked: Tokenize, tokens: Sequence[int], pieces: Sequence[bytes], *, n_ctx: int) -> Json:
    """`pieces`: the bytes of each token, if the request wants them. `n_ctx`: tokens that a conversation can hold."""
    written: list[Any] = list(tokens)
    if asked.pieces:
        written = [{"id": token, "piece": _encode_piece(piece)} for token, piece in zip(tokens, pieces, strict=True)]
    body: Json = {"tokens": written, "count": len(tokens), "max_model_len": n_ctx}
    if asked.strings:
        body["token_strs"] = [piece.decode("utf-8", "replace") for piece in pieces]
    return body


def _encode_piece(piece: bytes) -> str | list[int]:
    """Bytes where it is no text."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def _decode_tokens(body: Fields, key: str) -> tuple[int, ...]:
    values = body.find_array(key)
    if values is None:
        raise field_error(key, "is missing: an array of token ids")
    return check_tokens(values, key)


_TOKENS_FIELDS = (MODEL, Field("tokens", FieldKind(_decode_tokens, TOKENS)))
DETOKENIZE_BODY = body_schema(*_TOKENS_FIELDS, required=["tokens"], example={"tokens": [1, 2, 3]})


def decode_detokenize(body: Json) -> tuple[str, tuple[int, ...]]:
    given = read_fields(Fields(body), _TOKENS_FIELDS)
    return given["model"], given["tokens"]


def encode_text(pieces: Sequence[bytes]) -> Json:
    text = b"".join(pieces).decode("utf-8", "replace")
    return {"content": text, "prompt": text}
