"""The four files of a request under `--debug`: what the client sent, what the model got and wrote, what went back.

    <folder>/20261122_101112_131415_main/
        1_req_client_raw.json           the body, byte for byte
        2_req_model.json                the request in our own words, and the prompt as the model reads it
        3_res_model_raw.txt             what the model wrote, before anything is parsed
        4_res_client_transformed.json   what the client got: the list of a stream's events, or the whole body

Every request that was let in leaves one folder with exactly these, whatever becomes of it; where there is nothing, the
file says why. Only the owner of the process can read them. Headers are never written, nor the key that came in them,
wherever it stands; fields of the body that hold other services' secrets are blotted out.

`DebugFiles` looks on at one request (on the event loop, no I/O); `Folders` writes what it has seen, in one thread, in
order. A disk that is full or slow costs files, never an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.types import Scope

from shepherd.core import Event, Image, Part, ReasoningDelta, Request, TextDelta, Traced
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record
from shepherd.wire.base import Decoded

logger = logging.getLogger("shepherd.server")

FILES = ("1_req_client_raw.json", "2_req_model.json", "3_res_model_raw.txt", "4_res_client_transformed.json")

KEEP = 200
"""Requests: an afternoon of one person's."""
MAX_BYTES = 2**30
MAX_WAITING_BYTES = 256 * 2**20
"""What may wait for a slow disk before requests go unwritten."""

_OURS = re.compile(r"\d{8}_\d{6}_\d{6}_[\w.-]+")

SECRET_FIELDS = (
    "api_key", "apikey", "api-key", "x-api-key", "authorization", "authorization_token", "access_token",
    "refresh_token", "client_secret", "password", "cookie",
)  # fmt: skip
"""Fields of bodies that hold secrets: those of MCP servers, of providers behind a client. Other cases count, too."""

_BLOT = b"[not written]"
# A field inside of a text has its quotes escaped and is not touched: it is what somebody said.
_SECRET = re.compile(
    rb'("(?:%s)"\s*:\s*")(?:[^"\\]|\\.)*"' % b"|".join(name.encode() for name in SECRET_FIELDS), re.IGNORECASE
)
_SECRET_QUERY = re.compile(r"\b((?:api[_-]?)?key=|\w*token=|\w*secret=)[^&]*", re.IGNORECASE)

_SHORTEST_KEY, _SHORTEST_TOKEN = 4, 16
"""Shorter ones stand in ordinary words: of keys that opened this server, and of whatever a client sends to an open one
(`none`, `anything`)."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """All of one request that is to be written."""

    moment: datetime
    cache: str
    n_bytes: int
    """About what it holds in memory."""
    contents: Callable[[], tuple[bytes, ...]]
    """Makes them, in the order of `FILES`; on the writer's thread, for long prompts take long to encode."""


