"""The workers that a model is spread over (llama.cpp's RPC back end): which ones may be asked, and whether they answer.

    "box.lan:50052" ─ resolve ─▶ "10.0.0.5:50052" ─ probe ─▶ Probed(its memory) ─▶ `Weights.load` gets its devices
                         └─ public: refused            └─ no answer, another version: `EngineDown`, one sentence

The library ends the process where a worker is not there or answers wrongly, and waits without end for one that hangs.
So each worker is asked here first, with a deadline. A name is looked up once: the library gets the address that was
checked. Not here: the other side (`rpc_worker.py`).
"""

from __future__ import annotations

import functools
import importlib.util
import ipaddress
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from shepherd.core import ConfigError, EngineDown
from shepherd.core.address import classify

PORT = 50052
"""The default of llama.cpp's own rpc-server, too."""
TIMEOUT_S = 10.0
"""For all answers of a worker to the questions here, which cost it nothing."""
HELLO, DEVICE_COUNT, DEVICE_MEMORY = 14, 15, 11
"""Commands: each is a byte, the size of its request in 8 bytes, and the request. An answer is its size and itself."""
CAPABILITIES = bytes(24)
"""What a greeting offers besides TCP: nothing."""
MOST_DEVICES = 64
MOST_ANSWER = 256
"""Bytes of an answer; a port that serves something else may send anything."""

Version = tuple[int, int, int]
Lookup = Callable[[str, int], Sequence[str]]


class Probed(NamedTuple):
    """A worker that has answered."""

    address: str
    """`10.0.0.5:50052`, in numbers."""
    free_bytes: tuple[int, ...]
    """Of each device, as it reports them: of a CPU, the whole memory of its machine."""


def look_up(host: str, port: int) -> list[str]:
    """The IPv4 addresses that the system knows for a name; the library knows no others. Raises: `OSError`."""
    try:
        rows = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of more than 63 characters
        raise OSError(0, "not a name") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in rows))


def resolve(server: str, lookup: Lookup = look_up) -> str:
    """The address of `host:port` in numbers. Raises: `EngineDown`, or `ConfigError` for one that may not be asked."""
    host, _, port = server.rpartition(":")
    try:
        found = lookup(host, int(port))
    except OSError as error:
        reason = error.strerror or str(error) or "no address"
        raise EngineDown(f"the worker {server} is not known ({reason}); check its name") from error
    if shut := [each for each in found if not is_near(each)]:
        where = f" ({shut[0]})" if shut[0] != host else ""
        raise ConfigError(
            f"the worker {server}{where} is not an address of this machine or of a private network, and the protocol "
            "has neither passwords nor encryption; name a private address, such as that of a tunnel"
        )
    if not found:
        raise EngineDown(f"the worker {server} has no IPv4 address, and llama.cpp reaches no other; name one")
    return f"{found[0]}:{port}"


def is_near(address: str) -> bool:
    """Whether this is an address of this machine, or of a private network."""
    return classify(address) == "near" and not ipaddress.ip_address(address).is_unspecified


def probe(server: str, *, timeout_s: float = TIMEOUT_S, lookup: Lookup = look_up) -> Probed:
    """Greet a worker as the library does, and ask for its devices. Blocks for `timeout_s` at most, after the lookup.

    Raises: `EngineDown` with what is wrong, `ConfigError` as `resolve`.
    """
    address = resolve(server, lookup)
    host, _, port = address.rpartition(":")
    until_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            return Probed(address, _devices(_Link(connection, until_s), server))
    except ConnectionRefusedError as error:
        raise EngineDown(
            f"nothing listens at {server}; start 'shepherd rpc-worker' there, or check the port"
        ) from error
    except TimeoutError as error:
        raise EngineDown(
            f"the worker {server} does not answer within {timeout_s:g} s: its machine is off or behind a firewall, the "
            "port serves something else, or it is llama.cpp's own rpc-server, which serves one client at a time"
        ) from error
    except _Closed as error:
        raise EngineDown(
            f"{server} closes the connection: it does not allow this machine, it serves as many clients as it may, or "
            "it is no RPC worker of this version of llama.cpp; its log says more"
        ) from error
    except OSError as error:
        raise EngineDown(f"the worker {server} cannot be reached ({error.strerror or error})") from error


def probe_all(servers: Sequence[str], lookup: Lookup = look_up) -> tuple[Probed, ...]:
    """Each worker once, also one that has two names here. Raises: as `probe`, for the first that does not answer."""
    found = {probed.address: probed for probed in (probe(server, lookup=lookup) for server in servers)}
    return tuple(found.values())


class _Closed(Exception):
    """The other side has closed the connection."""


class _Link:
    """Questions to a worker and their answers, until a moment."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection, self._until_s = connection, until_s

    def ask(self, command: int, request: bytes = b"") -> bytes:
        """Raises: `OSError`, `_Closed`; `ValueError` for an answer that is too long."""
        try:
            self._connection.settimeout(self._left_s())
            self._connection.sendall(struct.pack("<BQ", command, len(request)) + request)
            (size,) = struct.unpack("<Q", self._read(8))
            if size > MOST_ANSWER:
                raise ValueError(size)
            return self._read(size)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise _Closed from error

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            self._connection.settimeout(self._left_s())
            if not (piece := self._connection.recv(size - len(found))):
                raise _Closed
            found += piece
        return found

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


def _devices(link: _Link, server: str) -> tuple[int, ...]:
    """The free memory of each device. Raises: `EngineDown` for what is no worker of our version; as `_Link.ask`."""
    no_worker = f"{server} is no RPC worker of llama.cpp: it does not answer as one; check the port"
    try:
        greeting = link.ask(HELLO, CAPABILITIES)
        if len(greeting) < 3:
            raise EngineDown(no_worker)
        _compare((greeting[0], greeting[1], greeting[2]), server)
        (count,) = struct.unpack("<I", link.ask(DEVICE_COUNT))
        if not 0 < count <= MOST_DEVICES:
            raise EngineDown(f"the worker {server} reports {count} devices; it needs 1 to {MOST_DEVICES}")
        asked = [link.ask(DEVICE_MEMORY, struct.pack("<I", device)) for device in range(count)]
        return tuple(struct.unpack("<QQ", each)[0] for each in asked)
    except (ValueError, struct.error) as error:
        raise EngineDown(no_worker) from error


def _compare(theirs: Version, server: str) -> None:
    """Raises: `EngineDown` where the library would refuse their version."""
    ours = protocol()
    if ours is not None and (theirs[0] != ours[0] or theirs[1] > ours[1]):
        raise EngineDown(
            f"the worker {server} speaks version {'.'.join(map(str, theirs))} of the protocol, and this machine "
            f"{'.'.join(map(str, ours))}; install the same version of Shepherd, or of llama.cpp, on both"
        )


@functools.cache
def protocol() -> Version | None:
    """The version of the protocol that the library here speaks, by its header; None where there is no header."""
    spec = importlib.util.find_spec("llama_cpp")
    for place in (spec and spec.submodule_search_locations) or ():
        header = Path(place) / "include" / "ggml-rpc.h"
        if header.is_file():
            found = dict(re.findall(r"#define RPC_PROTO_(\w+)_VERSION\s+(\d+)", header.read_text("utf-8", "replace")))
            if len(found) == 3:
                return int(found["MAJOR"]), int(found["MINOR"]), int(found["PATCH"])
    return None
