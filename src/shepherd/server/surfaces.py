"""The paths that take a body, one row each: which protocol is spoken there. Adding a surface is adding a row.

`SURFACES` generate, `QUERIES` only compute. Paths that tell what is there (`/v1/models`, `/health`) are in `models` and
`app`; this file holds no handler.
"""

from __future__ import annotations

from collections.abc import Mapping

from shepherd.server.exchange import Surface
from shepherd.server.query import EncodeError, Query
from shepherd.server.schema import CHAT_BODY
from shepherd.wire import openai_chat
from shepherd.wire.base import Json

SURFACES: tuple[Surface, ...] = (
    Surface(
        name="openai-chat",
        paths=("/v1/chat/completions", "/chat/completions"),
        codec=openai_chat,
        id_prefix="chatcmpl-",
        summary="Answer a conversation (OpenAI chat completions), whole or streamed",
        body=CHAT_BODY,
    ),
)

QUERIES: tuple[Query, ...] = ()

_ERRORS: Mapping[str, EncodeError] = {
    **{path: surface.codec.encode_error for surface in SURFACES for path in surface.paths},
    **{path: query.encode_error for query in QUERIES for path in query.paths},
}
_ERRORS_BELOW: tuple[tuple[str, EncodeError], ...] = ()
"""Beginnings of paths, and the protocol of what is there and is no surface."""


def encode_error(path: str, error: Exception) -> tuple[int, Json]:
    """Status and body in the shape that a client of `path` understands: OpenAI's unless a row says otherwise."""
    if (encode := _ERRORS.get(path)) is None:
        below = (encode for beginning, encode in _ERRORS_BELOW if path.startswith(beginning))
        encode = next(below, openai_chat.encode_error)
    return encode(error)
