"""`shepherd replay`: sends recorded requests again, to a running server or to the configured model in process.

It shows what the requests cost in tokens, and what has changed: the status, the tokens and, for debug files, which hold
the answer, its text. Not here: the writers of the files (`recordings.py` and `debug_files.py` in `server/observe`).
"""

from __future__ import annotations

import asyncio
import difflib
import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import httpx2
from rich import box
from rich.table import Table
from rich.text import Text

from shepherd.cli import configure, render, signals
from shepherd.cli.command.replies import ReplySummary
from shepherd.cli.command.serve import running
from shepherd.cli.command.server_client import find_address, system_trust, transport_error
from shepherd.cli.loading import progress_shown
from shepherd.cli.terminal.view import PipeView
from shepherd.cli.text import json_text
from shepherd.core import BadReply, ConfigError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.process.files import MOST_DOCUMENT_BYTES, read_within
from shepherd.server.observe.debug_files import FILES
from shepherd.server.observe.recordings import Recording, read
from shepherd.server.observe.secrets import is_secret_name
from shepherd.wire.sse import EventReader, NdjsonReader, RecordTooLong

if TYPE_CHECKING:
    from shepherd.server.observe.observer import ObserverFactory
    from shepherd.server.service import Service

BODY, REQUEST, _, ANSWER = FILES
TIMEOUT_S = 600.0
"""Seconds without a byte: a long prompt on a slow machine takes that long."""
OWN_HEADERS = frozenset((
    "host", "content-length", "content-encoding", "transfer-encoding", "connection", "accept-encoding", "te", "upgrade",
))  # fmt: skip
"""Headers that belong to a connection, not to a request."""
PATHS: tuple[tuple[Callable[[Mapping[str, Any], Mapping[str, Any]], bool], str], ...] = (
    (lambda sent, got: got.get("object") in {"chat.completion", "chat.completion.chunk"}, "/v1/chat/completions"),
    (lambda sent, got: got.get("object") == "text_completion", "/v1/completions"),
    (lambda sent, got: got.get("type") in {"message", "message_start"}, "/v1/messages"),
    (lambda sent, got: got.get("object") == "response" or "response" in str(got.get("type")), "/v1/responses"),
    (lambda sent, got: "done" in got and "message" in got, "/api/chat"),
    (lambda sent, got: "done" in got, "/api/generate"),
    (lambda sent, got: got.get("type") == "error" or "system" in sent or "anthropic_version" in sent, "/v1/messages"),
    (lambda sent, got: "input" in sent and "messages" not in sent, "/v1/responses"),
    (lambda sent, got: "prompt" in sent, "/v1/completions"),
)
"""The path of a request, by the shape of its body and of the first event of its answer; else chat completions."""


def run(
    options: Mapping[str, Any], *, paths: Sequence[Path], url: str | None, speed: float | None, as_json: bool
) -> int:
    config = configure.load_config(options)
    found = [recording for path in paths for recording in read_recordings(path)]
    if not found:
        raise ConfigError(f"no recording in {', '.join(map(str, paths))}")
    recordings = [recording for recording in found if not changes_memory(recording)]
    if n := len(found) - len(recordings):
        click.echo(f"{n} requests that change the memory are left out: replay never repeats them.", err=True)

    async def play_all() -> list[ReplayResult]:
        if url is not None:
            address = find_address(config, url, tuple(options.get("api_keys") or ()))
            async with connect(address.url, address.key) as client:
                return await all_played(client, recordings, speed=speed, as_json=as_json)
        from shepherd.app.app import App

        app = App(config)
        try:
            with progress_shown(PipeView().screen) as show_progress:
                await app.load(show_progress)
            async with listening(app) as (own, key), connect(own, key) as client:
                return await all_played(client, recordings, speed=speed, as_json=as_json)
        finally:
            await app.aclose()

    answers = signals.run(play_all(), stopped="the replay was stopped before its last request had an answer")
    if as_json:
        render.write(json.dumps({"summary": summary(answers)}) + "\n")
    else:
        show(answers)
    return int(any(answer.is_different for answer in answers))


# -- what is played ----------------------------------------------------------------------------------------------------


def read_recordings(path: Path) -> list[Recording]:
    """The requests in a recording, a folder of recordings, a debug folder, or a folder of those, in order.

    Raises: `ConfigError`.
    """
    if path.is_dir():
        if (path / BODY).is_file():
            return [from_debug_files(path)]
        if folders := sorted(file.parent for file in path.glob(f"*/{BODY}")):
            return [replace(from_debug_files(folder), n=n) for n, folder in enumerate(folders, 1)]
    return read(path)


def changes_memory(recording: Recording) -> bool:
    """Whether the request stores, changes or deletes what the memory holds."""
    path = recording.path.partition("?")[0].rstrip("/")
    return path.startswith("/v1/memory/") and recording.method != "GET" and not path.endswith("/search")


