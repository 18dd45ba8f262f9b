"""The HTTP tools: a request to an address that may be called (`tools/sandbox/network.py`), and what comes back as text.

    target ─▶ NetworkPolicy.addresses ─▶ connect to one, as the name (SNI, certificate, `Host`) ─▶ status, headers
       ▲                                                                                             │
       └──── a redirect: at most five, none of the caller's headers to another origin ◀──────────────┤
                                                                      unpack, up to a size ◀─ body ──┘

Proxies, cookies, `.netrc` and the like are not used: the request is exactly the one that the person has seen, and the
address that was checked is the one that is called.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import json
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urljoin

from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.encoding import marked_encoding
from shepherd.process.isolated import WorkFailed, run_isolated
from shepherd.tools.base import Result, ToolError
from shepherd.tools.sandbox.network import Address, NetworkPolicy
from shepherd.tools.signature import in_thread, tool
from shepherd.tools.tool import Tool, ToolContext

if TYPE_CHECKING:
    import httpx2

MOST_SECONDS = 600
CONNECT_S = 10.0
MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
NOT_FOLLOWED = "not followed: it leads to another host, which would receive the data; call that URL if you want this"
TOO_MANY = f"not followed: these are more than {MOST_REDIRECTS} redirects"
UNPACKED = {"": False, "identity": False, "gzip": True, "x-gzip": True, "deflate": True}
UNREADABLE = re.compile(r"(image|audio|video|font)/(?!svg)|application/(pdf|zip|gzip|x-tar|wasm)\b", re.IGNORECASE)
PROGRESS_BYTES = 2**18
MOST_HEADERS = 40
"""Of an answer without a body, shown to the model; with a body, only those of `SHOWN_HEADERS`."""
SHOWN_HEADERS = (
    "content-type", "location", "retry-after", "last-modified", "etag", "link", "www-authenticate", "allow",
)  # fmt: skip
OWN_HEADERS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
    "accept-encoding",
})  # fmt: skip
"""A `Host` of the caller's choice would reach another site than the one that was allowed; the others are about the
connection."""
HARMLESS = frozenset({"accept", "accept-language", "user-agent", "content-type"})
"""Headers that follow a redirect to another origin; any other might be a key."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

Headers = Annotated[dict[str, str] | None, "name: value"]
Body = Annotated[str | dict[str, Any] | list[Any] | None, "text, or JSON"]
Seconds = Annotated[float, "seconds"]
NAMES = {"data": "body", "json": "body", "uri": "url", "timeout_s": "timeout"}


@tool(
    category="http", effect="net", aliases=("WebFetch", "fetch"), subject="url", timeout_s=MOST_SECONDS + 10,
    argument_aliases={"uri": "url", "timeout_s": "timeout", "prompt": ""},
)  # fmt: skip
async def http_get(
    context: ToolContext,
    url: str,
    headers: Headers = None,
    timeout: Seconds = 30,  # noqa: ASYNC109 - the model's argument, here and below
    as_text: Annotated[bool, "HTML as plain text"] = False,
) -> Result:
    """Fetch a URL."""
    return await call(context, prepare("GET", url, headers, None), timeout, as_text=as_text)


def sending(method: str) -> Tool:
    """The tool that sends something by this method."""

    async def send(
        context: ToolContext,
        url: str,
        body: Body = None,
        headers: Headers = None,
        timeout: Seconds = 30,  # noqa: ASYNC109
    ) -> Result:
        return await call(context, prepare(method, url, headers, body), timeout)

    send.__doc__, send.__name__ = f"Send an HTTP {method}.", f"http_{method.lower()}"
    made = tool(category="http", effect="net", argument_aliases=NAMES, subject="url", timeout_s=MOST_SECONDS + 10)
    return made(send)


http_post, http_put, http_delete = map(sending, ("POST", "PUT", "DELETE"))


@tool(category="http", effect="net", argument_aliases=NAMES, subject="url", offered=False, timeout_s=MOST_SECONDS + 10)
async def http_request(  # noqa: PLR0917 - called by names
    context: ToolContext,
    url: str,
    method: Annotated[str, ", ".join(METHODS)] = "GET",
    headers: Headers = None,
    body: Body = None,
    timeout: Seconds = 30,  # noqa: ASYNC109
) -> Result:
    """Send an HTTP request."""
    if method.upper() not in METHODS:
        raise ToolError(f"the method must be one of {', '.join(METHODS)}, not {method[:40]!r}")
    return await call(context, prepare(method.upper(), url, headers, body), timeout)


