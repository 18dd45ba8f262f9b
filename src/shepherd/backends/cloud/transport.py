"""One provider over HTTP: a body out, the records of an answer in; one pool of connections, deadlines, no redirect.

    body ─ POST ─▶ provider ─ bytes ─▶ SSE or NDJSON reader ─▶ Decoder.feed ─▶ events
                       │                 └ JSON where a stream was asked for ─▶ Decoder.whole
                       └ another status, no connection, silence, garbage ─▶ ProviderFailed

One call is one attempt; `backend.py` decides about another. Cancelling a call closes its connection at once. What an
answer is shows its first byte, not its `Content-Type`. Keys go into headers: nothing here puts a header into a message
or a log. Source for proxies and certificates, where none are given: the variables of the environment that httpx2 reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from shepherd.backends.cloud.failure import Failed, FailureKind, ProviderFailed, page_words, read, request_id_of
from shepherd.backends.cloud.provider import EMPTY_MAPPING, Provider
from shepherd.backends.cloud.secret import spelled, without
from shepherd.core import Event, Finished, InvalidRequest, Started
from shepherd.core.dataclasses import dataclass, replace
from shepherd.wire.base import Json, check_values
from shepherd.wire.client import Decoder, Failure
from shepherd.wire.sse import MAX_RECORD_BYTES, EventReader, NdjsonReader, RecordTooLong
from shepherd.wire.values import BrokenAnswer

if TYPE_CHECKING:
    import httpx2

    from shepherd.backends.cloud.connection import Connections, Proxied

STEP_BYTES, TURN = 16 * 2**10, 32
"""What is read in one step at most, and the records, or small steps, after which other requests get their turn."""
_HEADERS = {
    "user-agent": "shepherd",
    "accept": "*/*",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
DRAIN_S = 0.1
"""For the end of a body whose answer has ended, so that the connection can be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds."""

    connect: float = 10.0
    idle: float = 300.0
    """Without a byte; models think for minutes before the first one."""
    record: float = 600.0
    """Without a whole record: a server that drips bytes never ends."""
    answer: float = 6 * 3600.0
    """For a whole stream: a server that repeats itself never ends."""
    whole: float = 60.0
    """For answers that are no stream: a count, a list of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of what a provider sends; unpacked, where it is compressed."""

    stream_bytes: int = 512 * 2**20
    """1,600,000 tokens as providers send them, an answer of more than 5 MB; 320,000 with the likelihoods of 20 others
    each."""
    record_bytes: int = MAX_RECORD_BYTES
    records: int = 2_000_000
    """Of a stream: each is a token, or more."""
    steps: int = 8_000_000
    """Pieces in which a body comes: a record has a few."""
    body_bytes: int = MAX_RECORD_BYTES
    """Of an answer that is no stream."""
    list_bytes: int = 8 * 2**20
    """Of a page of a list of models, a count, or what is known of a model."""
    error_bytes: int = 2**20
    """Of the body of an error; what follows is not read."""


class Transport:
    """The connections to one provider. One event loop at a time."""

    def __init__(
        self,
        provider: Provider,
        *,
        deadlines: Deadlines | None = None,
        limits: Limits = Limits(),
        proxy: str | None = None,
        ca_file: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`proxy`, `ca_file`: in place of those of the environment; the proxy `none`: without one."""
        self.provider = provider
        self._deadlines = deadlines or Deadlines()
        self.limits = limits
        self._proxy = proxy
        self._ca_file = ca_file
        self._clock = clock
        self._headers = {**_HEADERS, **{name.lower(): value for name, value in provider.headers.items()}}
        self._client: Connections | Proxied | None = None
        self._secrets = spelled(provider.secrets)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # -- answers

    async def answer(
        self, provider: Provider, model: str, body: bytes, decoder: Decoder, headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> AsyncGenerator[Event, None]:
        """The events of one answer, as they come. `provider`: this one, perhaps with another protocol; `headers`, in
        lower case: besides those of every request.

        Raises: `ProviderFailed`.
        """
        url = provider.url(provider.paths.answer, model)
        sent_ns = time.perf_counter_ns()
        with self._mapped_errors():
            async with self._sent("POST", url, body, self._deadlines.idle, headers) as response:
                if response.status_code != 200:
                    raise ProviderFailed(await self._refusal(response))
                async with aclosing(self._pieces(response, self.limits.stream_bytes)) as pieces:
                    async for event in self._events(provider, response, pieces, decoder):
                        if isinstance(event, Started):
                            request_id = provider.hide(request_id_of(response.headers))
                            event = replace(event, request_id=request_id, at_ns=event.at_ns or sent_ns)
                        if not isinstance(event, Finished):
                            yield event
                            continue
                        try:
                            yield event
                        finally:  # also for a reader that leaves here
                            await _drained(pieces)
                        return

    async def _events(
        self, provider: Provider, response: httpx2.Response, pieces: AsyncIterator[bytes], decoder: Decoder
    ) -> AsyncIterator[Event]:
        is_lines = provider.paths.framing == "ndjson" and "/json" not in response.headers.get("content-type", "")
        whole: bytes | None = None
        async with asyncio.timeout(self._deadlines.record):
            head = begin = await anext(pieces, b"")
            while begin and not (begin := head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]):
                begin = await anext(pieces, b"")
                head += begin
            if begin in (b"<", b"") or (begin in (b"{", b"[") and not is_lines):
                whole = await _collected(pieces, head, self.limits.body_bytes)
        if whole is not None:
            for event in _whole(without(whole, self._secrets), decoder):
                yield event
            return
        reader = (NdjsonReader if provider.paths.framing == "ndjson" else EventReader)(self.limits.record_bytes)
        n_records, begun = 0, self._clock()
        last = begun
        while head:
            n_before = n_records
            for name, record in reader.feed(head):
                n_records += 1
                for event in decoder.feed(name, without(record, self._secrets)):
                    yield event
                if n_records % TURN == 0:
                    await asyncio.sleep(0)
            if n_records > self.limits.records:
                raise RecordTooLong(f"it has more than {self.limits.records:,} records")
            now = self._clock()
            if n_records > n_before:
                last = now
            elif now - last > self._deadlines.record:
                raise _failed("timeout", f"no record of the answer has ended for {self._deadlines.record:g} s")
            if now - begun > self._deadlines.answer:
                raise _failed("timeout", f"the answer has not ended in {self._deadlines.answer:g} s")
            head = await anext(pieces, b"")
        for name, record in reader.close():
            for event in decoder.feed(name, without(record, self._secrets)):
                yield event
        for event in decoder.close():
            yield event

    async def _pieces(self, response: httpx2.Response, most_bytes: int | None = None) -> AsyncGenerator[bytes, None]:
        """What the body is when it is unpacked, in pieces of at most `STEP_BYTES`, none of them empty. Raises:
        `RecordTooLong` behind `most_bytes`."""
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip", "deflate"):  # others turn a few bytes into gigabytes at once
            raise _failed("broken", f"the answer is compressed as {packing[:20]!r}, which it was asked not to be")
        plain = "content-encoding" not in response.headers
        body = response.stream.__aiter__() if plain else response.aiter_bytes()  # type: ignore[union-attr]  # not a sync one
        n_bytes, n_steps = 0, 0
        async with aclosing(cast("AsyncGenerator[bytes, None]", body)) as pieces:
            async for piece in pieces:
                for at in range(0, len(piece), STEP_BYTES):
                    step = piece[at : at + STEP_BYTES]
                    n_bytes, n_steps = n_bytes + len(step), n_steps + 1
                    if most_bytes is not None and n_bytes > most_bytes:
                        raise RecordTooLong(f"it has more than {most_bytes:,} bytes")
                    if n_steps > self.limits.steps:
                        raise RecordTooLong(f"it comes in more than {self.limits.steps:,} pieces")
                    # A connection that always has more does not let others go first.
                    if n_steps % TURN == 0 or len(step) > STEP_BYTES // TURN:
                        await asyncio.sleep(0)
                    yield step

    # -- everything else

    async def fetch(
        self,
        url: str,
        body: Json | None = None,
        deadline_s: float | None = None,
        headers: Mapping[str, str] = EMPTY_MAPPING,
        most_bytes: int | None = None,
    ) -> Json:
        """A JSON object that is no stream, of at most `most_bytes`, or as a list. Raises: `ProviderFailed`."""
        content = None if body is None else encoded(body)
        deadline, most = deadline_s or self._deadlines.whole, most_bytes or self.limits.list_bytes
        with self._mapped_errors():
            method = "GET" if body is None else "POST"
            async with asyncio.timeout(deadline), self._sent(method, url, content, deadline, headers) as response:
                if response.status_code != 200:
                    raise ProviderFailed(await self._refusal(response))
                async with aclosing(self._pieces(response, most)) as pieces:
                    found = _parsed(without(await _collected(pieces, b"", most), self._secrets))
                if not isinstance(found, dict):
                    raise _failed("broken", "the answer is no JSON object")
                return found
        raise AssertionError("unreachable")

    async def status(self, url: str, deadline_s: float) -> tuple[int, Json, str]:
        """The status of an address, the JSON object in its answer, or an empty one, and the words of a refusal. Raises:
        `ProviderFailed` where there is no answer."""
        with self._mapped_errors():
            async with asyncio.timeout(deadline_s), self._sent("GET", url, None, deadline_s, {}) as response:
                async with aclosing(self._pieces(response)) as pieces:
                    body = without(await _collected(pieces, b"", self.limits.error_bytes, cut=True), self._secrets)
                found = _parsed(body)
            words = read(response.status_code, response.headers, body).words if response.status_code >= 400 else ""
            return response.status_code, found if isinstance(found, dict) else {}, words
        raise AssertionError("unreachable")

    # -- HTTP

    @contextlib.asynccontextmanager
    async def _sent(
        self, method: str, url: str, content: bytes | None, idle_s: float, headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response, None]:
        try:
            client = self._client or self._connected()
        except (ImportError, ValueError, OSError) as error:  # a SOCKS proxy without its package, a file that is missing
            words = f"the proxy or the certificates that are configured cannot be used ({type(error).__name__})"
            raise ProviderFailed(Failed("unreachable", words)) from error
        sent = dict(self._headers)
        sent |= {name: f"{sent[name]},{value}" if name in sent else value for name, value in headers.items()}
        response = await client.send(method, _parsed_url(url), sent, content or b"", idle_s)
        try:
            yield response
        finally:
            await response.aclose()

    def _connected(self) -> Connections | Proxied:
        import httpx2  # noqa: PLC0415 - takes long, and many programs reach no provider

        from shepherd.backends.cloud.connection import Connections, Proxied  # noqa: PLC0415 - as above

        address, proxy = httpx2.URL(self.provider.root), None if self._proxy == "none" else self._proxy
        tls: ssl.SSLContext | None = None
        if address.scheme == "https":
            if self._ca_file is not None:
                tls = ssl.create_default_context(cafile=self._ca_file)
            else:  # with the certificates that the environment names
                tls = httpx2.create_ssl_context(trust_env=not self.provider.is_local)
        reads_env = not self.provider.is_local and self._proxy is None
        if proxy is not None or (reads_env and getproxies()):
            self._client = Proxied(proxy, tls, self._deadlines.connect)
        else:
            self._client = Connections(tls, self._deadlines.connect)
        return self._client

    async def _refusal(self, response: httpx2.Response) -> Failed:
        status, headers = response.status_code, response.headers
        if 300 <= status < 400:
            to = urlsplit(headers.get("location", ""))
            where = f"{to.scheme}://{to.hostname}" if to.hostname else to.path or "nowhere"
            words = f"the answer is a redirect to {where}, which is not followed; correct base_url"
            return Failed("broken", words, status)
        body = b""
        with contextlib.suppress(TimeoutError, *_library_errors()):
            async with asyncio.timeout(self._deadlines.whole), aclosing(self._pieces(response)) as pieces:
                body = await _collected(pieces, b"", self.limits.error_bytes, cut=True)
        if status < 400:
            return Failed("broken", f"the answer has status {status}", status)
        return read(status, headers, without(body, self._secrets))

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Errors of the library and of decoders become `ProviderFailed`, without a header or a body in their words."""
        try:
            yield
        except Failure as error:
            raise ProviderFailed(read(error.status or 200, {}, error.body)) from error
        except BrokenAnswer as error:
            raise _failed("broken", f"the answer breaks its protocol: {error}") from error
        except RecordTooLong as error:  # not tried again: it would be as long
            raise ProviderFailed(Failed("broken", f"the answer is too long: {error}")) from error
        except TimeoutError as error:
            raise _failed("timeout", "the answer takes too long") from error
        except _library_errors() as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> ProviderFailed:
        import httpx2  # noqa: PLC0415 - it is loaded: it has raised

        where = urlsplit(self.provider.root).netloc
        if self._proxy not in (None, "none"):
            where += f" through the proxy {without_user(str(self._proxy))}"
        match error:
            case httpx2.ConnectTimeout():
                return _failed("unreachable", f"no connection to {where} in {self._deadlines.connect:g} s")
            case httpx2.TimeoutException():
                return _failed("timeout", f"{where} has sent nothing for {self._deadlines.idle:g} s")
            case httpx2.ProxyError():
                return _failed("unreachable", f"no connection to {where}: the proxy answers {error}")
            case httpx2.ConnectError():
                return _failed("unreachable", f"no connection to {where}: {_reason(error)}")
            case httpx2.DecodingError():
                return _failed("broken", f"{where} has compressed its answer wrongly")
            case httpx2.TransportError():
                return _failed("broken", f"{where} has closed the connection in the middle of its answer")
            case _:
                return _failed("broken", f"the request to {where} failed: {type(error).__name__}")


@functools.lru_cache(maxsize=100)
def _parsed_url(url: str) -> httpx2.URL:
    import httpx2  # noqa: PLC0415 - as above

    return httpx2.URL(url)


def without_user(address: str) -> str:
    """The scheme, host and port of an address: neither the name nor the password in it, however it is written."""
    parts = urlsplit(address)
    try:
        where = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        where = None
    rest = parts.path + parts.query + parts.fragment
    return f"{parts.scheme}://{where}" if where and "@" not in rest else "an address that cannot be read"


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as it is sent: equal bodies are equal bytes."""
    return _ENCODER.encode(body).encode("utf-8", "replace")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _whole(body: bytes, decoder: Decoder) -> Iterable[Event]:
    found = _parsed(body)
    if isinstance(found, dict):
        yield from decoder.whole(found)
    elif isinstance(found, list) and all(isinstance(each, dict) for each in found) and found:
        for each in found:  # Gemini, without `alt=sse`
            yield from decoder.feed("", encoded(each))
        yield from decoder.close()
    elif found is None and body.lstrip()[:1] == b"{" and b"\n" in body:
        for line in filter(None, map(bytes.strip, body.split(b"\n"))):
            yield from decoder.feed("", line)
        yield from decoder.close()
    elif body.lstrip()[:1] == b"<":
        raise BrokenAnswer(f"it is a page: {page_words(body.decode('utf-8', 'replace').lstrip())!r}")
    else:
        raise BrokenAnswer("it is no JSON" if body.strip() else "it is empty")


def _parsed(body: bytes) -> Any:
    """Raises: `RecordTooLong` for more values than memory should hold."""
    try:
        check_values(body, "the body")
        return json.loads(body)
    except InvalidRequest as error:
        raise RecordTooLong(error.message.partition(";")[0]) from error
    except (ValueError, RecursionError):
        return None


async def _collected(pieces: AsyncIterator[bytes], head: bytes, limit: int, *, cut: bool = False) -> bytes:
    held = bytearray(head)
    async for piece in pieces:
        held += piece
        if len(held) > limit:
            if cut:
                break
            raise RecordTooLong(f"the body has more than {limit:,} bytes")
    return bytes(held[:limit])


async def _drained(pieces: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(TimeoutError, RecordTooLong):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass


def _failed(kind: FailureKind, words: str) -> ProviderFailed:
    return ProviderFailed(Failed(kind, words, retryable=kind in ("unreachable", "broken")))


def _library_errors() -> tuple[type[Exception], ...]:
    import httpx2  # noqa: PLC0415 - it is loaded, or about to be

    return httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError


def _reason(error: BaseException) -> str:
    """Why there is no connection, in the system's words."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    return str(error) or "refused"
