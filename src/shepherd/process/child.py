"""A program in a child process: its folders, its last words and its end; and verdicts about such programs in files.

    run(command) ─▶ Child ─▶ Ended(status, its last words)        keep(file, verdict) ─▶ … ─▶ kept(file)
                      └─ tree.py ends it with everything that it has started; then its folders are removed

The native library calls abort() on many errors, which no caller can catch. So what has not worked on this machine yet
is tried in a child first: the library itself (`selftest.py`), each model (`trial.py`), and each combination of settings
(`measure/trial.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from shepherd.core.dataclasses import dataclass
from shepherd.process.files import MOST_DOCUMENT_BYTES, find_object, keep_json

logger = logging.getLogger(__name__)

HUNG = -int(getattr(signal, "SIGALRM", 14))
"""The status of a child that was killed because it took too long."""
POLL_S = 0.05
"""Seconds between two checks whether the child lives and is still wanted."""
LAST_WORDS = 2000
"""Bytes from the end of what a child writes to standard error."""
KILL_S = 10.0
"""Seconds until killed processes must have gone; the kernel ends them, which takes long only where memory is large."""
EMPTY_S = 1.0
"""Seconds to read the rest of the output of a child that has ended; an escaped process may hold the pipe open."""


class Cancelled(Exception):
    """The work was given up, since nothing waits for its result."""


class Child:
    """A process and everything that it starts, with temporary folders of their own. For any thread."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folders: Mapping[str, str] = {},
        stdin: int = subprocess.DEVNULL,
        stdout: IO[bytes] | None = None,
        leads_session: bool = True,
        tidy: Callable[[str], str] = str.strip,
    ) -> None:
        """`environment`: all of it. `folders`: variables that name a place for temporary files, and the usual place;
        each names a folder of the child's own in that place (or where the environment says), which is removed at the
        `end`. `stdout`: None = the pipe of standard error, whose end is kept; `tidy` makes that fit for a sentence.
        Without a session of its own, Ctrl-Z stops it too, and `nice` in it gives way to our threads. Raises: `OSError`.
        """
        from shepherd.process import tree  # noqa: PLC0415 - psutil costs 30 ms

        self._tail, self._tidy, self._is_closed = b"", tidy, False
        self._exit_code = tree.exit_code_of
        mark, own = os.urandom(16).hex(), dict[str, str]()
        with contextlib.ExitStack() as stack:
            for variable, usual in folders.items():
                place = environment.get(variable, usual)
                with contextlib.suppress(OSError):  # no such place here: the program decides as without the variable
                    folder = tempfile.TemporaryDirectory(prefix="shepherd-", dir=place, ignore_cleanup_errors=True)
                    own[variable] = stack.enter_context(folder)
            self._process = tree.start(
                command,
                env={**environment, **own},
                stdin=stdin,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
                mark=mark,
                leads_session=leads_session,
            )
            self._folders = stack.pop_all()
        self._tree = tree.ProcessTree(self._process.pid, mark)
        self._drain = threading.Thread(target=self._read, name=f"output-{self._process.pid}", daemon=True)
        self._drain.start()
        self._sender: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative: the signal that killed it; None: it runs."""
        return self._exit_code(self._process)

    @property
    def last_words(self) -> str:
        """The end of what it has written."""
        return self._tail.decode("utf-8", "replace").strip()

    def wait(self, timeout_s: float = 0.0) -> bool:
        """Whether the process has ended, after `timeout_s` at most."""
        gives_up = time.monotonic() + timeout_s
        while self.status is None and (left_s := gives_up - time.monotonic()) > 0:
            if self._drain.is_alive():
                self._drain.join(min(left_s, POLL_S))  # returns at once when the process closes its output
            else:
                time.sleep(min(left_s, POLL_S / 50))
        return self.status is not None

    def send(self, task: bytes) -> None:
        """Write to its standard input, once, in a thread, since the child may never read. The input stays open."""
        self._sender = threading.Thread(target=self._write, args=(task,), daemon=True)
        self._sender.start()

    def ending(self) -> str:
        """How it ended, behind its name, such as `was killed by SIGKILL; its last words: ...`."""
        status = self.status
        if status is None:
            how = "closed its connection"
        else:
            how = f"ended with exit status {status}" if status >= 0 else f"was killed by {signal_name(-status)}"
        self._drain.join(EMPTY_S)
        words = self._tidy(self.last_words).strip()
        return f"{how}; its last words: {words}" if words else how

    def end(self, term_s: float = 0.0) -> bool:
        """End the process and all that it has started: SIGTERM, after `term_s` SIGKILL. Whether they have gone, and
        with them their temporary files.
        """
        if not self._is_closed and self._tree.end(term_s, KILL_S):  # later, its number may be another process's
            self.close()
        return self._is_closed

    def close(self) -> None:
        """After its end: forget the process and remove its folders."""
        self._drain.join(EMPTY_S)
        if self._sender is not None:
            self._sender.join(EMPTY_S)
        if self._process.stdin is not None and not (self._sender and self._sender.is_alive()):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EMPTY_S)
        self._folders.close()
        self._is_closed = True

    def _write(self, task: bytes) -> None:
        assert self._process.stdin is not None
        left = memoryview(task)
        with contextlib.suppress(OSError):  # it has ended
            while left:
                left = left[self._process.stdin.write(left) or 0 :]

    def _read(self) -> None:
        output = self._process.stdout or self._process.stderr
        assert output is not None
        with output:
            while chunk := output.read(65_536):
                self._tail = (self._tail + chunk)[-LAST_WORDS:]
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug("%d writes: %s", self.pid, chunk.decode("utf-8", "replace").rstrip())


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a child process."""

    status: int
    """Its exit status; negative: the signal that killed it; `HUNG`."""
    output: bytes
    """All that it has written to its standard output."""
    words: str
    """The end of its standard error."""

    @property
    def answer(self) -> str:
        """Its output as text."""
        return self.output.decode("utf-8", "replace")


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    task: str | bytes = "",
    is_wanted: Callable[[], bool] = lambda: True,
    variables: Mapping[str, str] = {},
    folders: Mapping[str, str] = {},
) -> Ended:
    """Run a command to its end, or kill it after `timeout_s`. Blocks.

    task: written to the child's standard input, which then stays open as long as this process lives; see
    `end_with_parent`. variables: added to the environment. folders: as in `Child`.

    Raises: `Cancelled` as soon as `is_wanted` returns False; `OSError`.
    """
    # Without GGML_NO_BACKTRACE, a failed assertion starts a debugger, which takes seconds.
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", **variables}
    gives_up = time.monotonic() + timeout_s
    with tempfile.TemporaryFile() as answer:
        child = Child(command, environment, folders=folders, stdin=subprocess.PIPE, stdout=answer, leads_session=False)
        try:
            child.send(task.encode() if isinstance(task, str) else task)
            while not child.wait(POLL_S) and time.monotonic() <= gives_up:
                if not is_wanted():
                    raise Cancelled
            status = child.status
        finally:
            if child.status is None:
                child.end()
            else:
                child.close()
        answer.seek(0)
        return Ended(HUNG if status is None else status, answer.read(), child.last_words)


