"""The bytes of one file over HTTP, from where an earlier transfer ended.

PartialFile (on disk, with its hash so far) ◀── receive ── GET, Range: bytes=N-
patiently: repeats after a pause while the failure may pass; progress resets the count of attempts
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import httpx2

from shepherd.core import BackendError, BadReply, Unreachable
from shepherd.core.dataclasses import dataclass
from shepherd.models.pull.network import reaching, refuse
from shepherd.models.pulled import ModelFile
from shepherd.process.pools import in_pool

T = TypeVar("T")

CHUNK_BYTES = 2**20
SPAN_BYTES = 32 * 2**30
"""The most of one request: networks that deliver files refuse answers of more than 50 GB."""
SLOWEST_BYTES_PER_S = 1024
"""A source that sends a byte now and then would hold a pull for years."""
MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Timeouts:
    idle_s: float = 30.0
    """For an answer, and for its next byte."""
    attempts: int = 6
    """Without a byte between them."""
    first_s: float = 1.0
    """The first pause; each further one is twice as long."""
    most_s: float = 120.0
    """The longest pause, also where the source asks for a longer one: then the transfer fails."""
    slow_s: float = 300.0
    """A file may come more slowly than `SLOWEST_BYTES_PER_S` for so long; then the transfer fails."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Waiting:
    seconds: float
    why: str


class PartialFile:
    """The beginning of a file, and its SHA-256 so far. Its functions block; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Reads what there is. Raises: `OSError`."""
        self._sha = hashlib.sha256()
        self.n_bytes = 0
        # A chunk is written at once: in memory, a file stays in pages of the size of its writes (`llamacpp/pages.py`).
        self._file: BinaryIO = path.open("a+b", buffering=2 * CHUNK_BYTES)
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._sha.update(chunk)
            self.n_bytes += len(chunk)

    @property
    def sha256(self) -> str:
        return self._sha.hexdigest()

    def write(self, chunk: Sequence[bytes]) -> None:
        """Append its pieces. Raises: `OSError`."""
        for piece in chunk:
            self._file.write(piece)
            self._sha.update(piece)
            self.n_bytes += len(piece)
        self._file.flush()

    def clear(self) -> None:
        """Begin again. Raises: `OSError`."""
        self._file.truncate(0)
        self._sha = hashlib.sha256()
        self.n_bytes = 0

    def close(self) -> None:
        self._file.close()


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    timeouts: Timeouts,
    show: Callable[[Waiting], None],
    progress: Callable[[], int] = lambda: 0,
) -> T:
    """The result of `attempt`, repeated while its failure may pass. `progress`: a number that grows with the work."""
    tries, before = 0, progress()
    while True:
        try:
            return await attempt()
        except BackendError as error:
            if not error.retryable:
                raise
            if (now := progress()) != before:
                tries, before = 0, now
            tries += 1
            asked = error.retry_after_s
            pause = asked if asked is not None else min(timeouts.first_s * 2 ** (tries - 1), timeouts.most_s)
            if tries >= timeouts.attempts or pause > timeouts.most_s:
                raise
            show(Waiting(pause, error.message))
            await timeouts.sleep(pause)


