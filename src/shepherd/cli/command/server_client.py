"""Finds a running server, connects to it, and turns its failures into errors."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

import click
import httpx2

from shepherd.cli.command.replies import error_message
from shepherd.cli.command.serve import url
from shepherd.cli.text import clean
from shepherd.config import Config
from shepherd.core import (
    BackendError,
    BadReply,
    ConfigError,
    EngineDown,
    NotAllowed,
    Refused,
    ShepherdError,
    TimedOut,
    Unreachable,
)
from shepherd.core.dataclasses import dataclass
from shepherd.models.pull.network import distrust, limit
from shepherd.server.http.caller import is_loopback
from shepherd.server.http.tls import trusting

MOST_BYTES = 32 * 2**20
"""Of one answer; the figures of a busy server have some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    """Without `/v1` and without a slash at its end."""
    key: str | None = None
    certificate: str | None = None
    """The file of the server's own certificate, where it is known: no other one is trusted then. None = those of the
    system, or of SSL_CERT_FILE."""


def find_address(config: Config, given: str | None, keys: tuple[str, ...], *, is_running: bool = False) -> Address:
    """The server at `given`, or else the one that `config` would start on this machine.

    `keys`: those of the command line. Keys of the configuration belong to the local server and go nowhere else.
    `is_running`: a configured port of 0 is an error, because it names no server.

    Raises: `UsageError` for a text that is no address of a server.
    """
    if given is not None:
        return Address(_checked(given), next(iter(keys), None))
    if is_running and config.server.port == 0:
        raise click.UsageError("The configured port is 0, which means any free port. Name the server with --url.")
    server = config.server
    here = url(_from_here(server.host.strip("[]")), server.port, is_tls=server.tls_cert is not None)
    return Address(here, own_key(config), server.tls_cert)


def own_key(config: Config) -> str | None:
    """A key that the configured server accepts; None where it has none, or hashes only."""
    named = (entry.key for entry in config.server.keys or ())
    return next((key for key in (*(config.server.api_keys or ()), *named) if key), None)


def local(address: str) -> str:
    """The address for this machine of a server that reports `address`."""
    found = httpx2.URL(address)
    is_tls = found.scheme == "https"
    return url(_from_here(found.host.strip("[]")), found.port or (443 if is_tls else 80), is_tls=is_tls)


def connect(address: Address, timeout_s: float = 10.0) -> httpx2.Client:
    """A client of the server, whose answers have at most `MOST_BYTES`. A proxy of the environment cannot reach a server
    on this machine. Raises: `ConfigError` when its certificate cannot be read."""
    key = address.key
    headers = {b"accept-encoding": b"identity"}
    headers |= {b"authorization": b"Bearer " + key.encode("utf-8", "surrogateescape")} if key else {}
    host = httpx2.URL(address.url).host.strip("[]")
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [partial(limit, most_bytes=MOST_BYTES)]}
    return httpx2.Client(
        base_url=address.url, headers=headers, timeout=timeout_s, trust_env=not is_loopback(host), event_hooks=hooks,
        verify=trusting(address.certificate) if address.certificate else system_trust(address.url),
    )  # fmt: skip


def system_trust(url: str) -> ssl.SSLContext:
    """For a client's `verify`: the certificates of the system, or of SSL_CERT_FILE, which a client without the proxies
    of the environment would not read; without TLS none, which take 20 ms to read. Raises: `ConfigError` when these
    cannot be read."""
    if not url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # of ssl, too
        name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        raise ConfigError(
            f"{name} names {clean(os.environ.get(name, ''))!r}, from which no certificate can be read: correct it, or "
            "unset it for those of the system"
        ) from error


def transport_error(error: httpx2.TransportError, url: str, timeout_s: float) -> ShepherdError:
    if isinstance(error, httpx2.TimeoutException):
        return TimedOut(f"{url} has not answered for {timeout_s:g} s", backend=url)
    if (reason := distrust(error)) is not None:
        return Refused(
            f"{url} shows a certificate that is not trusted ({reason}); name that of its signer in SSL_CERT_FILE",
            backend=url,
            status=502,
        )
    why = clean(str(error)) or type(error).__name__
    if isinstance(error, httpx2.ConnectError) and "SSL" not in why:
        return no_server(url)
    is_https = url.startswith("https:")
    hint = f"a server {'without' if is_https else 'with'} a certificate is reached at http{'' if is_https else 's'}://"
    return Unreachable(f"the request to {url} failed: {why}; {hint}", backend=url)


def no_server(url: str) -> Unreachable:
    return Unreachable(
        f"no server answers at {url}; start one with 'shepherd serve', or name another with --url", backend=url
    )


def refusal(answer: httpx2.Response, url: str) -> ShepherdError:
    """The error for an answer with another status than 200."""
    path = answer.request.url.path
    match answer.status_code:
        case 401 | 403:
            return NotAllowed(f"{url} refuses access; give its key with --api-key KEY", status=answer.status_code)
        case 404 | 405:
            return BadReply(f"{url} has no {path}: it is no Shepherd server, or an old one", backend=url)
        case 503:
            return EngineDown(f"{url}: {clean(error_message(json_object(answer)) or 'it is not ready')}")
        case status:
            return BackendError(f"{url} answers {path} with status {status}", backend=url)


def health_of(client: httpx2.Client, url: str) -> dict[str, Any]:
    """What the server at `url` says of its health. Raises: `BadReply` for another program; as `Client.get`."""
    told = json_object(client.get("/health"))
    if "backend_connected" not in told:
        raise BadReply(
            f"the program at {url} is no Shepherd server; choose another port with --port, or name the server with "
            "--url",
            backend=url,
        )
    return told


def json_object(answer: httpx2.Response) -> dict[str, Any]:
    """The JSON object in an answer; empty where it has none."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _from_here(host: str) -> str:
    """The host at which a server that listens on `host` is reached from this machine."""
    try:
        found = ip_address(host)
    except ValueError:
        return host
    return ("127.0.0.1" if found.version == 4 else "::1") if found.is_unspecified else host


def _checked(address: str) -> str:
    """`address` with a scheme, without a path behind `/v1`. Raises: `UsageError`."""
    text = address if "://" in address else f"http://{address}"
    try:
        found = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        found = httpx2.URL("")
    if found.scheme not in {"http", "https"} or not found.host or len(text.split()) != 1:
        raise click.UsageError(f"{address!r} is no address of a server; write one such as http://127.0.0.1:8000.")
    return str(found.copy_with(query=None, fragment=None)).rstrip("/").removesuffix("/v1").rstrip("/")