def from_debug_files(folder: Path) -> Recording:
    """The request of these debug files, with the text of its answer. Raises: `ConfigError`."""
    body = in_file(folder / BODY)
    answer, request = (in_file(folder / name) if (folder / name).is_file() else None for name in (ANSWER, REQUEST))
    events = answer if isinstance(answer, list) else [answer]
    reply = ReplySummary()
    for event in events:
        reply.feed(event)
    sent = request if isinstance(request, dict) else {}
    path, method = sent.get("endpoint"), sent.get("method")
    recorded: dict[str, Any] = {"text": reply.text}
    if reply.prompt is not None:
        recorded["usage"] = {"prompt": reply.prompt, "cache_read": reply.cached, "output": reply.output}
    if isinstance(answer, dict) and isinstance(answer.get("status"), int):
        recorded["status"] = answer["status"]  # the request failed
    elif answer is not None:
        recorded["failed"] = reply.failed
    first = next((event for event in events if isinstance(event, dict)), {})
    return Recording(str(path or path_of(body, first)), body, method=str(method or "POST"), answer=recorded)


def in_file(path: Path) -> Any:
    """The JSON in a file, or else its text. Raises: `ConfigError`."""
    try:
        return as_value(read_within(path, MOST_DOCUMENT_BYTES).decode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def as_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def path_of(body: Any, answer: Mapping[str, Any]) -> str:
    """The path to which such a body was sent, by its shape and that of the first event of its answer."""
    body = body if isinstance(body, dict) else {}
    return next((path for is_so, path in PATHS if is_so(body, answer)), "/v1/chat/completions")


# -- playing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplayResult:
    recording: Recording
    status: int
    reply: ReplySummary
    first_ms: float | None
    """From the request to the first text of a stream."""
    ms: float

    @property
    def prefilled(self) -> int | None:
        """Prompt tokens that were computed."""
        return None if self.reply.prompt is None else self.reply.prompt - (self.reply.cached or 0)

    @property
    def is_different(self) -> bool:
        """Whether it ended in another way than recorded; without a recorded end, whether it failed."""
        before = self.recording.answer
        if isinstance(before.get("status"), int) and before["status"]:
            return bool(before["status"] != self.status)
        return self.reply.failed != bool(before.get("failed"))

    @property
    def differences(self) -> list[str]:
        """What differs from the recording, a phrase each."""
        before = self.recording.answer
        usage = before.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        pairs = (
            ("status", before.get("status"), self.status),
            ("prompt", usage.get("prompt"), self.reply.prompt),
            ("cached", usage.get("cache_read"), self.reply.cached),
            ("out", usage.get("output"), self.reply.output),
        )
        changed = [f"{name} {old} → {new}" for name, old, new in pairs if None not in (old, new) and old != new]
        return [*changed, "text"] if self.diff else changed

    @property
    def diff(self) -> str:
        """How the text differs from the recorded one; empty where it does not, or none was recorded."""
        old = self.recording.answer.get("text")
        if not isinstance(old, str) or old == self.reply.text:
            return ""
        lines = difflib.unified_diff(old.splitlines(), self.reply.text.splitlines(), "recorded", "now", lineterm="")
        return "\n".join(lines) or "(only line ends differ)"

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.recording.n,
            "path": self.recording.path,
            "status": self.status,
            "prompt": self.reply.prompt,
            "cached": self.reply.cached,
            "prefilled": self.prefilled,
            "output": self.reply.output,
            "first_ms": self.first_ms,
            "ms": self.ms,
            "differences": self.differences,
            **({"diff": self.diff} if self.diff else {}),
            **({"error": self.reply.text} if self.reply.failed else {}),
        }


def connect(url: str, key: str | None = None) -> httpx2.AsyncClient:
    headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {key}"} if key else {})
    trusted = system_trust(url)
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False, verify=trusted)


