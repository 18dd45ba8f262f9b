"""A provider on loopback: a real HTTP server that answers with recorded bytes, in whatever way a test wants.

    async with replaying(*answers) as server:          # answers leave in this order, each for its own path
        ... base_url=server.url ...                     # server.requests: what came
    python tests/providers_replay.py [--folder F]       # a process; base URL: http://127.0.0.1:PORT/ID/PREFIX

An answer is sent for its own method, path and stream flag only: another request gets 404 or 400 with what was
expected, and `server.faults` keeps it. A recording without a stream may be sent to a client that asks for one
(`any_stream`): gateways do that. `Way` cuts the bytes anywhere, slows them, breaks them off or never ends them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FOLDER = Path("/work/shared/conformance/providers")
REASON = f"no recordings of providers in {FOLDER}"
OWN = Path(__file__).parent / "data" / "providers"
"""Small ones that are written by hand, in the same form: one for each thing that a decoder gets wrong easily."""


@dataclass(frozen=True)
class Way:
    """How the bytes of an answer go out."""

    seed: int | None = None
    """Cut at random places, which this seed gives; None = in one piece."""
    longest: int = 400
    """Bytes of a piece, at most."""
    pause_s: float = 0.0
    """Before each piece."""
    break_at: int | None = None
    """The connection is cut behind so many bytes of the body."""
    end_at: int | None = None
    """The body ends, properly, behind so many bytes."""
    hang_at: int | None = None
    """Nothing more comes behind so many bytes, until the client goes; -1 = not even a status."""
    go_on: asyncio.Event | None = None
    """With `hang_at`: the rest comes when it is set."""
    linger: bool = False
    """The body does not end, although all of it was sent."""


@dataclass(frozen=True)
class Answer:
    """One answer, and the request that it is for."""

    path: str
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    method: str = "POST"
    stream: bool | None = None
    """The flag that the request must have; None = any."""
    way: Way = Way()
    id: str = ""
    expect: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str = ""
    request: Any = None
    """The recorded body."""


@dataclass
class Received:
    """One request, as it came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Number of the connection."""
    has_left: asyncio.Event = field(default_factory=asyncio.Event)
    """The client has closed the connection, or the answer has ended."""

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"null")


def answer_of(recording: Mapping[str, Any], *, id: str = "") -> Answer:
    """A recorded exchange, for requests with and without a stream."""
    request, response = recording["request"], recording["response"]
    headers = {name: value for name, value in (response.get("headers") or {}).items() if name.lower() in _KEPT}
    if any(response.get(name) is not None for name in ("sse_text", "ndjson_text")):
        text = response.get("sse_text") or response.get("ndjson_text") or response.get("sse_text_reframed")
        body = text.encode()
    else:
        body = json.dumps(response.get("body"), ensure_ascii=False).encode()
    return Answer(
        request["path"],
        body,
        response["status"],
        {"content-type": "application/json", **headers},
        request["method"],
        id=id or recording.get("id", ""),
        expect=recording.get("expect", {}),
        endpoint=recording["endpoint"],
        request=request.get("body"),
    )


_KEPT = {"content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id"}


def recordings(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Our own exchanges, and every recorded one, where the folder is there."""
    own = [json.loads(path.read_text("utf-8")) for path in sorted(OWN.glob("*.json"))]
    if not (folder / "index.json").exists():
        return own
    index = json.loads((folder / "index.json").read_text())
    return [*own, *(json.loads((folder / entry["file"]).read_text()) for entry in index)]


