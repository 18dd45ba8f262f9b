"""A function of ours in a child process, with limits of time and memory: work on hostile input, and of a library that
may abort.

    command("package.module:function") ─▶ child.run(…, task=payload) ─JSON─▶ child: function(payload) ─JSON─▶ answer
                                                                       bytes                            bytes

A regular expression of Python may never end, holds the interpreter's lock, and cannot be interrupted; deep input can
exhaust a stack. `run_isolated` applies a model's patterns (JSONPath, JSON Schema) and reads foreign pages, for a
fraction of a second per call. `convert_isolated` is the same for bytes, such as files of images. Models are tried with
`command` alone (`engine/llamacpp/trial.py`).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shepherd.core import ShepherdError
from shepherd.process import child

DEADLINE_S = 3.0
"""Of processor time, where the system can measure it, so that a busy machine stops nothing that a free one allows."""
WALL = 20
"""The limit of the time by the clock, in deadlines."""
MOST_MEMORY_BYTES = 2 * 2**30
"""Of the child, where the system can limit it."""
IS_MEASURED = hasattr(signal, "setitimer")
"""Whether the system can end a process that has used up its time (not on Windows)."""
ROOT = str(Path(__file__).resolve().parents[2])
CHILD = f"import sys; sys.path.append({ROOT!r}); from shepherd.process.isolated import serve; serve()"


class WorkFailed(ShepherdError):
    """The work failed or took too much; one sentence that says what to do instead."""


class TooMuch(WorkFailed):
    """The work took more time or memory than it may."""


def run_isolated(work: str, payload: Any, *, deadline_s: float = DEADLINE_S) -> Any:
    """The result of the function `work` ("package.module:name") for `payload`; both are JSON. Blocks: call it in a
    thread. `deadline_s`: of processor time.

    Raises: `WorkFailed`, with the words of the function's own `ShepherdError`, or for input that is too much.
    """
    return json.loads(_run(work, line(payload), -1, deadline_s, lambda: True))["value"]


def convert_isolated(
    work: str, content: bytes, *, deadline_s: float = DEADLINE_S, is_wanted: Callable[[], bool] = lambda: True
) -> bytes:
    """As `run_isolated`, for a function that makes bytes of bytes. Blocks: call it in a thread.

    Raises: `WorkFailed`; `TooMuch`; `child.Cancelled` as soon as `is_wanted` returns False: the child is killed.
    """
    return _run(work, content, len(content), deadline_s, is_wanted).partition(b"\n")[2]


def _run(work: str, task: str | bytes, n_bytes: int, deadline_s: float, is_wanted: Callable[[], bool]) -> bytes:
    """All that a child has written that did its work."""
    ended = child.run(
        command(work, memory_bytes=MOST_MEMORY_BYTES, deadline_s=deadline_s, n_bytes=n_bytes),
        task=task,
        timeout_s=deadline_s * (WALL if IS_MEASURED else 1),
        is_wanted=is_wanted,
    )
    if ended.status == child.HUNG or (IS_MEASURED and ended.status in (-signal.SIGPROF, -signal.SIGXCPU)):
        raise TooMuch(f"this took longer than {deadline_s:g} s and was stopped; ask for less")
    try:
        answer = json.loads(ended.output.partition(b"\n")[0])
    except ValueError as error:
        raise TooMuch(f"this is too much for one call (status {ended.status}); send less") from error
    if "value" not in answer:
        kind = TooMuch if "limit" in answer else WorkFailed
        raise kind(next(iter(answer.values())))
    return ended.output


def line(payload: Any) -> str:
    """What `command` reads from standard input."""
    return json.dumps(payload) + "\n"


def command(work: str, *, memory_bytes: int = 0, deadline_s: float = 0.0, n_bytes: int = -1) -> list[str]:
    """A program that calls a function with a `line` of JSON from standard input, and ends with its parent.

    It writes `{"value": ...}`, `{"error": ...}` with the words of a `ShepherdError`, `{"limit": ...}` where memory or
    its stack ended, or `{"fault": ...}` for any other exception, as a line, and ends with status 1 without a value.
    memory_bytes, deadline_s: see `child.limit_memory`; 0 = none. n_bytes, from 0 on: the function gets so many
    bytes from standard input instead, and the bytes that it returns are written behind the line.
    """
    # -I: neither the working folder nor the environment can slip in other modules.
    limits = (memory_bytes, deadline_s, n_bytes)
    return [sys.executable, "-I", "-c", CHILD, *work.split(":"), *map(str, limits)]


def serve() -> None:
    """The child. What the function prints goes to standard error: standard output holds the answer alone."""
    module, name, memory_bytes, deadline_s, n_bytes = sys.argv[1:]
    source = sys.stdin.buffer
    payload = source.read(int(n_bytes)) if int(n_bytes) >= 0 else json.loads(source.readline())
    child.end_with_parent()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if int(memory_bytes):
        child.limit_memory(int(memory_bytes), float(deadline_s))
    content = b""
    try:
        value = getattr(importlib.import_module(module), name)(payload)
        if isinstance(value, bytes):
            content, value = value, None
        answer = {"value": value}
    except ShepherdError as error:
        answer = {"error": error.message}
    except RecursionError:
        answer = {"limit": "this is nested too deeply; split it"}
    except MemoryError:
        answer = {"limit": "this needs too much memory; send less"}
    except Exception as error:  # the wall of this process: foreign code on foreign input
        traceback.print_exc()
        answer = {"fault": f"this cannot be done: {type(error).__name__}: {str(error)[:300]}"}
    with output:
        output.write(line(answer).encode())
        output.write(content)
    sys.exit("value" not in answer)