def died(status: int, timeout_s: float) -> str:
    """How a child failed, as the end of a sentence in the plural: `crash (SIGABRT)`."""
    if status == HUNG:
        return f"hang for more than {timeout_s:.0f} s"
    return f"crash ({signal_name(-status)})" if status < 0 else f"fail (exit status {status})"


def signal_name(number: int) -> str:
    """Such as `SIGSEGV`, or `signal 99`."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


# -- in the child -----------------------------------------------------------------------------------------------------


def end_with_parent() -> None:
    """Exit as soon as the parent has ended for any reason: it holds the other end of standard input."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit_memory(most_bytes: int, deadline_s: float = 0.0) -> None:
    """Limit this process's memory, mapped files not counted, and make it the first to be killed when memory runs out;
    with a deadline, limit its processor time, and count mapped files.
    """
    if deadline_s and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
    with contextlib.suppress(ImportError):
        import resource  # noqa: PLC0415 - POSIX only

        limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: most_bytes}
        if deadline_s:
            limits |= {resource.RLIMIT_AS: most_bytes, resource.RLIMIT_CPU: int(deadline_s) + 1}
        for what, most in limits.items():
            with contextlib.suppress(ValueError, OSError):  # a lower one is in force, or the system has none
                resource.setrlimit(what, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


# -- verdicts ---------------------------------------------------------------------------------------------------------


def kept(file: Path) -> dict[str, Any] | None:
    """A stored verdict; None if there is none that can be read."""
    return find_object(file, MOST_DOCUMENT_BYTES)


def keep(file: Path, verdict: Mapping[str, Any]) -> None:
    """Store a verdict, whole or not at all. If the folder is not writable, the test runs again next time."""
    try:
        keep_json(file, verdict, indent=None)
    except OSError as error:
        logger.info("the verdict %s cannot be kept (%s); the test will run again next time", file.name, error)