async def receive(
    client: httpx2.AsyncClient,
    file: ModelFile,
    url: str,
    partial: PartialFile,
    *,
    headers: Mapping[str, str],
    timeouts: Timeouts,
    page: str,
    show: Callable[[int], None],
) -> None:
    """Append the rest of the file, or its next `SPAN_BYTES`. `show` gets its size, after each chunk.
    Raises: `BackendError`, retryable where the same may succeed later; `NotAllowed`, `InvalidRequest`, `OSError`."""
    start, stop = partial.n_bytes, min(partial.n_bytes + SPAN_BYTES, file.size_bytes)
    begun_s = timeouts.clock()

    def keep_up(n_bytes: int) -> None:
        if timeouts.clock() - begun_s > timeouts.slow_s + n_bytes / SLOWEST_BYTES_PER_S:
            raise BadReply(
                f"{host} sends {file.name} more slowly than {SLOWEST_BYTES_PER_S:,} bytes a second; what came is kept: "
                "pull it again later",
                backend=host,
            )

    asked = {**headers, "Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}
    with reaching(url):
        async with client.stream(
            "GET", url, headers=asked, timeout=httpx2.Timeout(timeouts.idle_s), follow_redirects=True
        ) as answer:
            host = answer.url.host
            refuse(answer, what=file.name, page=page)
            _check_head(answer, file, start, stop)
            if answer.status_code == 200 and start:  # ranges mean nothing to this server
                await in_pool("pulls", partial.clear)
                stop = file.size_bytes
            stop = file.size_bytes if answer.status_code == 200 else stop
            n_bytes, writing = partial.n_bytes, asyncio.create_task(asyncio.sleep(0))
            try:
                # While a thread hashes and writes one chunk, the next one comes.
                async for chunk in _chunks(answer.aiter_raw(), keep_up):
                    if n_bytes == 0 and file.role != "other" and not (begin := b"".join(chunk)).startswith(MAGIC):
                        raise wrong_start(host, file.name, begin)
                    n_bytes += sum(map(len, chunk))
                    if n_bytes > stop:
                        words = f"{host} sent more of {file.name} than it announced; pull it again"
                        raise BadReply(words, backend=host)
                    await asyncio.shield(writing)
                    writing = asyncio.create_task(_write(partial, chunk, show))
            finally:  # the caller closes the file next
                await asyncio.shield(writing)
            if partial.n_bytes < stop:
                raise Unreachable(f"{host} ended {file.name} too early", backend=host)


async def _chunks(pieces: AsyncIterator[bytes], keep_up: Callable[[int], None]) -> AsyncIterator[list[bytes]]:
    """The pieces, as many together as a thread is worth: `CHUNK_BYTES` and more, and the rest at the end, also if the
    connection breaks (`httpx2.TransportError`) or `keep_up`, which gets the bytes so far, raises `BadReply`. They are
    not joined, and not cut: that costs a third of the time."""
    chunk, n_bytes, n_all = list[bytes](), 0, 0
    failure: Exception | None = None
    try:
        async for piece in pieces:
            chunk.append(piece)
            n_bytes, n_all = n_bytes + len(piece), n_all + len(piece)
            keep_up(n_all)
            if n_bytes >= CHUNK_BYTES:
                yield chunk
                chunk, n_bytes = [], 0
    except (httpx2.TransportError, BadReply) as error:
        failure = error
    if chunk:
        yield chunk
    if failure is not None:
        raise failure


async def _write(partial: PartialFile, chunk: Sequence[bytes], show: Callable[[int], None]) -> None:
    await in_pool("pulls", partial.write, chunk)
    show(partial.n_bytes)


def _check_head(answer: httpx2.Response, file: ModelFile, start: int, stop: int) -> None:
    """Raises: `BadReply`, if this is not the answer to the request."""
    host = answer.url.host
    encoding = answer.headers.get("content-encoding", "identity")
    if answer.status_code not in (200, 206) or encoding != "identity":
        what = f"status {answer.status_code}, encoding {encoding}"
        raise BadReply(f"{host} answers a request for {file.name} in an unknown way ({what})", backend=host)
    if answer.status_code == 206:
        span = answer.headers.get("content-range", "")
        if span != f"bytes {start}-{stop - 1}/{file.size_bytes}":
            raise BadReply(
                f"{host} sent {span[:80]!r} of {file.name}, not bytes {start}-{stop - 1}/{file.size_bytes}: the file "
                "has changed, or the server is faulty; pull it again",
                backend=host,
            )
    elif (size := content_length(answer)) is not None and size != file.size_bytes:
        if "html" in answer.headers.get("content-type", ""):
            raise wrong_start(host, file.name, b"<html")
        raise BadReply(
            f"{host} sends {size} bytes as {file.name}, which should have {file.size_bytes}; pull it again later",
            backend=host,
        )


def wrong_start(host: str, name: str, start: bytes) -> BadReply:
    """The error for a file that begins with `start` and not like a GGUF file."""
    if start.lstrip()[:1] == b"<":
        is_what = "a web page, not a GGUF file: does this network want a login, or is it a page about the file?"
    else:
        is_what = "no GGUF file: it does not begin with 'GGUF'"
    return BadReply(f"what {host} sent as {name} is {is_what}", backend=host)


def content_length(answer: httpx2.Response) -> int | None:
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None
