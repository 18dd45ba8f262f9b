"""Server-sent events: the framing of one event or comment, and nothing about what is in it.

JSON escapes line breaks, so that a body is always one `data:` line.
"""

from __future__ import annotations

import json
from typing import Any

MEDIA_TYPE = "text/event-stream; charset=utf-8"

PING = b": ping\n\n"
"""A comment, which readers skip. Keeps proxies and clients from giving up during a silence."""

DONE = b"data: [DONE]\n\n"


def encode_comment(text: str) -> bytes:
    """A line that readers skip, for people. `text`: one line of ASCII."""
    return f": {text}\n\n".encode("ascii")


def encode_event(body: Any, event: str | None = None) -> bytes:
    """One event with a JSON body.

    The text is ASCII: some readers split lines at U+2028 or U+0085 (`str.splitlines`), which JSON leaves unescaped.
    """
    name = f"event: {event}\n" if event is not None else ""
    return f"{name}data: {json.dumps(body, separators=(',', ':'))}\n\n".encode("ascii")
