"""What has been written for one client and not yet been read by it: bounded, so that a slow reader holds up nobody.

Who fills it never waits; a client that lets it run full is given up. One event loop, one taker.
"""

from __future__ import annotations

import asyncio


class ClientTooSlow(Exception):
    """The client reads too slowly, or has stopped reading."""


class SendBuffer:
    """Byte fragments on their way out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._fragments: list[bytes] = []
        self.n_bytes = 0
        """Ready and not taken."""
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, fragment: bytes) -> None:
        """Add to what will be sent. Raises: `ClientTooSlow` when more than `max_bytes` lie unread."""
        self.n_bytes += len(fragment)
        if self.n_bytes > self._max_bytes:
            raise ClientTooSlow(f"{self.n_bytes} bytes are unread")
        self._fragments.append(fragment)
        self._wake()

    def close(self) -> None:
        """Say that nothing more comes."""
        self._closed = True
        self._wake()

    async def take(self, silence_s: float) -> bytes | None:
        """All that is ready, as soon as there is some: empty after a silence of `silence_s`, `None` at the end."""
        if not self._fragments and not self._closed:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(silence_s, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        fragments, self._fragments, self.n_bytes = self._fragments, [], 0
        if fragments:
            return b"".join(fragments)
        return None if self._closed else b""

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
