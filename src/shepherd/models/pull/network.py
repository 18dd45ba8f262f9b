"""How other hosts are reached, and what their failures mean.

Every source's requests fail with the same errors: `refuse` reads a status, `reaching` an exception. Source for proxies
and certificates, where the configuration names none: the variables of the environment that `httpx2` reads (HTTP_PROXY,
HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR).
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies

import httpx2

from shepherd.core import (
    BadReply,
    ConfigError,
    InvalidRequest,
    NotAllowed,
    RateLimited,
    Refused,
    TimedOut,
    Unavailable,
    Unreachable,
)
from shepherd.core.dataclasses import dataclass, field

Reach = Callable[[str], Awaitable[Sequence[str]]]
"""The IP addresses that a URL may be reached at, in the order in which to try them. Raises: `NotAllowed`,
`Unreachable`."""
MOST_REDIRECT_BYTES = 2**20
"""Of the page of a redirect, which nothing reads."""
LIST_S = 120.0
"""For a whole list, manifest or page of a redirect: one that comes in drops has no end otherwise."""
_PASSING = (408, 500, 502, 503, 504)
_HERE = ("localhost", "127.0.0.1", "[::1]")
_PROXY_LOGIN = (
    "the proxy on the way to {} wants a name and a password (HTTP 407): write them into its address, as in "
    "http://name:password@proxy.lan:3128, in HTTPS_PROXY, or as proxy in [network]"
)


@dataclass(frozen=True, slots=True)
class Network:
    """How hosts are reached, where that is not left to the environment."""

    proxy: str | None = None
    """Its address, or `none`: without one. What is on this machine is reached without one, too."""
    ca_file: str | None = None
    """The certificates that are trusted, in place of the system's."""
    hub_token: str = field(default="", repr=False)
    """For the hub of Hugging Face, where its own library knows none."""
    reach: Reach | None = field(default=None, repr=False)
    """Which addresses may be called, for a pull that a client asked for; None = all. The hub is not asked about: the
    operator has chosen it."""

    def client_options(self) -> dict[str, Any]:
        """Of a client of `httpx2`. Raises: `ConfigError` where they cannot be used."""
        try:
            trusted = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else httpx2.create_ssl_context()
            options: dict[str, Any] = {"verify": trusted}
            if self.proxy == "none":
                options["trust_env"] = False
            elif self.proxy is not None:
                options |= {"proxy": self.proxy, "mounts": {f"all://{host}": None for host in _HERE}}
            httpx2.Client(**options).close()
        except (ImportError, ValueError, OSError) as error:  # a SOCKS proxy without its package, a file that is missing
            raise ConfigError(
                "the proxy or the certificates of [network], or of the environment, cannot be used "
                f"({type(error).__name__}); a socks5:// proxy needs the Python package socksio"
            ) from error
        return options

    def client(self) -> httpx2.AsyncClient:
        async def look(answer: httpx2.Response) -> None:
            if answer.has_redirect_location:
                limit(answer, MOST_REDIRECT_BYTES)

        options, hooks = self.client_options(), {"response": [look]}
        if (reach := self.reach) is None:
            return httpx2.AsyncClient(**options, event_hooks=hooks)
        reads_env = options.get("trust_env", True) and not getproxies().keys().isdisjoint(("http", "https", "all"))
        if "proxy" not in options and not reads_env:
            checked = _Checked(reach, httpx2.AsyncHTTPTransport(verify=options["verify"]))
            return httpx2.AsyncClient(**options, transport=checked, event_hooks=hooks)

        async def ask(request: httpx2.Request) -> None:
            with suppress(Unreachable):  # a name that only the proxy knows
                await reach(str(request.url))

        return httpx2.AsyncClient(**options, event_hooks={**hooks, "request": [ask]})


