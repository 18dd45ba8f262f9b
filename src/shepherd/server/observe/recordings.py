"""Recordings: what clients sent, one JSON file per request, in order, for `shepherd replay`.

    <folder>/001.json   {"n": 1, "method": "POST", "path": "/v1/messages?beta=true", "headers": {...}, "body": {...},
                         "answer": {"status": 200, "usage": {...}, "begun_s": 0.0, "first_ms": 41.0, "ms": 812.5}}

A recording holds prompts, word for word, but no key: headers with a key are left out, and the key is masked wherever
else it stands. Only the owner of the process can read it. It does not contain the answer, only its status and cost.

`Recorder` writes them (`shepherd serve --record`), `read` reads them; `cli.replay` plays them.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.types import Scope

from shepherd.core import ConfigError
from shepherd.core.dataclasses import asdict, dataclass, field
from shepherd.process.files import MOST_DOCUMENT_BYTES, read_within
from shepherd.server.observe.file_writer import MAX_WAITING_BYTES, FileWriter, write_private
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record
from shepherd.server.observe.secrets import find_keys, is_secret_name, mask_fields, mask_keys, masked_target

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recording:
    """One request as a client sent it."""

    path: str
    """With its query."""
    body: Any
    """JSON; a text if it was not JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    n: int = 1
    method: str = "POST"
    answer: Mapping[str, Any] = field(default_factory=dict)
    """Status, usage and times; empty if not known."""


def read(path: Path) -> list[Recording]:
    """The recordings in a file, or in a folder in the order in which they came.

    Raises: `ConfigError` that names the file that is none.
    """
    if not path.exists():
        raise ConfigError(f"there is no recording at {path}")
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return sorted(map(_read_one, files), key=lambda recording: recording.n)


def _read_one(path: Path) -> Recording:
    """The recording in a file. Raises: `ConfigError` when it holds none."""
    try:
        found = json.loads(read_within(path, MOST_DOCUMENT_BYTES))
        return Recording(
            path=str(found["path"]),
            body=found["body"],
            headers={str(name): str(value) for name, value in (found.get("headers") or {}).items()},
            n=int(found.get("n") or 1),
            method=str(found.get("method") or "POST"),
            answer=dict(found.get("answer") or {}),
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a recording: it must be a JSON object with path, headers and body ({type(error).__name__})"
        ) from error


class Recorder:
    """Writes a folder of recordings, and continues the numbers of an earlier run. `observe` on the event loop, `close`
    on any thread; one thread writes the files, in order."""

    def __init__(self, folder: Path, *, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        """Raises: `ConfigError` when nothing can be written there."""
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._n = max((int(file.stem) for file in folder.glob("*.json") if file.stem.isdecimal()), default=0)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(None, "it cannot be written to")
        except OSError as error:
            raise ConfigError(
                f"requests cannot be recorded in {folder}: {error.strerror or error}", key="server.record_dir"
            ) from error
        self._begun_s = time.perf_counter()
        self._writer = FileWriter("recordings", folder, max_waiting_bytes)

    @property
    def warning(self) -> str:
        return f"every request is recorded in {self.folder}: every word that clients send is written there"

    def observe(self, record: Record) -> Observer:
        return _RecordingObserver(self)

    def close(self) -> None:
        """Wait until everything is written. What comes later is dropped."""
        self._writer.close()

    def take(self, scope: Scope, body: bytes) -> Callable[[Record], None]:
        """Number a request that has come; the function writes it, soon after its end."""
        self._n += 1
        n = self._n

        def write(record: Record) -> None:
            usage, begun_s = record.usage, record.begun_s
            answer: dict[str, Any] = {"status": record.status, "begun_s": round(begun_s - self._begun_s, 3)}
            if record.started:
                answer["usage"] = {**asdict(usage), "prompt": usage.prompt}
            if record.first_s is not None:
                answer["first_ms"] = round((record.first_s - begun_s) * 1e3, 1)
            answer["ms"] = round((time.perf_counter() - begun_s) * 1e3, 1)
            path, is_checked = self.folder / f"{n:03}.json", bool(record.key)
            self._writer.submit(
                len(body), lambda: write_private(path, encode_recording(n, scope, body, answer, is_checked=is_checked))
            )

        return write


class _RecordingObserver(Observer):
    """Holds one request until it has been answered."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._write: Callable[[Record], None] | None = None

    def receive(self, scope: Scope, body: bytes) -> None:
        self._write = self._recorder.take(scope, body)

    def close(self, record: Record) -> None:
        if self._write is not None:
            self._write(record)


def encode_recording(
    n: int, scope: Scope, body: bytes, answer: Mapping[str, Any], *, is_checked: bool = False
) -> bytes:
    """The bytes of a recording, without secrets. `is_checked`: the request's key has opened this server."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    masked = mask_fields(body)
    try:
        content = json.loads(masked)
    except (ValueError, RecursionError):
        content = masked.decode("utf-8", "replace")
    recording = {
        "n": n,
        "method": scope["method"],
        "path": masked_target(scope),
        "headers": {name: value for name, value in headers.items() if not is_secret_name(name)},
        "body": content,
        "answer": answer,
    }
    text = json.dumps(recording, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    return mask_keys(text, find_keys(scope, is_checked=is_checked)) + b"\n"
