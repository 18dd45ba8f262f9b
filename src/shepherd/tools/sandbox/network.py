"""The addresses that HTTP tools may call: the public internet, unless the operator opens more.

    url ── `Address.of` ──▶ host, port, path ── `NetworkPolicy.addresses` ─▶ DNS ─▶ checked IP addresses ─▶ connect

A name is looked up once, and the connection goes to the address that was checked: a name server that answers
differently the second time (DNS rebinding) changes nothing. Numbers in other forms (decimal, octal, hexadecimal, IPv4
within IPv6) change nothing either: the resulting address counts. A redirect is a new target, checked in the same way.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlsplit

from shepherd.core.address import AddressClass, classify
from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import ToolError

if TYPE_CHECKING:
    from ssl import SSLContext

ALLOW_HOSTS = "tools.http.allow_hosts"
PORTS = {"http": 80, "https": 443}
SAFE = "/%:@!$&'()*+,;=~"
"""Signs of a path that are not quoted."""
MOST_CHARS = 16_384
"""Of a URL."""

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class UnknownHost(ToolError):
    """No address is known for a name."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL."""

    scheme: str
    host: str
    """ASCII, lower case, without brackets or a final dot."""
    port: int
    path: str
    """With the query, quoted; begins with a slash."""
    user: str = ""
    """`name:password` where the URL has it."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises: `ToolError` for anything that could be read in two ways."""
        url = url.strip()
        if len(url) > MOST_CHARS:
            raise ToolError(f"the URL has {len(url)} characters; at most {MOST_CHARS} are taken")
        # `urlsplit` drops line ends, and parsers disagree about backslashes.
        if re.search(r"[\x00-\x1f\x7f\\]", url):
            raise ToolError(f"the URL {url[:200]!r} has a control character or a backslash; percent-encode it")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ToolError(f"{url[:200]!r} is not a URL ({error})") from error
        if parts.scheme not in PORTS:
            raise ToolError(f"the URL {url[:200]!r} must begin with http:// or https://")
        if port == 0:
            raise ToolError("port 0 cannot be called; ports are 1 to 65535")
        path = quote(parts.path or "/", safe=SAFE)
        path += "?" + quote(parts.query, safe=f"{SAFE}?[]|^`{{}}") if parts.query else ""
        user = ":".join(unquote(part) for part in (parts.username or "", parts.password or ""))
        return cls(parts.scheme, ascii_host(parts), port or PORTS[parts.scheme], path, user.removesuffix(":"))

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """For the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Without the user."""
        return f"{self.scheme}://{self.authority}{self.path}"


def ascii_host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if not host:
        raise ToolError("the URL names no host")
    if not host.isascii():
        import idna  # noqa: PLC0415 - its tables are large, and few hosts need them

        try:
            host = idna.encode(host, uts46=True).decode()
        except UnicodeError as error:
            raise ToolError(f"the host {host[:100]!r} is not a name ({error})") from error
    if not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f.]*:[0-9a-f:.]*", host):
        raise ToolError(f"the host {host[:100]!r} is not a name")
    return host


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The addresses that HTTP tools may call, and the limit of a body."""

    allow_private: bool = False
    """Also this machine and its networks. Link-local addresses and those in `CLOUD` stay closed: clouds hand out
    passwords there (169.254.169.254)."""
    allow_hosts: tuple[str, ...] = ()
    """Names or globs of hosts, also `host:port`, that may be called at any address."""
    max_bytes: int = 5 * 2**20
    """Of a body, unpacked."""
    only: tuple[str, ...] | None = None
    """Names or globs of the only hosts that may be called; one named without a glob may be in a private network. None =
    all hosts."""
    key: str = ALLOW_HOSTS
    """The setting that opens a host, for errors."""
    lookup: Lookup | None = None
    """The addresses of a name; None = the system's."""
    trust: SSLContext | None = None
    """The trusted certificates; None = those of this machine, or `SSL_CERT_FILE`."""

    async def addresses(self, target: Address) -> list[str]:
        """The IP addresses that may be connected to, in the order in which to try them. Raises: `ToolError` where there
        is none.
        """
        names = (target.host, f"{target.host}:{target.port}")
        if self.only is not None and not matches(names, self.only):
            raise ToolError(
                f"{target.host} may not be called; the operator can allow it with {self.key} = [{target.host!r}]"
            )
        try:
            found = await (self.lookup or look_up)(target.host, target.port)
        except OSError as error:
            reason = error.strerror or str(error) or "no address"
            raise UnknownHost(f"the host {target.host!r} is not known ({reason}); check its name") from error
        if matches(names, self.allow_hosts):
            return list(found)
        is_named = any(pattern.casefold() in names for pattern in self.only or ())
        open_places: set[AddressClass] = {"world", "near"} if self.allow_private or is_named else {"world"}
        allowed = [address for address in found if classify(address) in open_places]
        if not allowed:
            shut = ", ".join(each for each in dict.fromkeys(found) if each != target.host)
            is_near = {classify(address) for address in found} == {"near"}
            way = f"; the operator can allow it with {self.key} = [{target.host!r}]"
            is_tools = self.only is None and self.key == ALLOW_HOSTS
            way += " or tools.http.allow_private = true" if is_near and is_tools else ""
            raise ToolError(
                f"{target.host}{f' ({shut})' if shut else ''} is not an address of the public internet, and may not be "
                f"called{'' if is_named else way}"
            )
        return allowed


def matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether a host, named with and without its port, is one of these."""
    return any(fnmatchcase(name, pattern.casefold()) for pattern in patterns for name in names)


async def look_up(host: str, port: int) -> list[str]:
    """The addresses that the system knows for a name. Raises: `OSError`."""
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of more than 63 characters
        raise OSError(0, "not a name") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in rows))
