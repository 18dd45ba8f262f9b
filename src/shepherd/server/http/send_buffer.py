"""What has been encoded for one client and not yet sent: bounded, so that a slow client delays only itself.

`put` never waits; when the buffer is full, the client is dropped. A fragment of megabytes says nothing about the
client: `put_alone` waits until it is taken. One event loop, one task that puts, one that takes.
"""

from __future__ import annotations

import asyncio


class ClientTooSlow(Exception):
    """The client reads too slowly, or has stopped reading."""


class SendBuffer:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._fragments: list[bytes] = []
        self.n_bytes = 0
        """In the buffer."""
        self.has_last = False
        """The last fragment is in the buffer, or has been taken."""
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    def put(self, fragment: bytes, *, is_last: bool = False) -> None:
        """Add a fragment. Raises: `ClientTooSlow` when more than `max_bytes` are in the buffer."""
        self.n_bytes += len(fragment)
        if self.n_bytes > self._max_bytes:
            raise ClientTooSlow(f"{self.n_bytes} bytes are unread")
        self._add(fragment, is_last)

    async def put_alone(self, fragment: bytes, *, is_last: bool = False) -> None:
        """Add a fragment of any size to the empty buffer, and wait until it is taken."""
        await self._until_empty()
        self.n_bytes = len(fragment)
        self._add(fragment, is_last)
        await self._until_empty()

    def _add(self, fragment: bytes, is_last: bool) -> None:
        self._fragments.append(fragment)
        self.has_last = self.has_last or is_last
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def take(self, silence_s: float) -> bytes | None:
        """All fragments, as soon as there is one; empty after `silence_s` without any, `None` at the end."""
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
        if self._emptied is not None:
            self._emptied.set_result(None)
            self._emptied = None
        if fragments:
            return b"".join(fragments)
        return None if self._closed else b""

    async def _until_empty(self) -> None:
        if self._fragments:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