class _Checked(httpx2.AsyncBaseTransport):
    """Connects to the addresses that were checked: a name server that answers differently the second time changes
    nothing. Each redirect is a request of its own."""

    def __init__(self, reach: Reach, transport: httpx2.AsyncBaseTransport) -> None:
        self._reach, self._transport = reach, transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        name = request.url.host
        failure: httpx2.TransportError = httpx2.ConnectError("no address")
        for address in await self._reach(str(request.url)):
            moved = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the host's name
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": name},
            )
            try:
                return await self._transport.handle_async_request(moved)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Short(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, body: Any, host: str, most_bytes: int, clock: Callable[[], float]) -> None:
        self._body, self._host, self._most, self._n_bytes = body, host, most_bytes, 0
        self._clock, self._until = clock, clock() + LIST_S

    def _counted(self, chunk: bytes) -> bytes:
        self._n_bytes += len(chunk)
        if self._n_bytes > self._most:
            raise BadReply(
                f"{self._host} answers with more than {self._most:,} bytes where a short list is expected; check the "
                "name and the host",
                backend=self._host,
            )
        if self._clock() > self._until:
            raise BadReply(
                f"{self._host} has not ended its answer in {LIST_S:g} s; try again, or choose another source",
                backend=self._host,
            )
        return chunk

    def __iter__(self) -> Iterator[bytes]:
        return map(self._counted, self._body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield self._counted(chunk)

    def close(self) -> None:
        self._body.close()

    async def aclose(self) -> None:
        await self._body.aclose()


def limit(answer: httpx2.Response, most_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
    """Let reading `answer` fail behind `most_bytes`, and after `LIST_S`. The request must ask for no compression: a few
    bytes can hold any number. Raises: `BadReply`, also when the body is read."""
    host, encoding = answer.url.host, answer.headers.get("content-encoding", "identity")
    if encoding != "identity" and answer.request.method != "HEAD":
        raise BadReply(f"{host} compresses its answer ({encoding[:20]}), which it was asked not to do", backend=host)
    answer.stream = _Short(answer.stream, host, most_bytes, clock)


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
    except httpx2.ProxyError as error:
        if str(error).startswith("407"):
            raise Refused(_PROXY_LOGIN.format(host), backend=host, status=502) from error
        raise Unreachable(f"the proxy on the way to {host} answers {error}", backend=host) from error
    except httpx2.TransportError as error:
        if (reason := distrust(error)) is not None:
            raise Refused(
                f"{host} shows a certificate that is not trusted ({reason}); if a proxy of your network signs for it, "
                "name the proxy's certificate as ca_file in [network], or in SSL_CERT_FILE",
                backend=host,
                status=502,
            ) from error
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        raise Unreachable(
            f"the connection to {host} failed ({reason}); check the network, and HTTPS_PROXY where it needs one",
            backend=host,
        ) from error


def distrust(error: BaseException | None) -> str | None:
    """Why a certificate was refused, if one was."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error.verify_message if error is not None else None


def refuse(answer: httpx2.Response, *, what: str, page: str, is_hub: bool = False) -> None:
    """`page`: where a licence is accepted, if anywhere. `is_hub`: 401 is the hub's answer for what does not exist, too.
    Raises, unless the answer succeeded: `NotAllowed`, `InvalidRequest`, `RateLimited`, `Unavailable`, `Refused`."""
    status, host = answer.status_code, answer.url.host
    if status < 400:
        return
    if status == 407:
        raise Refused(_PROXY_LOGIN.format(host), backend=host, status=502)
    login = "give a token (HF_TOKEN=hf_… in the environment, or 'shepherd keys set huggingface', or 'hf auth login')"
    if status in (401, 403):
        if answer.headers.get("x-error-code") == "GatedRepo":
            raise NotAllowed(
                f"{what} is gated: accept its licence at {page}, then {login} of the account that did", status=403
            )
        if is_hub and status == 401:
            raise NotAllowed(f"{host} has no {what}, or keeps it private: check the name, or {login} of its owner")
        hint = f"; accept its licence at {page} if it has one, and {login} that may read it" if page else ""
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