# -- a call -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; a redirect makes a new one."""

    method: str
    target: Address
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    via: str = ""
    """The redirect that led here, for an error."""

    def redirected(self, status: int, location: str) -> HttpRequest | None:
        """The next request; None = it would send the data to another host."""
        via = f"{self.target.authority} redirects: "
        try:
            target = Address.of(urljoin(self.target.url, location))
        except ToolError as error:
            raise ToolError(via + error.message) from error
        becomes_get = status == 303 or (status in {301, 302} and self.method == "POST")
        method = "GET" if becomes_get and self.method != "HEAD" else self.method
        body = self.body if method == self.method else None
        headers = tuple(each for each in self.headers if body is not None or each[0].lower() != "content-type")
        if target.origin != self.target.origin:
            if body is not None or method not in {"GET", "HEAD", "OPTIONS"}:
                return None
            headers = tuple(each for each in headers if each[0].lower() in HARMLESS)
        return HttpRequest(method, replace(target, user=""), headers, body, via)


@dataclass(slots=True)
class HttpResponse:
    """An answer, as far as it has arrived."""

    status: int
    headers: Sequence[tuple[str, str]]
    target: Address
    body: bytearray = field(default_factory=bytearray)
    note: str = ""
    """Why it is not complete."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


async def call(context: ToolContext, request: HttpRequest, timeout_s: float, *, as_text: bool = False) -> Result:
    """The result of one tool. Raises: `ToolError` if there is no answer at all."""
    if not 0 < timeout_s <= MOST_SECONDS:
        raise ToolError(f"timeout must be more than 0 and at most {MOST_SECONDS} seconds, not {timeout_s!s:.20}")
    exchange = HttpCall(context.reach or NetworkPolicy(), request, timeout_s, context.tell)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await exchange.run()
    except TimeoutError as error:
        if exchange.answer is None:
            raise ToolError(f"{exchange.request.target.authority} has not answered within {timeout_s:g} s") from error
        answer = replace(exchange.answer, note=f"not complete: the time limit of {timeout_s:g} s was reached")
    return await as_result(answer, url=request.target.url, as_text=as_text)


async def download(reach: NetworkPolicy, url: str, timeout_s: float) -> bytes:
    """The whole body at an address, behind its redirects. Raises: `ToolError` that names the host where there is no
    answer in time, an answer other than 200, or more than `reach.max_bytes`.
    """
    exchange = HttpCall(reach, prepare("GET", url, None, None), timeout_s, lambda report: None, unread=None)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await exchange.run()
    except TimeoutError as error:
        raise ToolError(f"{exchange.request.target.authority} has not answered within {timeout_s:g} s") from error
    if answer.status != 200 or answer.note:
        raise ToolError(f"the answer of {answer.target.authority} is {answer.note or answer.status}")
    return bytes(answer.body)


def prepare(method: str, url: str, headers: Mapping[str, Any] | None, body: Any) -> HttpRequest:
    """The request of a call. Raises: `ToolError` that names the argument."""
    target = Address.of(url)
    lines = [header(name, value) for name, value in (headers or {}).items()]
    defaults = {"user-agent": "shepherd", "accept": "*/*"}
    content: bytes | None = None
    if isinstance(body, str):
        content = body.encode()
        defaults["content-type"] = "application/json" if is_json(body) else "text/plain; charset=utf-8"
    elif body is not None:
        content = json.dumps(body, ensure_ascii=False).encode()
        defaults["content-type"] = "application/json"
    if target.user:
        defaults["authorization"] = "Basic " + base64.b64encode(target.user.encode()).decode()
    have = {name.lower() for name, _ in lines}
    lines += [(name, value) for name, value in defaults.items() if name not in have]
    return HttpRequest(method, target, tuple(lines), content)


def header(name: str, value: Any) -> tuple[str, str]:
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ToolError(f"headers: {name[:80]!r} is not the name of a header")
    if name.lower() in OWN_HEADERS or name.lower().startswith("proxy-"):
        raise ToolError(f"headers: the tool sets {name!r} itself; leave it out")
    if isinstance(value, dict | list) or not re.fullmatch(r"[\t\x20-\x7e]*", text):
        raise ToolError(f"headers: the value of {name!r} must be one line of ASCII text")
    return name, text.strip()


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


# -- the wire ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HttpCall:
    """A request and its redirects."""

    reach: NetworkPolicy
    request: HttpRequest
    """The current one."""
    timeout_s: float
    tell: Callable[[str], None]
    unread: re.Pattern[str] | None = UNREADABLE
    """Bodies of these types stay unread; None = none do."""
    answer: HttpResponse | None = None
    """The last one, as far as it has arrived when the time is up."""

    async def run(self) -> HttpResponse:
        """Raises: `ToolError`, with the reason why there is no answer."""
        for n_left in reversed(range(MOST_REDIRECTS + 1)):
            async with opened(self.reach, self.request, self.timeout_s) as response:
                lines = [(name.lower(), value) for name, value in response.headers.multi_items()]
                answer = HttpResponse(response.status_code, lines, self.request.target)
                location = answer.header("location")
                if answer.status in REDIRECTS and location:
                    further = self.request.redirected(answer.status, location)
                    if further is not None and n_left:
                        self.request = further
                        continue
                    answer.note = NOT_FOLLOWED if further is None else TOO_MANY
                self.answer = answer
                if self.request.method != "HEAD":
                    await read(answer, response, self.reach.max_bytes, self.tell, self.unread)
                return answer
        raise AssertionError("the last redirect is not followed")


@contextlib.asynccontextmanager
async def opened(reach: NetworkPolicy, wanted: HttpRequest, timeout_s: float) -> AsyncIterator[httpx2.Response]:
    """The response of one server, its body unread. Raises: `ToolError`."""
    import httpx2  # noqa: PLC0415 - takes long, and most chats call nothing

    target = wanted.target
    try:
        addresses = await reach.addresses(target)
    except ToolError as error:
        raise ToolError(f"{wanted.via}{error.message}") from error
    # A client for each request: a connection must never be used again for another name at that address.
    transport = httpx2.AsyncHTTPTransport(verify=reach.trust or trusted(), trust_env=False)
    timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
    try:
        async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=timeout) as client:
            for address in addresses:
                path = target.path.encode("ascii")
                request = httpx2.Request(
                    wanted.method,
                    httpx2.URL(scheme=target.scheme, host=address, port=target.port, raw_path=path),
                    headers=[("host", target.authority), *wanted.headers, ("accept-encoding", "gzip, deflate")],
                    content=wanted.body,
                    extensions={"sni_hostname": target.host, "timeout": timeout.as_dict()},
                )
                try:
                    response = await client.send(request, stream=True, auth=None, follow_redirects=False)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if address == addresses[-1]:
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return
    except httpx2.TimeoutException as error:
        raise ToolError(f"{target.authority} has not answered in time") from error
    except httpx2.HTTPError as error:
        raise ToolError(f"{target.authority}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Why there is no answer, in a few words."""
    import httpx2  # noqa: PLC0415

    text = str(error).strip() or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not valid ({text.rpartition(': ')[2].partition(' (_ssl')[0]})"
    if isinstance(error, httpx2.ConnectError):
        return f"no connection ({text})"
    return f"its answer is not valid HTTP ({text[:200]})"


