"""Text to tokens and back, as llama-server and vLLM have it: each kind of client finds the fields that it looks for.

Only the shapes; who knows the vocabulary is asked in between (`server.tokens`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shepherd.core import InvalidRequest
from shepherd.wire.base import Fields, Json, check_tokens


@dataclass(frozen=True, slots=True)
class Tokenize:
    """A text to be cut into tokens."""

    model: str
    text: str
    bos: bool
    """With the first token that every prompt has."""
    special: bool
    """Control tokens are recognised in it."""
    pieces: bool
    """Each token with its text, as llama-server tells it."""
    strings: bool
    """The texts of all tokens besides, as vLLM tells them."""


def decode_tokenize(body: Json) -> Tokenize:
    """`content` is llama-server's name of the text, `prompt` vLLM's. Raises: `InvalidRequest`."""
    fields = Fields(body)
    texts = [(key, text) for key in ("content", "prompt", "text") if (text := fields.find_string(key)) is not None]
    if not texts:
        hint = "; messages are counted by /v1/messages/count_tokens" if fields.has("messages") else ""
        raise InvalidRequest(f"content is missing: the text to be cut into tokens{hint}", field="content")
    # Their own defaults: a prompt begins with BOS, a mere text does not.
    is_prompt = texts[0][0] == "prompt"
    bos = [fields.find_boolean(key) for key in ("add_special", "add_special_tokens")]
    special = fields.find_boolean("parse_special")
    return Tokenize(
        model=fields.find_string("model") or "",
        text=texts[0][1],
        bos=next((value for value in bos if value is not None), is_prompt),
        special=True if special is None else special,
        pieces=fields.find_boolean("with_pieces") is True,
        strings=fields.find_boolean("return_token_strs") is True,
    )


def encode_tokens(asked: Tokenize, tokens: Sequence[int], pieces: Sequence[bytes], *, n_ctx: int) -> Json:
    """`pieces`: the bytes of each token, where they are wanted. `n_ctx`: tokens that a conversation can hold."""
    told: list[Any] = list(tokens)
    if asked.pieces:
        told = [{"id": token, "piece": _encode_piece(piece)} for token, piece in zip(tokens, pieces, strict=True)]
    body: Json = {"tokens": told, "count": len(tokens), "max_model_len": n_ctx}
    if asked.strings:
        body["token_strs"] = [piece.decode("utf-8", "replace") for piece in pieces]
    return body


def _encode_piece(piece: bytes) -> str | list[int]:
    """Bytes where it is no text."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def decode_detokenize(body: Json) -> tuple[str, tuple[int, ...]]:
    """The model and the tokens. Raises: `InvalidRequest`."""
    fields = Fields(body)
    values = fields.find_array("tokens")
    if values is None:
        raise InvalidRequest("tokens is missing: an array of token ids", field="tokens")
    tokens = check_tokens(values, "tokens")
    return fields.find_string("model") or "", tokens


def encode_text(pieces: Sequence[bytes]) -> Json:
    text = b"".join(pieces).decode("utf-8", "replace")
    return {"content": text, "prompt": text}
