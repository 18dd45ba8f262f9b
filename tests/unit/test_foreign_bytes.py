"""Every reader of foreign bytes has a limit of size, of time and of steps: the table of docs/limits.md, row by row.

Each row is driven by a source that does not end: over loopback, in memory, or by a device of this machine. What comes
out is the sentence of the row. The table of the page is made here, from the limits that the code has.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.fakes import rpc_worker
from tests.fakes.hub import Endless, Hub
from tests.places import ROOT
from tests.unit.backends.cloud.providing import KEY, asking, chunk
from tests.unit.models.pull.conftest import Puller, pull  # noqa: F401 - a fixture

from shepherd.agent.storage import ConversationStore
from shepherd.app.media import FETCH_S
from shepherd.app.replica_watch import LOOK_S
from shepherd.backends.cloud.backend import MAX_MODELS, MAX_PAGES, CloudBackend, Timeouts
from shepherd.backends.cloud.connection import MAX_FRAME_BYTES
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.backends.cloud.transport import TURN, Deadlines, Limits, Transport
from shepherd.backends.local.media import ImageLimits
from shepherd.cli.command import replay, server_client
from shepherd.config import instructions
from shepherd.config.keys import KeyStore
from shepherd.config.layers import read_file
from shepherd.core import ConfigError, ShepherdError, Unreachable
from shepherd.engine.llamacpp import rpc
from shepherd.models import checkpoint, gguf_file
from shepherd.models.pull import hub as hubs
from shepherd.models.pull import release, wheel
from shepherd.models.pull.network import LIST_S, MOST_REDIRECT_BYTES, limit
from shepherd.models.pull.registry import MAX_MANIFEST_BYTES
from shepherd.models.pull.transfer import SLOWEST_BYTES_PER_S
from shepherd.models.pull.transfer import Timeouts as PullTimeouts
from shepherd.process.files import MOST_DOCUMENT_BYTES, MOST_SETTINGS_BYTES
from shepherd.server.endpoints.handler import Limits as ServerLimits
from shepherd.server.http.body import SLOWEST_BYTES_PER_S as SLOWEST_BODY
from shepherd.server.http.body import read_body
from shepherd.server.http.listen import MAX_HEAD_BYTES
from shepherd.server.observe import recordings
from shepherd.tools.base import ToolError
from shepherd.tools.builtin.web import MOST_REDIRECTS, download
from shepherd.tools.mcp import framing, redirect_page
from shepherd.tools.mcp.framing import LINE_BYTES
from shepherd.tools.mcp.login import LOGIN_BYTES, REQUEST_S
from shepherd.tools.mcp.process import GARBAGE_LINES
from shepherd.tools.mcp.session import Bounded
from shepherd.tools.sandbox.network import NetworkPolicy
from shepherd.wire.base import MAX_VALUES

PAGE = ROOT / "docs" / "limits.md"
ZERO = Path("/dev/zero")
SMALL = Limits(
    stream_bytes=2**18,
    record_bytes=2**16,
    records=500,
    steps=400,
    body_bytes=2**17,
    list_bytes=2**14,
    error_bytes=2**12,
)
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
CHUNKS = EVENTS.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"


@asynccontextmanager
async def endless(head: bytes, piece: bytes) -> AsyncIterator[str]:
    """The address of a server that answers every request with `head`, and then `piece` again and again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the client has gone
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while piece or await reader.read():
                writer.write(piece)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    running = set[Any]()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.wait(running)


