"""The four files of a request under `--debug`: the client's body, what the model got and wrote, the answer.

    <folder>/20261122_101112_131415_main/
        1_req_client_raw.json           the body, byte for byte
        2_req_model.json                the decoded request, and the prompt as the model reads it
        3_res_model_raw.txt             what the model wrote, before it is parsed
        4_res_client_transformed.json   what the client got: the list of a stream's events, or the whole body

Every request that passes authentication leaves one folder with exactly these files; a file without content states the
reason. Headers are never written, and secrets are masked (`secrets`).

`DebugObserver` collects the parts of a request (on the event loop, no I/O); `DebugFolder` writes them (`file_writer`).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.types import Scope

from shepherd.core import Audio, Event, Image, Part, ReasoningDelta, TextDelta, Traced
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.server.observe.file_writer import MAX_WAITING_BYTES, FileWriter, write_private
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record
from shepherd.server.observe.secrets import find_keys, mask_fields, mask_keys, masked_target
from shepherd.wire.base import Decoded

logger = logging.getLogger("shepherd.server")

FILES = ("1_req_client_raw.json", "2_req_model.json", "3_res_model_raw.txt", "4_res_client_transformed.json")

KEEP = 200
"""Requests: those of one user in an afternoon."""
MAX_BYTES = 2**30
_OURS = re.compile(r"\d{8}_\d{6}_\d{6}_[\w.-]+")


class DebugFolder:
    """The folder that holds a folder for each request: the newest `keep` of them, at most `max_bytes` in all."""

    def __init__(
        self, folder: Path, *, keep: int = KEEP, max_bytes: int = MAX_BYTES, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        """Makes nothing before the first request. Folders of earlier runs count, and are removed first."""
        self._folder = folder
        self._keep = keep
        self._max_bytes = max_bytes
        self._writer = FileWriter("debug files", folder, max_waiting_bytes)
        self._known: deque[tuple[str, int]] | None = None
        """Names and sizes of our folders, the oldest first; only the writer's thread uses it."""

    def observe(self, record: Record) -> DebugObserver:
        return DebugObserver(self)

    def write(self, moment: datetime, cache: str, n_bytes: int, contents: Callable[[], tuple[bytes, ...]]) -> None:
        """Write the files of one request soon; any thread.

        `n_bytes`: about what `contents` holds in memory. It makes the contents, in the order of `FILES`, on the
        writer's thread: long prompts take long to encode.
        """
        self._writer.submit(n_bytes, lambda: self._write(moment, cache, contents()))

    def close(self) -> None:
        """Wait until everything is written. What comes later is dropped."""
        self._writer.close()

    # -- the writer's thread -------------------------------------------------------------------------------------------

    def _write(self, moment: datetime, cache: str, contents: tuple[bytes, ...]) -> None:
        """Write one folder, and remove the oldest until the limits are kept; the newest stays, however large it is."""
        if self._known is None:
            self._known = deque(sorted(self._find())) if self._folder.is_dir() else deque()
        known = self._known
        known.append((self._put(moment, cache, contents), sum(map(len, contents))))
        n_bytes = sum(size for _, size in known)
        while len(known) > 1 and (len(known) > self._keep or n_bytes > self._max_bytes):
            name, size = known.popleft()
            n_bytes -= size
            path = self._folder / name
            for file in FILES:
                (path / file).unlink(missing_ok=True)
            try:
                path.rmdir()
            except OSError as error:  # the files of other programs are not ours to remove
                logger.debug("%s stays: %s", path, error)

    def _find(self) -> Iterator[tuple[str, int]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and _OURS.fullmatch(entry.name):
                    yield entry.name, sum(_size(Path(entry.path, name)) for name in FILES)

    def _put(self, moment: datetime, cache: str, contents: tuple[bytes, ...]) -> str:
        """Write one folder; its name. Raises: `OSError`, and leaves nothing of the folder then."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            path = self._folder / f"{moment:%Y%m%d_%H%M%S_%f}_{_plain_name(cache)}"
            try:
                path.mkdir(mode=0o700)
                break
            except FileExistsError:  # two requests in the same microsecond
                moment += timedelta(microseconds=1)
        try:
            for name, content in zip(FILES, contents, strict=True):
                write_private(path / name, content)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return path.name


class DebugObserver(Observer):
    wants_trace = True

    def __init__(self, folder: DebugFolder) -> None:
        self._folder = folder
        self._moment = datetime.now()  # local time, as the logs of other programs on this machine have it
        self._body: bytes | None = None
        self._scope: Scope = {"headers": ()}
        self._decoded: Decoded[Any] | None = None
        self._choices: defaultdict[int, _Choice] = defaultdict(_Choice)
        self._sent: list[bytes] = []

    def receive(self, scope: Scope, body: bytes) -> None:
        self._scope, self._body = scope, body

    def decode(self, decoded: Decoded[Any]) -> None:
        self._decoded = decoded

    def see(self, event: Event, choice: int) -> None:
        match event:
            case Traced(stage, text):
                seen = self._choices[choice]
                (seen.prompt if stage == "prompt" else seen.output).append(text)
            case TextDelta() | ReasoningDelta():
                self._choices[choice].answered = True
            case _:
                pass

    def send(self, fragment: bytes) -> None:
        self._sent.append(fragment)

    def close(self, record: Record) -> None:
        n_bytes = 3 * len(self._body or b"") + sum(map(len, self._sent))
        cache = record.cache or record.backend
        self._folder.write(self._moment, cache, n_bytes, lambda: self._contents(record))

    def _contents(self, record: Record) -> tuple[bytes, ...]:
        contents = (
            _why_none(record) if self._body is None else mask_fields(self._body),
            self._model_request(record),
            self._output(record),
            self._answer(record),
        )
        keys = find_keys(self._scope, is_checked=bool(record.key))
        return tuple(mask_keys(content, keys) for content in contents)

    def _model_request(self, record: Record) -> bytes:
        endpoint = "" if self._body is None else masked_target(self._scope)
        if self._decoded is None:
            return _why_none(record, {"method": self._scope["method"], "endpoint": endpoint} if endpoint else {})
        prompts = ["".join(self._choices[at].prompt) or None for at in range(record.n_choices)]
        # Of each request the fields that are set; the model and the messages always.
        first, *others = (
            {"model": request.model, "messages": [], **_plain(replace(request, trace=False, native=None))}
            for request in self._decoded.requests
        )
        shown = {"endpoint": endpoint, **first, "stream": self._decoded.stream, "prompt": prompts[0]}
        if others:
            shown["other_choices"] = [
                {**{name: value for name, value in request.items() if first.get(name) != value}, "prompt": prompt}
                for request, prompt in zip(others, prompts[1:], strict=True)
            ]
        return _json(shown)

    def _output(self, record: Record) -> bytes:
        outputs = ["".join(self._choices[at].output) for at in range(record.n_choices)]
        if not any(outputs):
            if any(seen.answered for seen in self._choices.values()):
                return b"[this back end does not report what its model wrote; the answer is in the fourth file]\n"
            return b"" if record.finished else f"[nothing: {_reason(record)}]\n".encode()
        titled = (f"=== choice {at} ===\n{text}\n" for at, text in enumerate(outputs))
        return (outputs[0] if len(outputs) == 1 else "".join(titled)).encode("utf-8", "replace")

    def _answer(self, record: Record) -> bytes:
        is_stream = self._decoded is not None and self._decoded.stream and record.status == 200
        if is_stream:
            return _json([event for fragment in self._sent for event in _events(fragment)])
        return b"".join(self._sent) or _why_none(record)


@dataclass(slots=True)
class _Choice:
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
        data = [line[5:].removeprefix(" ") for line in record.split("\n") if line.startswith("data:")]
        if data:
            found.append(_value("\n".join(data)))
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # `[DONE]`
        return text


def _plain(value: Any) -> Any:
    """A value of the vocabulary as JSON; fields that have their default are left out."""
    match value:
        case Image(data=bytes() as content) | Audio(data=content):
            return {
                "type": "audio" if isinstance(value, Audio) else "image",
                "media_type": value.media_type,
                "n_bytes": len(content),
            }
        case bytes():
            return value.decode("utf-8", "replace")
        case Mapping():
            return {str(name): _plain(child) for name, child in value.items()}
        case list() | tuple():
            return [_plain(child) for child in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            values = {
                each.name: _plain(child)
                for each in dataclasses.fields(value)
                if each.init
                and (child := getattr(value, each.name))
                != (each.default if each.default_factory is dataclasses.MISSING else each.default_factory())
            }
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(value).__name__).lower()
            return {"type": kind, **values} if isinstance(value, Part) else values
        case None | bool() | int() | float() | str():
            return value
        case _:
            return repr(value)


def _why_none(record: Record, request: Mapping[str, Any] = {}) -> bytes:
    return _json({"nothing": _reason(record), "status": record.status, **request})


def _reason(record: Record) -> str:
    is_query = record.status == 200 and not record.started
    return "this question is answered without generating" if is_query else record.reason


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _plain_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:64].strip("._-") or "none"


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
