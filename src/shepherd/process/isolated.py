"""Pure work on hostile input, in a child process that is killed at a deadline.

A regular expression of Python may never end, holds the interpreter's lock, and cannot be interrupted; deep input can
exhaust a stack. The child applies a model's patterns (JSONPath, JSON Schema) and reads foreign pages, for a fraction
of a second per call.

    run_isolated("package.module:function", payload) ─JSON─▶ child: function(payload) ─JSON─▶ result or `WorkFailed`

Not here: programs that the model wants to run (`tools/builtin/shell.py`).
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from shepherd.core import ShepherdError

DEADLINE_S = 3.0
"""Of processor time, where the system can measure it, so that a busy machine stops nothing that a free one allows."""
WALL = 20
"""The limit of the time by the clock, in deadlines."""
MOST_MEMORY_BYTES = 2 * 2**30
"""Of the child's address space, where the system can limit it."""
IS_MEASURED = hasattr(signal, "setitimer")
"""Whether the system can end a process that has used up its time (not on Windows)."""
ROOT = str(Path(__file__).resolve().parents[2])
CHILD = f"import sys; sys.path.append({ROOT!r}); from shepherd.process.isolated import serve; serve()"


class WorkFailed(ShepherdError):
    """The work failed or took too much; one sentence that says what to do instead."""


def run_isolated(work: str, payload: Any, *, deadline_s: float = DEADLINE_S) -> Any:
    """The result of the function `work` ("package.module:name") for `payload`; both are JSON. Blocks: call it in a
    thread. `deadline_s`: of processor time.

    Raises: `WorkFailed`, with the words of the function's own `ShepherdError`, or
    for input that is too much.
    """
    too_long = WorkFailed(f"this took longer than {deadline_s:g} s and was stopped; ask for less")
    try:
        # -I: neither the working folder nor the environment can slip in other modules.
        child = subprocess.run(
            [sys.executable, "-I", "-c", CHILD],
            input=json.dumps({"work": work, "payload": payload, "deadline_s": deadline_s}).encode(),
            capture_output=True,
            timeout=deadline_s * (WALL if IS_MEASURED else 1),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise too_long from error
    if IS_MEASURED and child.returncode in (-signal.SIGPROF, -signal.SIGXCPU):
        raise too_long
    try:
        answer = json.loads(child.stdout)
    except ValueError as error:
        raise WorkFailed(f"this is too much for one call (status {child.returncode}); send less") from error
    if "error" in answer:
        raise WorkFailed(answer["error"])
    return answer["value"]


def serve() -> None:
    """The child: one piece of work from standard input, its result to standard output."""
    task = json.load(sys.stdin)
    limit(task["deadline_s"])
    module, _, name = task["work"].partition(":")
    try:
        answer = {"value": getattr(importlib.import_module(module), name)(task["payload"])}
    except ShepherdError as error:
        answer = {"error": error.message}
    except RecursionError:
        answer = {"error": "this is nested too deeply; split it"}
    except MemoryError:
        answer = {"error": "this needs too much memory; send less"}
    except Exception as error:  # the wall of this process: foreign code on foreign input
        answer = {"error": f"this cannot be done: {type(error).__name__}: {str(error)[:300]}"}
    sys.stdout.write(json.dumps(answer))


def limit(deadline_s: float) -> None:
    """Let the system end this process, even if its parent is gone."""
    if IS_MEASURED:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:
        return
    seconds = int(deadline_s) + 1
    for what, most in (
        (resource.RLIMIT_AS, MOST_MEMORY_BYTES), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)
    ):  # fmt: skip
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):  # a lower one is in force, or the system has none
            continue
