"""The paths that generate, one row each: which protocol is spoken there. Adding a surface is adding a row.

Paths that only tell something (`/v1/models`, `/health`) are in `app`; this file holds no handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shepherd.server.schema import CHAT_BODY
from shepherd.wire import openai_chat
from shepherd.wire.base import Codec


@dataclass(frozen=True, slots=True)
class Surface:
    """One endpoint that answers with a generated message."""

    name: str
    """In the log."""
    paths: tuple[str, ...]
    """The first is the canonical one, which routes can name; the others are what clients send, too."""
    codec: Codec[Any]
    id_prefix: str
    """Of the ids of its answers."""
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of the request, for `/docs` only: the codec decides what is accepted."""

    @property
    def path(self) -> str:
        return self.paths[0]


SURFACES = (
    Surface(
        name="openai-chat",
        paths=("/v1/chat/completions", "/chat/completions"),
        codec=openai_chat,
        id_prefix="chatcmpl-",
        summary="Answer a conversation (OpenAI chat completions), whole or streamed",
        body=CHAT_BODY,
    ),
)

_CODECS: Mapping[str, Codec[Any]] = {path: surface.codec for surface in SURFACES for path in surface.paths}


def codec_of(path: str) -> Codec[Any]:
    """The protocol whose error shape a client of `path` understands: OpenAI's unless a surface says otherwise."""
    return _CODECS.get(path, openai_chat)