class Flood(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """A body that never ends, in memory."""

    def __init__(self, piece: bytes = bytes(2**20), *, is_silent: bool = False) -> None:
        self.piece, self.is_silent = piece, is_silent

    def __iter__(self) -> Iterator[bytes]:
        return itertools.repeat(self.piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self.is_silent:
                await asyncio.Event().wait()
            yield self.piece


@dataclass(frozen=True)
class Place:
    """What a row may use."""

    hub: Hub
    pull: Puller
    folder: Path

    def listed(self) -> Puller:
        self.hub.put_repo("acme/tiny-GGUF", {"tiny-Q4_K_M.gguf": b"GGUF" + bytes(2**22)})
        return self.pull


Drive = Callable[[Place], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    what: str
    size: str
    time: str
    steps: str
    says: str
    """A regular expression of the sentence."""
    drives: tuple[Drive, ...]


def mib(n_bytes: int) -> str:
    return f"{n_bytes // 2**20} MiB" if n_bytes >= 2**20 else f"{n_bytes // 2**10} KiB"


# -- models -----------------------------------------------------------------------------------------------------------


async def listing(place: Place) -> None:
    place.hub.fail("api", Endless())
    await place.pull("hf:acme/tiny-GGUF")


async def manifest(place: Place) -> None:
    place.hub.fail("manifests", Endless())
    await place.pull(f"ollama:{place.hub.host}/library/tiny")


async def packages(place: Place) -> None:
    place.hub.fail("simple", Endless())
    none = {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1", "NETRC": str(place.folder / "none")}
    place.pull.env = {"PIP_INDEX_URL": f"{place.hub.url}/simple", **none}
    await place.pull("pypi:tiny")


async def long_wheel(place: Place) -> None:
    n_bytes = wheel.MOST_LIST_BYTES + 1
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, n_bytes, 0, 0)
    with (place.folder / "a.whl").open("w+b") as file:
        file.truncate(n_bytes)  # its list: a hole
        file.seek(n_bytes)
        file.write(end)
        wheel.find_model(file, "a.whl", "h")


async def redirect(place: Place) -> None:
    place.hub.fail("manifests", Endless(302, {"Location": "/elsewhere"}))
    await place.pull(f"ollama:{place.hub.host}/library/tiny")


async def dripping_list(place: Place) -> None:
    seconds = itertools.count(0.0, 31.0)
    answer = httpx2.Response(200, request=httpx2.Request("GET", place.hub.url), stream=Flood(b"x"))
    limit(answer, MAX_MANIFEST_BYTES, lambda: next(seconds))
    await answer.aread()


async def dripping_file(place: Place) -> None:
    seconds = itertools.count(0.0, 120.0)
    await place.listed()("hf:acme/tiny-GGUF:Q4_K_M", clock=lambda: next(seconds))


async def header(place: Place) -> None:
    file = place.folder / "many.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, gguf_file.MAX_PAIRS + 1) + bytes(100))
    gguf_file.read_file(file)


async def settings_of_a_model(place: Place) -> None:
    file = place.folder / "config.json"
    with file.open("wb") as opened:
        opened.truncate(checkpoint.MAX_JSON_BYTES + 1)
    checkpoint.read_json(file)


def worker(*answers: bytes | None) -> Drive:
    async def drive(place: Place) -> None:
        with rpc_worker.answering(*answers) as server:
            await asyncio.to_thread(rpc.probe, server, timeout_s=0.05 if None in answers else rpc.TIMEOUT_S)

    return drive


# -- providers --------------------------------------------------------------------------------------------------------


def provider(head: bytes, piece: bytes, limits: Limits = SMALL, **more: Any) -> Drive:
    async def drive(place: Place) -> None:
        async with endless(head, piece) as url:
            at = provider_of(KINDS[more.pop("kind", "openai_compat")], name="prov", base_url=url, key=KEY)
            backend = CloudBackend(at, transport=Transport(at, limits=limits, **more), timeouts=Timeouts(attempts=1))
            try:
                async with aclosing(backend.stream(asking())) as events:
                    async for _ in events:
                        pass
            finally:
                await backend.aclose()

    return drive


def lists(body: bytes) -> Drive:
    async def drive(place: Place) -> None:
        async with endless(JSON, body) as url:
            at = provider_of(KINDS["openai_compat"], name="prov", base_url=url, key=KEY)
            backend = CloudBackend(at, transport=Transport(at, limits=SMALL), timeouts=Timeouts(attempts=1))
            try:
                await backend.models()
            finally:
                await backend.aclose()

    return drive


def looks(head: bytes, piece: bytes, wait_s: float) -> Drive:
    async def drive(place: Place) -> None:
        async with endless(head, piece) as url:
            at = provider_of(KINDS["vllm"], name="prov", base_url=url, key=KEY)
            backend = CloudBackend(at, transport=Transport(at, limits=SMALL))
            try:
                raise Unreachable((await backend.look(wait_s, lists=False)).problem, backend="prov")
            finally:
                await backend.aclose()

    return drive


def record(delta: Any) -> bytes:
    return b"data: " + json.dumps(chunk(delta)).encode() + b"\n\n"


def ticking(step_s: float) -> Callable[[], float]:
    seconds = itertools.count(0.0, step_s)
    return lambda: next(seconds)


CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "look", "arguments": "w" * 6_000}}]}
STREAMS = (
    provider(EVENTS, record(CALL)),
    provider(EVENTS, record({"content": "w" * 6_000})),
    provider(EVENTS, record({"reasoning_content": "w" * 6_000})),
    provider(EVENTS, record({"content": "w"})),
    provider(EVENTS, b": comment\n\n" * 200),
    provider(EVENTS, b"\r\n" * 2_000),
    provider(EVENTS, b"data: " + b"w" * 9_000),
    provider(CHUNKS, b"1\r\n:\r\n1\r\n\n\r\n"),
    provider(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n", b"\n" * 2_000, kind="ollama"),
    provider(EVENTS, b'data: {"choices":[' + b"{}," * MAX_VALUES + b"{}]}\n\n", Limits()),
    provider(JSON, b"x" * 9_000),
    provider(JSON, b" " * 9_000),
)
SLOW_STREAMS = (
    provider(EVENTS, b": comment\n\n", clock=ticking(200.0)),
    provider(EVENTS, record({"content": "w" * 6_000}), clock=ticking(3_000.0), deadlines=Deadlines(record=1e9)),
    provider(EVENTS, b"", deadlines=Deadlines(record=0.01)),
)


# -- tools ------------------------------------------------------------------------------------------------------------


async def line_of_a_server(place: Place) -> None:
    lines, n_lines = framing.Lines(), 0
    for _ in range(LINE_BYTES // 2**20 + 2):
        n_lines += sum(1 for _ in lines.feed(b'{"id":1,"result":"' + bytes(2**20)))
    (found,) = framing.decode(lines.finish())
    assert n_lines == 0
    raise ToolError(found.error.message)  # type: ignore[union-attr]


def body_of_a_server(*given: Any, is_silent: bool = False) -> Drive:
    async def drive(place: Place) -> None:
        async for _ in Bounded(Flood(is_silent=is_silent), *given):
            pass

    return drive


async def browser(place: Place) -> None:
    async with redirect_page.open_page() as page:
        address = httpx2.URL(page.address)
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(b"GET /callback HTTP/1.1\r\n" + b"x" * 2 * redirect_page.REQUEST_BYTES)
        answer = await reader.read()
        writer.close()
    raise ToolError(answer.decode())


async def image(place: Place) -> None:
    async with endless(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n", bytes(2**16)) as url:
        await download(NetworkPolicy(allow_private=True, max_bytes=2**20), url, FETCH_S)


# -- the server -------------------------------------------------------------------------------------------------------


def body_of_a_client(piece: bytes, stall_s: float = 60.0) -> Drive:
    async def drive(place: Place) -> None:
        async def receive() -> Any:
            if not piece:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": piece, "more_body": True}

        await read_body({"type": "http", "headers": []}, receive, ServerLimits().max_body_bytes, stall_s)

    return drive


# -- files and other servers ------------------------------------------------------------------------------------------


async def configuration(place: Place) -> None:
    read_file(ZERO)


async def folder_instructions(place: Place) -> None:
    with (place.folder / "AGENTS.md").open("wb") as opened:
        opened.truncate(instructions.MOST_BYTES + 1)
    _, (sentence,) = instructions.find(place.folder)
    raise ConfigError(sentence)


async def keys(place: Place) -> None:
    (place.folder / "keys.json").symlink_to(ZERO)
    KeyStore(place.folder).find("x")


async def conversation(place: Place) -> None:
    (place.folder / "long.json").symlink_to(ZERO)  # a file with holes takes ten times the time
    ConversationStore(place.folder).load("long")


async def recording(place: Place) -> None:
    recordings.read(ZERO)


async def debug_folder(place: Place) -> None:
    (place.folder / replay.BODY).symlink_to(ZERO)
    replay.read_recordings(place.folder)


async def replayed(place: Place) -> None:
    answer = httpx2.Response(200, request=httpx2.Request("GET", "http://127.0.0.1/"), stream=Flood())
    async for _ in replay.events(answer):
        pass


async def figures(place: Place) -> None:
    place.hub.fail("files", Endless())

    def ask() -> None:
        with server_client.connect(server_client.Address(place.hub.url)) as client:
            client.get("/files/x")

    await asyncio.to_thread(ask)


ROWS = (
    Row(
        "list of files at a hub",
        mib(hubs.MAX_LISTING_BYTES),
        f"{LIST_S:g} s",
        f"{hubs.MAX_FILES:,} GGUF files, one page",
        r"127.0.0.1 answers with more than 16,777,216 bytes where a short list is expected",
        (listing,),
    ),
    Row(
        "manifest of a registry",
        mib(MAX_MANIFEST_BYTES),
        f"{LIST_S:g} s",
        "20 redirects",
        r"127.0.0.1 (answers with more than 4,194,304 bytes where a short list|has not ended its answer in 120 s)",
        (manifest, dripping_list),
    ),
    Row(
        "page of a package index",
        mib(release.MAX_LISTING_BYTES),
        f"{LIST_S:g} s",
        f"{release.MAX_WHEELS:,} wheels, 20 redirects",
        r"127.0.0.1 answers with more than 16,777,216 bytes where a short list is expected",
        (packages,),
    ),
    Row(
        "list of files in a wheel",
        mib(wheel.MOST_LIST_BYTES),
        "a file of this machine",
        f"one model, at most {wheel.MOST_RATIO} times its packed size",
        r"a.whl of h cannot be read as a wheel \(its list of files has more than 8,388,608 bytes\)",
        (long_wheel,),
    ),
    Row(
        "page of a redirect to a model",
        mib(MOST_REDIRECT_BYTES),
        f"{LIST_S:g} s",
        "20 redirects",
        r"127.0.0.1 answers with more than 1,048,576 bytes where a short list is expected",
        (redirect,),
    ),
    Row(
        "file of a model",
        "as its source announced",
        f"{PullTimeouts().idle_s:g} s silent, {PullTimeouts().slow_s:g} s below {SLOWEST_BYTES_PER_S:,} bytes a second",
        f"{PullTimeouts().attempts} attempts without a byte",
        r"sends tiny-Q4_K_M.gguf more slowly than 1,024 bytes a second",
        (dripping_file,),
    ),
    Row(
        "header of a GGUF file",
        f"{mib(gguf_file.MAX_TEXT_BYTES)} a text",
        "a file of this machine",
        f"{gguf_file.MAX_PAIRS:,} keys, {gguf_file.MAX_TENSORS:,} tensors, {gguf_file.MAX_STRINGS:,} texts in an array",
        r"claims 1 tensors and 65537 metadata keys; it is damaged",
        (header,),
    ),
    Row(
        "JSON and template of a folder of weights",
        f"{mib(checkpoint.MAX_JSON_BYTES)}, {mib(checkpoint.MAX_TEMPLATE_BYTES)}",
        "a file of this machine",
        "",
        r"has 67108865 bytes, more than 67108864; it is no such file",
        (settings_of_a_model,),
    ),
    Row(
        "answer of an RPC worker, before a model uses it",
        f"{rpc.MOST_ANSWER} bytes",
        f"{rpc.TIMEOUT_S:g} s for all",
        f"{rpc.MOST_DEVICES} devices",
        r"127.0.0.1:\d+ (is no RPC worker of llama.cpp|does not answer within 0.05 s)",
        (worker(rpc_worker.framed(bytes(rpc.MOST_ANSWER + 1))), worker(rpc_worker.HANG)),
    ),
    Row(
        "streamed answer of a provider",
        f"{mib(Limits().stream_bytes)}, {mib(Limits().record_bytes)} a record",
        f"{Deadlines().idle:g} s silent, {Deadlines().record:g} s without a record, {Deadlines().answer / 3600:g} h",
        f"{Limits().records:,} records, {Limits().steps:,} pieces, {MAX_VALUES:,} values a record",
        r"prov: (the answer breaks its protocol: a record holds more than 500000 JSON values|"
        r"the answer is too long: .* more than [\d,]+ (bytes|records|pieces)|no record of the answer has "
        r"ended for|the answer has not ended in |the answer takes too long)",
        (*STREAMS, *SLOW_STREAMS),
    ),
    Row(
        "whole answer of a provider",
        mib(Limits().body_bytes),
        f"{Deadlines().record:g} s",
        f"{MAX_VALUES:,} values",
        r"prov: the answer is too long: the body has more than 131,072 bytes",
        (provider(JSON, b'{"x":"' + b"w" * 9_000),),
    ),
    Row(
        "list of models of a provider, a count",
        mib(Limits().list_bytes),
        f"{Deadlines().whole:g} s a page",
        f"{MAX_PAGES} pages, {MAX_MODELS:,} models",
        r"prov: the answer is too long: it has more than 16,384 bytes",
        (lists(b'{"data":[' + b'{"id":"m"},' * 900),),
    ),
    Row(
        "error of a provider",
        f"{mib(Limits().error_bytes)}; the rest is not read",
        f"{Deadlines().whole:g} s",
        "",
        r"prov: w+",
        (provider(JSON.replace(b"200 OK", b"500 No"), b"w" * 9_000),),
    ),
    Row(
        "health check of a replica",
        f"{mib(Limits().error_bytes)}; the rest is not read",
        f"{LOOK_S:g} s",
        "",
        r"its health check answers: w+|the answer takes too long",
        (looks(JSON.replace(b"200 OK", b"503 No"), b"w" * 9_000, LOOK_S), looks(JSON, b"", 0.01)),
    ),
    Row(
        "head, and what stands around a body, of a provider",
        mib(MAX_FRAME_BYTES),
        f"{Deadlines().idle:g} s silent",
        "",
        r"prov: .* has closed the connection in the middle of its answer",
        (
            provider(b"HTTP/1.1 200 OK\r\n", b"x-more: " + b"w" * 900 + b"\r\n"),
            provider(CHUNKS, b"1;" + b"w" * 900 + b"\r\n:\r\n"),
        ),
    ),
    Row(
        "message of an MCP server, over its output",
        mib(LINE_BYTES),
        "that of the call",
        f"{GARBAGE_LINES:,} lines that are none",
        r"the answer is longer than 128 MiB",
        (line_of_a_server,),
    ),
    Row(
        "answer and event of an MCP server, over HTTP",
        mib(LINE_BYTES),
        "that of the call",
        "",
        r"the answer is longer than 128 MiB",
        (body_of_a_server(),),
    ),
    Row(
        "answer of an authorization server",
        mib(LOGIN_BYTES),
        f"{REQUEST_S:g} s",
        "",
        r"the answer (is longer than 1 MiB|has not ended in 0 s)",
        (body_of_a_server(LOGIN_BYTES, REQUEST_S), body_of_a_server(LOGIN_BYTES, 0.0, is_silent=True)),
    ),
    Row(
        "redirect of a browser after a login",
        mib(redirect_page.REQUEST_BYTES),
        f"{redirect_page.REQUEST_S:g} s",
        "",
        r"This is not a request of a browser",
        (browser,),
    ),
    Row(
        "image at an address",
        f"{mib(ImageLimits().max_bytes)} (`images.max_bytes`)",
        f"{FETCH_S:g} s",
        f"{MOST_REDIRECTS} redirects",
        r"cut: only the first 1,048,576 bytes were read",
        (image,),
    ),
    Row(
        "answer to an HTTP tool",
        f"{mib(NetworkPolicy().max_bytes)} (`tools.http.max_bytes`)",
        "that of the call",
        f"{MOST_REDIRECTS} redirects",
        r"cut: only the first 1,048,576 bytes were read",
        (image,),
    ),
    Row(
        "request of a client",
        f"{mib(MAX_HEAD_BYTES)} its head, {mib(ServerLimits().max_body_bytes)} its body (`max_body_bytes`)",
        f"{ServerLimits().stall_s:g} s silent, or below {SLOWEST_BODY:,} bytes a second",
        f"{MAX_VALUES:,} values",
        r"the body (is larger than 67108864 bytes, the limit of this server|comes too slowly)",
        (body_of_a_client(bytes(2**20)), body_of_a_client(b"", 0.0)),
    ),
    Row(
        "configuration, and other files of settings and names",
        mib(MOST_SETTINGS_BYTES),
        "a file of this machine",
        "",
        r"it has more than 4,194,304 bytes, the limit for such a file",
        (configuration, keys),
    ),
    Row(
        "`AGENTS.md` of a folder",
        f"{instructions.MOST_BYTES // 1024} KiB",
        "a file of this machine",
        "",
        r"left out: it has more than 65,536 bytes, the limit for such a file",
        (folder_instructions,),
    ),
    Row(
        "saved conversation, recording, debug file",
        mib(MOST_DOCUMENT_BYTES),
        "a file of this machine",
        "",
        r"it has more than 268,435,456 bytes, the limit for such a file",
        (conversation, recording, debug_folder),
    ),
    Row(
        "answer of a server to `shepherd replay`",
        mib(MOST_DOCUMENT_BYTES),
        f"{replay.TIMEOUT_S:g} s silent",
        "",
        r"an answer of 127.0.0.1 has more than 268,435,456 bytes",
        (replayed,),
    ),
    Row(
        "answer of a server to `top`, `launch`, `models`",
        mib(server_client.MOST_BYTES),
        f"10 s silent, {LIST_S:g} s",
        "",
        r"127.0.0.1 answers with more than 33,554,432 bytes",
        (figures,),
    ),
)


@pytest.fixture
def place(hub: Hub, pull: Puller, tmp_path: Path) -> Place:  # noqa: F811 - the fixture
    return Place(hub, pull, tmp_path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
async def test_a_source_without_an_end_is_left_at_the_limit_of_its_row(row: Row, place: Place) -> None:
    for drive in row.drives:
        with pytest.raises((ShepherdError, ToolError, httpx2.ReadError, ValueError)) as error:
            await drive(place)
        assert re.search(row.says, str(getattr(error.value, "message", "") or error.value)), error.value


def test_the_page_of_limits_has_every_row() -> None:
    lines = ["| what is read | size | time | steps |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.size} | {row.time} | {row.steps} |" for row in ROWS]
    found = PAGE.read_text("utf-8").partition("<!-- limits -->\n")[2].partition("<!-- /limits -->")[0]
    assert found.strip() == "\n".join(lines)


async def test_a_flood_of_records_lets_others_go_first() -> None:
    n_turns, is_over = 0, False

    async def other() -> None:
        nonlocal n_turns
        while not is_over:
            n_turns += 1
            await asyncio.sleep(0)

    async with endless(EVENTS, record({"content": "w"}) * 500) as url:
        at = provider_of(KINDS["openai_compat"], name="prov", base_url=url, key=KEY)
        backend = CloudBackend(at, transport=Transport(at, limits=replace(Limits(), records=20_000)))
        beside = asyncio.create_task(other())

        async def answer() -> None:
            async with aclosing(backend.stream(asking())) as events:
                async for _ in events:
                    pass

        with pytest.raises(ShepherdError, match="more than 20,000 records"):
            await answer()
        is_over = True
        await beside
        await backend.aclose()
    assert n_turns > 20_000 / TURN