class Folders:
    """The folder that holds the requests' folders: the newest `keep` of them, and no more than `max_bytes`.

    `take` and `close` on any thread; nothing is written on the caller's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = KEEP,
        max_bytes: int = MAX_BYTES,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        """Nothing is made before the first request. What stands in `folder` from earlier runs counts and goes first."""
        self._folder = folder
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._writer = ThreadPoolExecutor(1, "debug-files")
        self._known: deque[tuple[str, int]] | None = None
        """Names and sizes of our folders, the oldest first; only the writer's."""
        self._failing = False

    def observe(self, record: Record) -> DebugFiles:
        """Who looks on at a request that has just come: for `create_app(observe=...)`."""
        return DebugFiles(self)

    def take(self, taken: _Taken) -> None:
        """Have these files written soon; too much at a time is left out, and the log says so."""
        with self._lock:
            fits = self._waiting_bytes + taken.n_bytes <= self._max_waiting_bytes
            self._waiting_bytes += taken.n_bytes * fits
        if fits:
            with contextlib.suppress(RuntimeError):  # closed: a second signal waits for no request
                self._writer.submit(self._write, taken)
        else:
            logger.warning("the debug files of a request were not written: %s is too slow", self._folder)

    def close(self) -> None:
        """Wait until all that was taken is written. What is taken later is left out."""
        self._writer.shutdown()

    # -- the writer's thread -------------------------------------------------------------------------------------------

    def _write(self, taken: _Taken) -> None:
        try:
            contents = taken.contents()
            known = self._find_known()
            known.append((self._put(taken, contents), sum(map(len, contents))))
            self._thin_out(known)
            self._failing = False
        except OSError as error:
            if not self._failing:  # a full disk would fill the log, too
                logger.warning("debug files cannot be written below %s: %s", self._folder, error.strerror or error)
            self._failing = True
        except Exception:  # nobody asks for this future's result
            logger.exception("debug files could not be written")
        finally:
            with self._lock:
                self._waiting_bytes -= taken.n_bytes

    def _put(self, taken: _Taken, contents: tuple[bytes, ...]) -> str:
        """Write one folder; its name. Raises: `OSError`, and nothing of the folder is left then."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        moment = taken.moment
        while True:
            path = self._folder / f"{moment:%Y%m%d_%H%M%S_%f}_{_plain_name(taken.cache)}"
            try:
                path.mkdir(mode=0o700)
                break
            except FileExistsError:  # two requests in the same microsecond
                moment += timedelta(microseconds=1)
        try:
            for name, content in zip(FILES, contents, strict=True):
                with os.fdopen(os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return path.name

    def _find_known(self) -> deque[tuple[str, int]]:
        if self._known is None:
            self._known = deque(sorted(self._look())) if self._folder.is_dir() else deque()
        return self._known

    def _look(self) -> list[tuple[str, int]]:
        with os.scandir(self._folder) as entries:
            ours = [each for each in entries if each.is_dir(follow_symlinks=False) and _OURS.fullmatch(each.name)]
        return [(each.name, sum(_size(Path(each.path, name)) for name in FILES)) for each in ours]

    def _thin_out(self, known: deque[tuple[str, int]]) -> None:
        """Remove the oldest until the limits are kept; the newest stays, whatever its size."""
        n_bytes = sum(size for _, size in known)
        while len(known) > 1 and (len(known) > self._keep or n_bytes > self._max_bytes):
            name, size = known.popleft()
            n_bytes -= size
            path = self._folder / name
            for file in FILES:
                (path / file).unlink(missing_ok=True)
            try:
                path.rmdir()
            except OSError as error:  # what somebody has put there is not ours to remove
                logger.debug("%s stays: %s", path, error)


class DebugFiles(Observer):
    """Keeps what is seen of one request until it has ended."""

    wants_trace = True

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._moment = datetime.now()  # local time, as the logs of other programs on this machine have it
        self._body: bytes | None = None
        self._endpoint = ""
        self._method = ""
        self._secrets: list[bytes] = []
        self._decoded: Decoded[Any] | None = None
        self._choices: dict[int, _Choice] = {}
        self._sent: list[bytes] = []

    def receive(self, scope: Scope, body: bytes) -> None:
        self._body = body
        self._method = scope["method"]
        query = _SECRET_QUERY.sub(r"\1" + _BLOT.decode(), scope["query_string"].decode("latin-1"))
        self._endpoint = scope["path"] + ("?" + query if query else "")
        self._secrets = [
            value.strip().rpartition(b" ")[2]
            for name, value in scope["headers"]
            if name in (b"authorization", b"x-api-key", b"api-key")
        ]

    def decode(self, decoded: Decoded[Any]) -> None:
        self._decoded = decoded

    def see(self, event: Event, choice: int) -> None:
        match event:
            case Traced(stage, text):
                seen = self._choices.setdefault(choice, _Choice())
                (seen.prompt if stage == "prompt" else seen.output).append(text)
            case TextDelta() | ReasoningDelta():
                self._choices.setdefault(choice, _Choice()).answered = True
            case _:
                pass

    def send(self, fragment: bytes) -> None:
        self._sent.append(fragment)

    def close(self, record: Record) -> None:
        n_bytes = 3 * len(self._body or b"") + sum(map(len, self._sent))
        cache = record.cache or record.backend
        self._folders.take(_Taken(self._moment, cache, n_bytes, lambda: self._contents(record)))

    def _contents(self, record: Record) -> tuple[bytes, ...]:
        makers = (self._client_request, self._model_request, self._output, self._answer)
        shortest = _SHORTEST_KEY if record.key else _SHORTEST_TOKEN
        secrets = [key for key in self._secrets if len(key) >= shortest]
        return tuple(_without(make(record), secrets) for make in makers)

    def _client_request(self, record: Record) -> bytes:
        return _why(record) if self._body is None else _SECRET.sub(rb"\g<1>" + _BLOT + b'"', self._body)

    def _model_request(self, record: Record) -> bytes:
        if self._decoded is None:
            return _why(record, {"method": self._method, "endpoint": self._endpoint} if self._endpoint else {})
        seen = [self._choices.get(at, _Choice()) for at in range(record.n_choices)]
        prompts = ["".join(choice.prompt) or None for choice in seen]
        first, *others = self._decoded.requests
        told = {
            "endpoint": self._endpoint,
            **_request(first),
            "stream": self._decoded.stream,
            "prompt": prompts[0],
        }
        if others:
            told["other_choices"] = [
                {**_difference(request, first), "prompt": prompt}
                for request, prompt in zip(others, prompts[1:], strict=True)
            ]
        return _json(told)

    def _output(self, record: Record) -> bytes:
        outputs = ["".join(self._choices.get(at, _Choice()).output) for at in range(record.n_choices)]
        if not any(outputs):
            if any(seen.answered for seen in self._choices.values()):
                return b"[this back end does not tell what its model wrote; the answer is in the fourth file]\n"
            return b"" if record.finished else f"[nothing: {_reason(record)}]\n".encode()
        if len(outputs) == 1:
            return outputs[0].encode("utf-8", "replace")
        titled = (f"=== choice {at} ===\n{text}\n" for at, text in enumerate(outputs))
        return "".join(titled).encode("utf-8", "replace")

    def _answer(self, record: Record) -> bytes:
        is_stream = self._decoded is not None and self._decoded.stream and record.status == 200
        if is_stream:
            return _json([event for fragment in self._sent for event in _events(fragment)])
        return b"".join(self._sent) or _why(record)


@dataclass(slots=True)
class _Choice:
    """What is known of one answer."""

    prompt: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    answered: bool = False


def _events(fragment: bytes) -> list[Any]:
    """The events in a piece of a stream, as JSON where they are: server-sent events, or lines of JSON."""
    text = fragment.decode("utf-8", "replace")
    if not text.startswith(("data:", "event:", ":", "id:", "retry:")):
        return [_value(line) for line in text.splitlines() if line.strip()]
    found = []
    for record in text.split("\n\n"):
        lines = record.split("\n")
        said = [line.removeprefix("data:").removeprefix(" ") for line in lines if line.startswith("data:")]
        if said:
            found.append(_value("\n".join(said)))
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # `[DONE]`
        return text


def _request(request: Request) -> dict[str, Any]:
    """A request as JSON: what is said of it, the model and the messages in any case."""
    told = {"model": request.model, "messages": [], **_plain(request)}
    told.pop("trace", None)  # that it is looked at
    return told


def _difference(request: Request, first: Request) -> dict[str, Any]:
    """What `request` says otherwise."""
    return {name: value for name, value in _request(request).items() if _request(first).get(name) != value}


def _plain(value: Any) -> Any:
    """A value of the vocabulary as JSON; fields that have their default are left out."""
    match value:
        case Image(data=bytes() as content):
            return {"type": "image", "media_type": value.media_type, "n_bytes": len(content)}
        case bytes():
            return value.decode("utf-8", "replace")
        case Mapping():
            return {str(name): _plain(child) for name, child in value.items()}
        case list() | tuple():
            return [_plain(child) for child in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            said = {
                each.name: _plain(child)
                for each in dataclasses.fields(value)
                if (child := getattr(value, each.name)) != _default(each)
            }
            return {"type": _snake(type(value)), **said} if isinstance(value, Part) else said
        case None | bool() | int() | float() | str():
            return value
        case _:
            return repr(value)


def _default(each: dataclasses.Field[Any]) -> Any:
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def _snake(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _why(record: Record, request: Mapping[str, Any] = {}) -> bytes:
    """The content of a file for which there is nothing."""
    return _json({"nothing": _reason(record), "status": record.status, **request})


def _reason(record: Record) -> str:
    is_query = record.status == 200 and not record.started
    return "this question is answered without generating" if is_query else record.reason


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _without(content: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        content = content.replace(secret, _BLOT)
    return content


def _plain_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:64].strip("._-") or "none"


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
