"""Recordings: what clients really sent, one JSON file per request in the order they came, to be played again.

    <folder>/001.json   {"n": 1, "method": "POST", "path": "/v1/messages?beta=true", "headers": {...}, "body": {...},
                         "answer": {"status": 200, "usage": {...}, "begun_s": 0.0, "first_ms": 41.0, "ms": 812.5}}

A recording holds prompts, word for word, but no key: headers that carry one are left out, and it is blotted out
wherever else it stands. Only the owner of the process can read it. What was answered is not in it, only what it cost.

`Recorder` writes them (`shepherd serve --record`), `read` reads them; `cli.replay` plays them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import Scope

from shepherd.core import ConfigError
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record

logger = logging.getLogger(__name__)

SECRET = re.compile(r"auth|cookie|credential|password|secret|(^|[-_])(key|token)s?$", re.IGNORECASE)
"""Names of headers and fields whose values are never written."""
BLOT = "[not written]"
SHORTEST_SECRET = 8
"""Shorter keys, such as `none`, stand in ordinary words."""
MAX_WAITING_BYTES = 256 * 2**20
"""What may wait for a slow disk before requests go unwritten."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One request as a client sent it."""

    path: str
    """With its query."""
    body: Any
    """JSON; a text where it was none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    n: int = 1
    method: str = "POST"
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What came of it; empty where that is not known."""


def read(path: Path) -> list[Recording]:
    """The recordings in a file, or in a folder in the order in which they came.

    Raises: `ConfigError` that says which file is none.
    """
    if not path.exists():
        raise ConfigError(f"there is no recording at {path}")
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return sorted(map(read_one, files), key=lambda recording: recording.n)


def read_one(path: Path) -> Recording:
    """The recording in a file. Raises: `ConfigError` when it holds none."""
    try:
        told = json.loads(path.read_bytes())
        return Recording(
            path=str(told["path"]),
            body=told["body"],
            headers={str(name): str(value) for name, value in (told.get("headers") or {}).items()},
            n=int(told.get("n") or 1),
            method=str(told.get("method") or "POST"),
            answer=dict(told.get("answer") or {}),
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no recording: it must be a JSON object with path, headers and body ({type(error).__name__})"
        ) from error


class Recorder:
    """Writes a folder of recordings; goes on where an earlier run has stopped. `observe` on the event loop, `close` on
    any thread; files are written in one thread, in order."""

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
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "recorder")

    @property
    def warning(self) -> str:
        """What whoever starts a server that records must know."""
        return f"every request is recorded in {self.folder}: all that clients say is written there, word for word"

    def observe(self, record: Record) -> Observer:
        """Who looks on at a request that has just come: for `create_app(observe=...)`."""
        return _Recording(self)

    def close(self) -> None:
        """Wait until all is written. The recorder cannot be used again."""
        self._writer.shutdown()

    def next_number(self) -> int:
        """The number of a request that has just come."""
        self._n += 1
        return self._n

    def take(self, n: int, scope: Scope, body: bytes, record: Record) -> None:
        """Have a request written that has ended."""
        usage, begun_s = record.usage, record.begun_s
        answer: dict[str, Any] = {"status": record.status, "begun_s": round(begun_s - self._begun_s, 3)}
        if record.started:
            answer["usage"] = {**asdict(usage), "prompt": usage.prompt}
        if record.first_s is not None:
            answer["first_ms"] = round((record.first_s - begun_s) * 1e3, 1)
        answer["ms"] = round((time.perf_counter() - begun_s) * 1e3, 1)
        with self._lock:
            fits = self._waiting_bytes + len(body) <= self._max_waiting_bytes
            self._waiting_bytes += len(body) * fits
        if fits:
            self._writer.submit(self._write, n, scope, body, answer)
        else:
            logger.warning("request %d was not recorded: %s is too slow", n, self.folder)

    def _write(self, n: int, scope: Scope, body: bytes, answer: Mapping[str, Any]) -> None:
        try:
            content = written(n, scope, body, answer)
            path = self.folder / f"{n:03}.json"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
        except OSError as error:
            logger.warning("request %d was not recorded in %s: %s", n, self.folder, error.strerror or error)
        except Exception:  # nobody asks for this future's result
            logger.exception("request %d was not recorded", n)
        finally:
            with self._lock:
                self._waiting_bytes -= len(body)


class _Recording(Observer):
    """Keeps one request until it has been answered."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._received: tuple[int, Scope, bytes] | None = None

    def receive(self, scope: Scope, body: bytes) -> None:
        self._received = self._recorder.next_number(), scope, body

    def close(self, record: Record) -> None:
        if self._received is not None:
            self._recorder.take(*self._received, record)


def written(n: int, scope: Scope, body: bytes, answer: Mapping[str, Any]) -> bytes:
    """The bytes of a recording."""
    query = scope.get("query_string", b"").decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    text = body.decode("utf-8", "replace")
    try:
        said = without_secrets(json.loads(text))
    except (ValueError, RecursionError):
        said = text
    recording = {
        "n": n,
        "method": scope["method"],
        "path": scope["path"] + (f"?{query}" if query else ""),
        "headers": {name: value for name, value in headers.items() if not SECRET.search(name)},
        "body": said,
        "answer": answer,
    }
    told = json.dumps(recording, ensure_ascii=False, indent=1)
    for name, value in headers.items():
        secret = value.strip().rpartition(" ")[2]
        if SECRET.search(name) and len(secret) >= SHORTEST_SECRET:
            told = told.replace(json.dumps(secret, ensure_ascii=False)[1:-1], BLOT)
    return told.encode("utf-8", "replace") + b"\n"


def without_secrets(value: Any) -> Any:
    """JSON with the text of every field that is named like a secret blotted out; keys of caches are none."""
    match value:
        case dict():
            return {
                name: BLOT if isinstance(inner, str) and is_secret(name) else without_secrets(inner)
                for name, inner in value.items()
            }
        case list():
            return [without_secrets(inner) for inner in value]
        case _:
            return value


def is_secret(name: str) -> bool:
    """Whether a field of a body holds a secret. Schemas of tools describe such fields, and describe them in objects."""
    return name != "prompt_cache_key" and SECRET.search(name) is not None
