"""The bytes of one file over HTTP, from where an earlier transfer ended; and what other hosts' failures mean.

    PartialFile (on disk, with its hash so far) ◀── receive ── GET, Range: bytes=N-
    patiently: the same again after a pause, as long as the failure may pass, and anew after each progress

Every source's requests fail with the same errors: `refuse` reads a status, `reaching` an exception. Not here: which
files (`plan.py`), and where they go (`pull.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

import httpx2

from shepherd.core import (
    BackendError,
    BadReply,
    InvalidRequest,
    NotAllowed,
    RateLimited,
    Refused,
    TimedOut,
    Unavailable,
    Unreachable,
)
from shepherd.models.pulled import ModelFile

T = TypeVar("T")

CHUNK_BYTES = 2**20
SPAN_BYTES = 32 * 2**30
"""The most of one request: networks that deliver files refuse answers of more than 50 GB."""
MAGIC = b"GGUF"
_PASSING = (408, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a transfer waits."""

    idle_s: float = 30.0
    """For an answer, and for its next byte."""
    attempts: int = 6
    """Without a byte between them."""
    first_s: float = 1.0
    """The first pause; each further one is twice as long."""
    most_s: float = 120.0
    """The longest pause, also where the source asks for a longer one: then the transfer ends, and says so."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pause before the next attempt."""

    seconds: float
    why: str


class PartialFile:
    """The beginning of a file, and its SHA-256 so far. Its functions block; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Reads what there is. Raises: `OSError`."""
        self._sha = hashlib.sha256()
        self.n_bytes = 0
        self._file: BinaryIO = path.open("a+b")
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._sha.update(chunk)
            self.n_bytes += len(chunk)

    @property
    def sha256(self) -> str:
        return self._sha.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append. Raises: `OSError`."""
        self._file.write(chunk)
        self._sha.update(chunk)
        self.n_bytes += len(chunk)

    def clear(self) -> None:
        """Begin again. Raises: `OSError`."""
        self._file.truncate(0)
        self._sha = hashlib.sha256()
        self.n_bytes = 0

    def close(self) -> None:
        self._file.close()


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    patience: Patience,
    show: Callable[[Waiting], None],
    progress: Callable[[], int] = lambda: 0,
) -> T:
    """What `attempt` returns, tried again while its failure may pass. `progress`: a number that grows with the work.

    Raises: what `attempt` raises.
    """
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
            pause = asked if asked is not None else min(patience.first_s * 2 ** (tries - 1), patience.most_s)
            if tries >= patience.attempts or pause > patience.most_s:
                raise
            show(Waiting(pause, error.message))
            await patience.sleep(pause)


async def receive(
    client: httpx2.AsyncClient,
    file: ModelFile,
    url: str,
    partial: PartialFile,
    *,
    headers: Mapping[str, str],
    idle_s: float,
    page: str,
    show: Callable[[int], None],
) -> None:
    """Append the rest of the file, or its next `SPAN_BYTES`. `show` gets the bytes that there are, after each chunk.
    `page`: as in `refuse`.

    Raises: `BackendError`, retryable where the same may succeed later; `NotAllowed`, `InvalidRequest`, `OSError`.
    """
    start, stop = partial.n_bytes, min(partial.n_bytes + SPAN_BYTES, file.size_bytes)
    asked = {**headers, "Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}
    with reaching(url):
        async with client.stream(
            "GET", url, headers=asked, timeout=httpx2.Timeout(idle_s), follow_redirects=True
        ) as answer:
            host = answer.url.host
            refuse(answer, what=file.name, page=page)
            _check_head(answer, file, start, stop)
            if answer.status_code == 200 and start:  # ranges mean nothing to this server
                await asyncio.to_thread(partial.clear)
                stop = file.size_bytes
            stop = file.size_bytes if answer.status_code == 200 else stop
            async for chunk in answer.aiter_raw(CHUNK_BYTES):
                if partial.n_bytes + len(chunk) > stop:
                    raise BadReply(f"{host} sent more of {file.name} than it announced; pull it again", backend=host)
                if partial.n_bytes == 0 and file.role != "other" and not chunk.startswith(MAGIC):
                    raise wrong_start(host, file.name, chunk)
                await asyncio.to_thread(partial.write, chunk)
                show(partial.n_bytes)
            if partial.n_bytes < stop:
                raise Unreachable(f"{host} ended {file.name} too early", backend=host)


def _check_head(answer: httpx2.Response, file: ModelFile, start: int, stop: int) -> None:
    """Whether the answer is what was asked for. Raises: `BadReply`."""
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


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Translates the failures of connections. Raises: `BackendError`."""
    host = re.sub(r"^\w+://(?:[^/@]*@)?([^/]*).*", r"\1", url)
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TimedOut(f"{host} sends nothing", backend=host) from error
    except (httpx2.TooManyRedirects, httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.DecodingError) as error:
        raise BadReply(f"{host} leads nowhere: {error}", backend=host) from error
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise Unreachable(
            f"the connection to {host} failed ({reason}); check the network, and HTTPS_PROXY where it needs one",
            backend=host,
        ) from error


def refuse(answer: httpx2.Response, *, what: str, page: str, is_hub: bool = False) -> None:
    """Nothing for an answer that succeeded. `page`: where a licence is accepted; empty where there is none. `is_hub`:
    401 is the hub's answer for what does not exist, too.

    Raises: `NotAllowed`, `InvalidRequest`, `RateLimited`, `Unavailable`, `Refused`.
    """
    status, host = answer.status_code, answer.url.host
    if status < 400:
        return
    login = "give a token (HF_TOKEN, or 'hf auth login')"
    if status in (401, 403):
        if answer.headers.get("x-error-code") == "GatedRepo":
            raise NotAllowed(
                f"{what} is gated: accept its licence at {page}, then {login} of the account that did", status=403
            )
        if is_hub and status == 401:
            raise NotAllowed(f"{host} has no {what}, or keeps it private: check the name, or {login} of its owner")
        hint = f"; {login} that may read it" if page else ""
        raise NotAllowed(f"{host} does not let you have {what} (HTTP {status}){hint}", status=status)
    if status in (404, 410):
        raise InvalidRequest(f"{host} has no {what}; check the name", field="model", status=404)
    asked = retry_after_s(answer.headers)
    if status == 429:
        when = f"for {asked:.0f} s" if asked is not None else "for now"
        more = f"; it allows more to those who {login}" if page else ""
        raise RateLimited(f"{host} accepts no further requests {when}{more}", backend=host, retry_after_s=asked)
    if status in _PASSING:
        raise Unavailable(f"{host} fails at the moment (HTTP {status})", backend=host, retry_after_s=asked)
    raise Refused(f"{host} refuses to send {what} (HTTP {status})", backend=host, status=502)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait: `Retry-After` in seconds or as a date, or `t` of the hub's `RateLimit`."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    if text:
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError):
            pass
    match = re.search(r";\s*t=(\d{1,9})", headers.get("ratelimit", ""))
    return float(match[1]) if match else None