@cache
def trusted() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than most requests."""
    import httpx2  # noqa: PLC0415

    return httpx2.create_ssl_context()


async def read(
    answer: HttpResponse,
    response: httpx2.Response,
    most: int,
    tell: Callable[[str], None],
    unread: re.Pattern[str] | None = UNREADABLE,
) -> None:
    """Read the body into the answer, unpacked, up to `most` bytes. Notes what is missing."""
    import httpx2  # noqa: PLC0415

    packing, size = answer.header("content-encoding").strip().lower(), answer.header("content-length")
    if packing not in UNPACKED:
        answer.note = f"not read: it is compressed as {packing[:40]!r}, which was not requested"
        return
    if unread and unread.match(answer.header("content-type")):
        answer.note = f"not shown: {int(size):,} bytes" if size.isdecimal() else "not shown"
        return
    unpacker = Unpacker() if UNPACKED[packing] else None
    n_raw = n_reported = 0
    try:
        async for chunk in response.aiter_raw():
            n_raw += len(chunk)
            for piece in unpacker.pieces(chunk) if unpacker else [chunk]:
                answer.body += piece
                if len(answer.body) > most:
                    break
            if len(answer.body) > most or n_raw > most:  # compressed data may contain nothing
                del answer.body[most:]
                total = f" of {int(size):,}" if size.isdecimal() and not unpacker else ""
                answer.note = f"cut: only the first {len(answer.body):,} bytes{total} were read"
                return
            if len(answer.body) - n_reported >= PROGRESS_BYTES:
                n_reported = len(answer.body)
                tell(f"{n_reported // 1024:,} KiB")
        if unpacker and answer.body and not unpacker.unpack.eof:
            answer.note = "not complete: the rest of the compressed data is missing"
    except httpx2.TimeoutException:
        answer.note = "not complete: the server stopped sending"
    except httpx2.HTTPError as error:
        answer.note = f"not complete: {reason(error)}"
    except zlib.error as error:
        answer.note = f"not complete: it is not compressed as its header says ({error})"


class Unpacker:
    """Unpacks gzip and deflate in small pieces, since a few bytes may unpack to gigabytes."""

    PIECE_BYTES = 65_536

    def __init__(self) -> None:
        self.unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._is_first = True

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Raises: `zlib.error`."""
        while chunk:
            if self.unpack.eof:  # the next member of a gzip file
                self.unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                piece = self.unpack.decompress(chunk, self.PIECE_BYTES)
            except zlib.error:
                if not self._is_first:
                    raise
                self.unpack = zlib.decompressobj(-zlib.MAX_WBITS)  # some send deflate without its head
                piece = self.unpack.decompress(chunk, self.PIECE_BYTES)
            self._is_first = False
            yield piece
            chunk = self.unpack.unconsumed_tail or self.unpack.unused_data