def sessions(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Every recorded session; empty where the folder is absent."""
    return [json.loads(path.read_text()) for path in sorted((folder / "sessions").glob("*-session-*.json"))]


class ReplayServer:
    """Answers in order, or by the first part of the path (`library`)."""

    def __init__(
        self, answers: Iterable[Answer] = (), *, library: Mapping[str, Iterable[Answer]] | None = None
    ) -> None:
        self.answers = deque(answers)
        self.library = {name: deque(some) for name, some in (library or {}).items()}
        self.requests: list[Received] = []
        self.faults: list[str] = []
        """Requests that no answer was for."""
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.n_connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, port: int = 0) -> asyncio.Server:
        self.loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.n_connections += 1
        try:
            while (received := await _read(reader, self.n_connections)) is not None:
                self.requests.append(received)
                try:
                    if not await self._answer(received, reader, writer):
                        return
                finally:
                    received.has_left.set()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    def _next(self, received: Received) -> tuple[Answer, str]:
        """The answer, and what is wrong with the request."""
        path, held = received.path, self.answers
        if self.library:
            _, _, rest = path.partition("/")
            name, _, below = rest.partition("/")
            held, path = self.library.get(name, deque()), f"/{below}"
        if not held:
            return Answer(path, b""), f"no answer is left for {received.method} {received.path}"
        # The first for this path: requests at the same time come in any order.
        answer = next((each for each in held if self._is_for(each, received, path)), held[0])
        is_alike = _alike(answer.path) == _alike(path)
        if (answer.method, is_alike) != (received.method, True):
            return answer, f"{received.method} {path} came where {answer.method} {answer.path} was expected"
        if answer.stream is not None and answer.stream != _streams(received):
            return answer, f"{path} was expected with stream={answer.stream}"
        if self.library:
            held.rotate(-1)  # a session begins again behind its end
        else:
            held.remove(answer)
        return answer, ""

    def _is_for(self, answer: Answer, received: Received, path: str) -> bool:
        return not self.library and (answer.method, _alike(answer.path)) == (received.method, _alike(path))

    async def _answer(self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        answer, fault = self._next(received)
        if fault:
            self.faults.append(fault)
            body = json.dumps({"error": {"message": f"replay: {fault}", "type": "replay_fault"}}).encode()
            status = 404 if " came where " in fault else 400
            answer = Answer(received.path, body, status, {"content-type": "application/json"})
        way = answer.way
        if way.hang_at == -1:
            await reader.read()  # until the client goes
            return False
        head = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in answer.headers.items())]
        if answer.status in (204, 304):  # never with a body
            writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
            return True
        writer.write("\r\n".join([*head, "transfer-encoding: chunked", "", ""]).encode("latin-1"))
        stop = min((at for at in (way.break_at, way.end_at, way.hang_at) if at is not None), default=len(answer.body))
        for piece in _pieces(answer.body[:stop], way):
            if way.pause_s:
                await asyncio.sleep(way.pause_s)
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if way.break_at is not None:
            writer.transport.abort() if way.break_at % 2 else writer.close()
            return False
        if way.hang_at is not None and way.go_on is not None:
            await way.go_on.wait()
            rest = answer.body[stop:]
            writer.write(f"{len(rest):x}\r\n".encode() + rest + b"\r\n")
        elif way.hang_at is not None or way.linger:
            await writer.drain()
            await reader.read()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _alike(path: str) -> str:
    """A path without its version, and without what only asks for a stream."""
    return re.sub(r"^/v1(beta)?(?=/)|//+", "", path.replace(":streamGenerateContent", ":generateContent"))


def _streams(received: Received) -> bool:
    if ":streamGenerateContent" in received.path:
        return True
    body = received.json
    asked = body.get("stream") if isinstance(body, dict) else None
    return bool(asked) if asked is not None else received.path.endswith("/api/chat")


def _pieces(body: bytes, way: Way) -> Iterator[bytes]:
    if way.seed is None:
        if body:
            yield body
        return
    cut = random.Random(way.seed)
    at = 0
    while at < len(body):
        n = cut.randint(1, cut.choice((1, 3, 20, way.longest)))
        yield body[at : at + n]
        at += n


async def _read(reader: asyncio.StreamReader, connection: int) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    path, _, query = target.partition("?")
    return Received(method, path, query, headers, body, connection)


@contextlib.asynccontextmanager
async def replaying(
    *answers: Answer, library: Mapping[str, Iterable[Answer]] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ReplayServer]:
    """A server with these answers, in this event loop."""
    replay = ReplayServer(answers, library=library)
    replay.tls = tls
    server = await replay.serve()
    try:
        yield replay
    finally:
        server.close()
        await replay.aclose()
        await server.wait_closed()


def library_of(folder: Path = FOLDER, way: Way = Way()) -> dict[str, list[Answer]]:
    """Every recording by its id, and every session, whose answers come in their order."""
    made = {each["id"]: [replace(answer_of(each), way=way)] for each in recordings(folder)}
    for session in sessions(folder):
        made[session["id"]] = [replace(answer_of(step, id=session["id"]), way=way) for step in session["steps"]]
    return made


async def _main(folder: Path, port: int, way: Way) -> None:
    replay = ReplayServer(library=library_of(folder, way))
    server = await replay.serve(port)
    print(f"{replay.url}: {len(replay.library)} recordings; a base URL is {replay.url}/ID", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, help="cut the answers at random places")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each piece")
    options = parser.parse_args()
    try:
        asyncio.run(_main(options.folder, options.port, Way(options.seed, pause_s=options.pause)))
    except KeyboardInterrupt:
        sys.exit(0)
