"""TLS: the certificate of a server and its key, read and tried before the port opens, and read again when they change.

two files ─▶ context ─▶ a handshake in memory, with a client that trusts this certificate alone ─▶ its faults
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
import time
from pathlib import Path

from shepherd.core import ConfigError
from shepherd.process.files import read_within

logger = logging.getLogger(__name__)

MOST_BYTES = 2**20
"""Of a file of certificates; a long chain has some ten thousand."""
SOON_S = 14 * 86_400
"""A certificate that ends sooner is warned about; those that renew themselves do it a month before."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """The context of a server for the two files. A renewed certificate counts from the next connection on."""

    def __init__(self, cert: str, key: str) -> None:
        """Raises: `ConfigError` that names the file which cannot be used."""
        self._cert, self._key = cert, key
        self._stamp = self._look()
        self.context = self._newest = _context(cert, key)
        self.context.sni_callback = self._choose  # of every handshake, with a name or without

    def _look(self) -> _Stamp:
        try:
            found = [os.stat(name) for name in (self._cert, self._key)]
        except OSError:
            return ()
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if (stamp := self._look()) != self._stamp:
            self._stamp = stamp
            try:
                self._newest = _context(self._cert, self._key)
                logger.info("the certificate has changed: new connections get the new one")
            except ConfigError as error:
                logger.warning("the certificate has changed and cannot be used, the one before stays: %s", error)
        if self._newest is not context:
            connection.context = self._newest


def find_faults(cert: str, key: str, *, now_s: float | None = None) -> list[str]:
    """What clients will hold against this certificate, a sentence each. Raises: `ConfigError`."""
    faults = []
    message, ends_s = _shake_hands(_context(cert, key), trusting(cert))
    if message:
        faults.append(f"clients will refuse the certificate {cert}: {message}; renew it")
    elif ends_s is not None and (left_s := ends_s - (time.time() if now_s is None else now_s)) < SOON_S:
        faults.append(f"the certificate {cert} expires in {left_s / 86_400:.1f} days; renew it before")
    if os.name == "posix" and os.stat(key).st_mode & stat.S_IROTH:
        faults.append(f"every user of this machine can read the key {key}; run chmod 600 on it")
    return faults


def trusting(cert: str) -> ssl.SSLContext:
    """The context of a client that trusts the first certificate of this file, whoever signed it, and no other one: its
    name is not looked at. Raises: `ConfigError`."""
    return _trusting(_blocks(cert)[0], f"{cert} holds no certificate")


def _blocks(cert: str) -> list[str]:
    """The certificates of a file, the first one alone where there is none. Raises: `ConfigError`."""
    text = _read(cert, "server.tls_cert")
    return re.findall(rf"{_BEGIN}.*?{_END}|{_BEGIN}.*", text, re.DOTALL) or [""]


def _trusting(block: str, wrong: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=block)
    except (ssl.SSLError, TypeError, ValueError) as error:  # TypeError: it is not ASCII
        raise ConfigError(
            f"{wrong} that can be read (PEM: a block that begins with {_BEGIN}, then those of its signers)",
            key="server.tls_cert",
        ) from error
    return context


class _Locked(Exception):
    """The key wants a password."""


def _ask_password() -> str:
    raise _Locked


def _context(cert: str, key: str) -> ssl.SSLContext:
    blocks = _blocks(cert)
    for at, block in enumerate(blocks, start=1):
        _trusting(
            block, f"{cert} holds no certificate" if at == 1 else f"certificate {at} of {len(blocks)} in {cert} is none"
        )
    _read(key, "server.tls_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, _ask_password)
    except _Locked as error:
        message = f"the key {key} has a password; write one without: openssl pkey -in {key} -out NEW_FILE"
        raise ConfigError(message, key="server.tls_key") from error
    except OSError as error:  # of ssl, or of a file that is replaced at this moment
        reason = getattr(error, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            message = f"the key {key} does not belong to the first certificate in {cert}"
        elif reason.endswith(("TOO_SMALL", "TOO_WEAK")):
            weak = reason.lower().replace("_", " ")
            raise ConfigError(f"{cert} is too weak to be safe ({weak})", key="server.tls_cert") from error
        else:
            message = f"{key} holds no private key that can be read (PEM)"
        raise ConfigError(message, key="server.tls_key") from error
    return context


def _read(name: str, field: str) -> str:
    """Raises: `ConfigError`."""
    try:
        if os.path.exists(name) and not os.path.isfile(name):  # a pipe could be read once only
            raise ConfigError(f"{name} is no file", key=field)
        return read_within(Path(name), MOST_BYTES).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}", key=field) from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, float | None]:
    """Why `client` refuses `server`, empty where it does not, and when the certificate ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    sides = [ours, server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(10):  # TLS 1.3 needs two rounds
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message, None
            except ssl.SSLError as error:
                return (error.reason or str(error)).lower().replace("_", " "), None
        if not sides:
            break
    ends = (ours.getpeercert() or {}).get("notAfter")
    return "", ssl.cert_time_to_seconds(ends) if isinstance(ends, str) else None