async def play(client: httpx2.AsyncClient, recording: Recording) -> ReplayResult:
    """Send one request unchanged, except for keys and headers of the connection, and read its whole answer.

    Raises: `Unreachable`, `TimedOut`.
    """
    body = recording.body
    if isinstance(body, dict) and body.get("stream") and recording.path.partition("?")[0].endswith("/completions"):
        body = {**body, "stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
    content = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    headers = {
        name: value
        for name, value in recording.headers.items()
        if name.lower() not in OWN_HEADERS and not is_secret_name(name)
    }
    begun = time.perf_counter()
    reply, first_ms = ReplySummary(), None
    try:
        async with client.stream(
            recording.method,
            recording.path,
            content=content.encode("utf-8", "replace") if recording.method != "GET" else None,
            headers={"content-type": "application/json"} | headers,
        ) as answer:
            async for event in events(answer):
                reply.feed(event)
                if reply.text and first_ms is None:
                    first_ms = round((time.perf_counter() - begun) * 1e3, 1)
    except httpx2.TransportError as error:
        raise transport_error(error, str(client.base_url).rstrip("/"), TIMEOUT_S) from error
    except RecordTooLong as error:
        raise BadReply(
            f"an answer of {client.base_url.host} is too long: {error}", backend=client.base_url.host
        ) from error
    ms = round((time.perf_counter() - begun) * 1e3, 1)
    reply.failed |= answer.status_code >= 400
    return ReplayResult(recording, answer.status_code, reply, None if reply.failed else first_ms, ms)


async def events(answer: httpx2.Response) -> AsyncIterator[Any]:
    """The JSON values of an answer as they come: each event of a stream, each line, or the whole body."""
    readers: dict[str, type[EventReader | NdjsonReader]] = {
        "text/event-stream": EventReader,
        "application/x-ndjson": NdjsonReader,
    }
    made = readers.get(answer.headers.get("content-type", "").partition(";")[0])
    pieces = _within(answer)
    if made is None:
        yield as_value(b"".join([piece async for piece in pieces]).decode("utf-8", "replace"))
        return
    reader = made()
    async for piece in pieces:
        for _, record in reader.feed(piece):
            yield as_value(record.decode("utf-8", "replace"))
    for _, record in reader.close():
        yield as_value(record.decode("utf-8", "replace"))


async def _within(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """The pieces of an answer. Raises: `BadReply` behind `MOST_DOCUMENT_BYTES`."""
    n_bytes = 0
    async for piece in answer.aiter_raw():
        n_bytes += len(piece)
        if n_bytes > MOST_DOCUMENT_BYTES:
            host = answer.url.host
            raise BadReply(f"an answer of {host} has more than {MOST_DOCUMENT_BYTES:,} bytes", backend=host)
        yield piece


async def all_played(
    client: httpx2.AsyncClient, recordings: Sequence[Recording], *, speed: float | None, as_json: bool
) -> list[ReplayResult]:
    """Play all recordings, one after the other. `speed`: the factor by which the recorded pauses are shortened."""
    answers: list[ReplayResult] = []
    begun = time.perf_counter()
    times = [float(recording.answer.get("begun_s") or 0) for recording in recordings]
    for recording, at in zip(recordings, times, strict=True):
        if speed:
            await asyncio.sleep(max(0.0, (at - times[0]) / speed - (time.perf_counter() - begun)))
        answers.append(await play(client, recording))
        if as_json:
            render.write(json_text(answers[-1].as_json()) + "\n")
    return answers


@asynccontextmanager
async def listening(service: Service, *, observe: Sequence[ObserverFactory] = ()) -> AsyncIterator[tuple[str, str]]:
    """The address and the key of a server for a loaded `App`, on a free port of this machine."""
    from shepherd.server.app import create_app
    from shepherd.server.http.listen import stops

    key = secrets.token_urlsafe(24)
    asgi = create_app(service, api_keys=[key], observe=observe)
    handlers = {number: signal.getsignal(number) for number in stops()}
    async with running(asgi, host="127.0.0.1", port=0) as (server, port):
        if port is None:
            await server
        for number, handler in handlers.items():
            signal.signal(number, handler)  # the server has taken the signals: they would end only the server
        yield f"http://127.0.0.1:{port}", key


# -- showing -----------------------------------------------------------------------------------------------------------


def summary(answers: Sequence[ReplayResult]) -> dict[str, Any]:
    prompt = sum(answer.reply.prompt or 0 for answer in answers)
    prefilled = sum(answer.prefilled or 0 for answer in answers)
    return {
        "requests": len(answers),
        "failed": sum(answer.reply.failed for answer in answers),
        "different": sum(answer.is_different for answer in answers),
        "prompt": prompt,
        "prefilled": prefilled,
        "prefill_ratio": round(prefilled / prompt, 4) if prompt else None,
    }


def show(answers: Sequence[ReplayResult]) -> None:
    render.console().print(picture(answers))
    for answer in answers:
        if answer.diff:
            render.show(f"\n{answer.recording.n}:\n{answer.diff}")
    counts = summary(answers)
    ratio = "-" if counts["prefill_ratio"] is None else f"{counts['prefill_ratio']:.1%}"
    render.show(
        f"{counts['requests']} requests, {counts['failed']} failed, {counts['different']} not as recorded; "
        f"{counts['prefilled']:,} of {counts['prompt']:,} prompt tokens were prefilled ({ratio})"
    )


def picture(answers: Sequence[ReplayResult]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("n", "path", "status", "prompt", "cached", "new", "out", "first ms", "ms", "now"):
        table.add_column(name, justify="left" if name in {"path", "now"} else "right")
    for answer in answers:
        reply = answer.reply
        figures = [reply.prompt, reply.cached, answer.prefilled, reply.output, answer.first_ms, answer.ms]
        note = ", ".join(answer.differences) or ("as recorded" if answer.recording.answer else "")
        note = reply.text.strip().partition("\n")[0][:100] if reply.failed and not answer.recording.answer else note
        table.add_row(
            str(answer.recording.n),
            Text(answer.recording.path),
            str(answer.status),
            *("-" if value is None else f"{value:,.0f}" for value in figures),
            Text(note),
            style="red" if answer.is_different else None,
        )
    return table
