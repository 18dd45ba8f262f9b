"""A client that disturbs little: one thread, raw sockets, every arrival with its time, all parsing afterwards.

The benchmarks share two cores with the server, so nothing is decoded while tokens come in: a `Flight` collects bytes
and the times they came at, and `reply` makes sense of them when it has landed.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

SILENCE_S = 300.0
"""A server that sends nothing for so long is stuck."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One streamed answer, read afterwards."""

    status: int
    """0 = none came."""
    error: str
    started: float
    times: tuple[float, ...]
    """When each piece of text came; `time.perf_counter`."""
    text: str
    n_prompt: int
    n_cached: int
    n_generated: int

    @property
    def ttft_s(self) -> float:
        """Time to the first piece of text."""
        return self.times[0] - self.started

    @property
    def gaps_s(self) -> list[float]:
        """Between pieces."""
        return [b - a for a, b in pairwise(self.times)]

    @property
    def n_prefilled(self) -> int:
        """Prompt tokens that were computed, as the server reports."""
        return self.n_prompt - self.n_cached


class Flight:
    """One request on its way."""

    def __init__(self, port: int, body: Mapping[str, Any], path: str) -> None:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.started = time.perf_counter()
        self.arrivals: list[tuple[float, bytes]] = []
        self.landed = False
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(head.encode() + content)
        self.socket.setblocking(False)

    def receive(self) -> None:
        """Take what has come."""
        arrived = self.socket.recv(1 << 18)
        self.arrivals.append((time.perf_counter(), arrived))
        self.landed = not arrived

    def reply(self) -> Reply:
        """What was answered up to now; the usage only comes with the end."""
        raw = b"".join(piece for _, piece in self.arrivals)
        head, whole, _ = raw.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1]) if whole else 0
        payload, chunks = _payload(raw, len(head) + 4)
        if status != 200:
            return Reply(status, payload.decode(errors="replace"), self.started, (), "", 0, 0, 0)
        ends = list(accumulate(len(piece) for _, piece in self.arrivals))
        times: list[float] = []
        text: list[str] = []
        usage: dict[str, Any] = {}
        error = ""
        for stop, event in _events(payload):
            usage = event.get("usage") or usage
            error = json.dumps(event["error"]) if "error" in event else error
            for choice in event.get("choices") or ():
                delta = choice.get("delta") or {}
                piece = delta.get("content") or delta.get("reasoning_content")
                if piece:
                    text.append(piece)
                    # the recv that brought the last byte of the event
                    raw_stop = chunks[bisect_left(chunks, (stop, 0))][1]
                    times.append(self.arrivals[bisect_left(ends, raw_stop)][0])
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Reply(
            status, error, self.started, tuple(times), "".join(text),
            usage.get("prompt_tokens", 0), cached, usage.get("completion_tokens", 0),
        )  # fmt: skip


class Traffic:
    """The requests that are under way to one server."""

    def __init__(self, port: int, path: str = "/v1/chat/completions") -> None:
        self._port, self._path = port, path
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up on all that are still talking."""
        for key in list(self._selector.get_map().values()):
            self._drop(key.data)
        self._selector.close()

    def send(self, body: Mapping[str, Any]) -> Flight:
        """Start a streamed request; nothing arrives outside `until`."""
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        flight = Flight(self._port, {"model": "bench", **body, **streamed}, self._path)
        self._selector.register(flight.socket, selectors.EVENT_READ, flight)
        return flight

    def until(self, happened: Callable[[], bool]) -> None:
        """Receive until `happened`, which is asked after every arrival. Raises: `TimeoutError`."""
        while not happened():
            ready = self._selector.select(SILENCE_S)
            if not ready:
                raise TimeoutError(f"nothing came for {SILENCE_S:.0f} s")
            for key, _ in ready:
                flight: Flight = key.data
                flight.receive()
                if flight.landed:
                    self._drop(flight)

    def hang_up(self, flight: Flight) -> None:
        """Leave in the middle of an answer."""
        if not flight.landed:
            self._drop(flight)

    def _drop(self, flight: Flight) -> None:
        self._selector.unregister(flight.socket)
        flight.socket.close()


def ask(port: int, body: Mapping[str, Any]) -> Reply:
    """One request, to its end."""
    with Traffic(port) as traffic:
        flight = traffic.send(body)
        traffic.until(lambda: flight.landed)
    return flight.reply()


def _payload(raw: bytes, start: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The body without its chunking, and where each chunk ends: (in the body, in `raw`)."""
    if b"chunked" not in raw[:start].lower():
        body = raw[start:]
        return body, [(stop, start + stop) for stop in range(1, len(body) + 1)]
    pieces: list[bytes] = []
    chunks: list[tuple[int, int]] = []
    n = 0
    while (line := raw.find(b"\r\n", start)) >= 0 and (size := int(raw[start:line], 16)):
        stop = min(line + 2 + size, len(raw))
        pieces.append(raw[line + 2 : stop])
        n += len(pieces[-1])
        chunks.append((n, stop))
        start = stop + 2
    return b"".join(pieces), chunks


def _events(payload: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON of every whole server-sent event, with the offset behind it."""
    start = 0
    while (stop := payload.find(b"\n\n", start)) >= 0:
        line = payload[start:stop].strip()
        if line.startswith(b"data:") and b"[DONE]" not in line:
            yield stop + 2, json.loads(line[5:])
        start = stop + 2
