"""Warnings in the log: a client's change loses the cache of a conversation, or a model cannot see an
image, or hear a recording.

A prompt begins with the system prompt and the tools, so a change there makes all of it new. Each named conversation is
compared with itself, side tasks apart. Requests without a name count as one conversation. Two unnamed clients that take
turns cause a warning at each change, and rightly: they do cost each other the cache until they send a session.
"""

from __future__ import annotations

import logging
from itertools import takewhile

from shepherd.backends.local.media import media_of
from shepherd.backends.local.prefix_hash import prefix_hashes, text_hash, tool_hash
from shepherd.core import Audio, Image, Request
from shepherd.core.lru import LruCache
from shepherd.core.messages import leading_systems

logger = logging.getLogger(__name__)


PARTS = ("the words of the system prompt", "the tools")


def fingerprint(request: Request) -> tuple[bytes, bytes]:
    """The beginning of every prompt of a conversation: hashes of its leading system messages, and of its tools."""
    leading = takewhile(lambda message: message.role == "system", request.messages)
    tools = request.tools if request.shows_tools else ()
    return text_hash(repr([message.text for message in leading])), text_hash(repr([*map(tool_hash, tools)]))


class CacheWatch:
    """Looks at every request of one cache; keeps hashes only. Any thread."""

    def __init__(self, cache: str, *, sees: bool = False, hears: bool = False, limit: int = 10_000) -> None:
        self._cache = cache
        self._lacks = [
            (kind, words)
            for kind, words, has in ((Image, "see images", sees), (Audio, "hear recordings", hears))
            if not has
        ]
        self._last = LruCache[tuple[bytes, bytes]](limit)
        self._warned = LruCache[bool](limit)

    def notice(self, request: Request) -> None:
        """Warn about a change: once for each, not at the first request, and not at a repetition."""
        now = fingerprint(request)
        before = self._last.keep((request.owner, request.session, bool(request.background)), now) or now
        if changed := [part for part, old, new in zip(PARTS, before, now, strict=True) if old != new]:
            logger.warning(
                "%s on cache %r are not those of the last request%s: a potential cache miss, "
                "what was computed behind the old ones cannot be used for the new ones",
                " and ".join(changed),
                self._cache,
                " of this conversation" if request.session else "",
            )
        for kind, words in self._lacks:
            has_some = any(isinstance(part, kind) for message in request.messages for part in media_of(message))
            if has_some and not self._warned.keep((conversation(request), words), True):
                logger.warning(
                    "the model of cache %r cannot %s: the prompt has a note in place of each", self._cache, words
                )


def conversation(request: Request) -> object:
    """The session, or else the beginning of the conversation, up to the first message that is not the system's."""
    return request.session or prefix_hashes(request.messages[: leading_systems(request.messages) + 1])[-1]
