"""Who asks, as the headers of a request say it: whose memory is meant, and which conversation goes on.

Clients name their conversations in headers of their own; what a body says of it is the codec's to read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.types import Scope

from shepherd.wire.base import Decoded

USER = b"x-shepherd-user"
"""The header that says whose memory is meant; it stands above what the body says."""

SESSIONS = (
    (b"x-claude-code-session-id", b"x-claude-code-agent-id"),
    (b"x-session-id",),
    (b"x-session-affinity",),
    (b"session-id",),
)
"""Headers that name a conversation: all of a row together, the first row that is there. Claude Code's agents share
their session's id; opencode sends the second and the third; Codex the last."""


def named_user(scope: Scope) -> str | None:
    """Whose memory the caller means, if the header says so."""
    return dict(scope["headers"]).get(USER, b"").decode("utf-8", "replace").strip() or None


def named_session(scope: Scope) -> str | None:
    """The conversation that the caller means, if a header says so."""
    headers = dict(scope["headers"])
    for row in SESSIONS:
        if headers.get(row[0]):
            return "/".join(value.decode("latin-1")[:200] for name in row if (value := headers.get(name)))
    return None


def as_from(decoded: Decoded[Any], scope: Scope, *, trace: bool) -> Decoded[Any]:
    """The same, with what the headers say of the caller."""
    said: dict[str, Any] = {"trace": True} if trace else {}
    if user := named_user(scope):
        said["user"] = user
    if session := named_session(scope):
        said["session"] = session
    if not said:
        return decoded
    return replace(decoded, requests=tuple(replace(request, **said) for request in decoded.requests))