# -- the result -------------------------------------------------------------------------------------------------------

PARAMETER = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
CHARSETS = re.compile(r"(utf-(8|16|32)|ascii|iso8859|cp\d|koi8|mac|shift_jis|euc_|iso2022_|gb|big5|hz)[\w-]*")
"""Of the codecs of Python, those that are charsets, and quick: `idna` takes quadratic time."""


async def as_result(answer: HttpResponse, *, url: str, as_text: bool) -> Result:
    phrase = HTTPStatus(answer.status).phrase if answer.status in set(HTTPStatus) else ""
    status = f"{answer.status} {phrase}".strip()
    body, charset = bytes(answer.body), charset_of(answer)
    is_binary = b"\0" in body[:8192] and not charset.startswith(("utf-16", "utf-32"))
    text = "" if is_binary else body.decode(charset, "replace")
    notes = [answer.note] if answer.note else []
    if is_binary:
        notes.append(f"not shown: {len(body):,} bytes that are not text")
    if answer.target.url != url:
        notes.append(f"redirected to {answer.target.url}")
    starts = text.lstrip()[:15].lower()
    is_html = "html" in answer.header("content-type") or starts.startswith(("<!doctype html", "<html"))
    if as_text and is_html:
        page = {"html": text, "url": answer.target.url}
        try:
            text = await in_thread(lambda: run_isolated("shepherd.tools.builtin.page:as_text", page))
        except WorkFailed as error:
            notes.append(f"shown as it is: {error.message}")
    shown = [f"{name}: {value[:500]}" for name, value in answer.headers if name in SHOWN_HEADERS or not body]
    lines = [f"HTTP {status}", *shown[:MOST_HEADERS], *(f"({note})" for note in notes)]
    success = 200 <= answer.status < 300
    return Result(
        "\n".join(lines) + (f"\n\n{text}" if text else ""),
        success,
        summary=f"{status} ({len(body):,} bytes{', ' + answer.note.partition(':')[0] if answer.note else ''})",
        error="" if success else status,
    )


def charset_of(answer: HttpResponse) -> str:
    """The codec: by the first bytes, the header, or the page; else UTF-8 if the body is valid UTF-8."""
    head = bytes(answer.body[:2048])
    if marked := marked_encoding(head):
        return marked
    named = PARAMETER.search(answer.header("content-type"))
    if named is None and "html" in answer.header("content-type"):
        named = PARAMETER.search(head.decode("latin-1"))
    if named:
        with contextlib.suppress(LookupError):
            if CHARSETS.fullmatch(name := codecs.lookup(named[1]).name):
                return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(bytes(answer.body))  # its last character may be cut
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"
