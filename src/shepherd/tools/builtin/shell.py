"""`execute_command`: runs a shell command, and ends it with everything that it has started.

command ─▶ bash in a session of its own, no input, no secrets ─▶ HeadAndTail of stdout and stderr ─▶ text
                └─ at its end, at the deadline, when cancelled: ProcessTree.ending() ─▶ TERM, after 2 s KILL
"""

from __future__ import annotations

import asyncio
import contextlib
import locale
import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import IO, Annotated

from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import Result, ToolError
from shepherd.tools.sandbox.confinement import confine
from shepherd.tools.signature import tool
from shepherd.tools.tool import ToolContext

MOST_SECONDS = 3600
FLUSH_S, MOST_FLUSH_S = 0.2, 3.0
"""For background processes to end by themselves: `sort` in `tee >(sort)` writes after the command has ended. The first
is without output and with none of them able to run, which on a busy machine begins late; the second is of all that."""
CHUNK_BYTES = 65_536
TICK_S = 0.1
"""The longest delay of a cancellation or of a line of progress."""


@tool(
    category="command_execution", effect="run", aliases=("Bash", "run_command", "shell"), subject="command",
    argument_aliases={
        "cmd": "command", "cwd": "working_dir", "workdir": "working_dir", "timeout_s": "timeout", "description": "",
        "run_in_background": "",
    },
    offered=False, timeout_s=MOST_SECONDS + 60,
)  # fmt: skip
async def execute_command(
    context: ToolContext,
    command: str,
    working_dir: str | None = None,
    timeout: Annotated[float, "seconds"] = 30,  # noqa: ASYNC109 - the model's argument
) -> Result:
    """Run a shell command."""
    may = context.commands
    arguments = shell_line(command)
    seconds = seconds_of(timeout)
    folder = context.roots.directory(working_dir or ".") if context.roots else working_dir
    env = environment(os.environ, keep=may.keep_env, secrets=context.secrets)
    stop = threading.Event()

    def work() -> FinishedCommand:
        if not may.allow_sudo:
            confine()
        return run(arguments, folder, env, timeout_s=seconds, max_bytes=may.max_bytes, stop=stop, tell=context.tell)

    # Not a daemon: the program waits for this thread, which waits for everything that the command has started.
    thread = ThreadPoolExecutor(1, "command")
    running = asyncio.wrap_future(thread.submit(work))
    thread.shutdown(wait=False)
    try:
        ended = await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        try:
            await asyncio.wait([running])  # nothing that it has started survives the call
        finally:
            if not running.cancel():  # a second cancellation does not wait
                running.exception()
        raise
    return ended.result(seconds)


def seconds_of(timeout: float) -> float:
    """Models that were trained on Bash tools give milliseconds. Raises: `ToolError`."""
    if not 0 < timeout <= 1000 * MOST_SECONDS:  # an integer may be too large for a float
        raise ToolError(f"timeout must be more than 0 and at most {MOST_SECONDS} seconds, not {timeout!s:.20}")
    return timeout / 1000 if timeout > MOST_SECONDS else timeout


def shell_line(command: str) -> list[str]:
    """The arguments of the program that runs `command`. Raises: `ToolError`."""
    if os.name != "posix":
        raise ToolError("execute_command works on Linux and macOS only")
    if not command.strip():
        raise ToolError("the command is empty")
    if "\0" in command:
        raise ToolError("the command has a NUL character, which no shell takes; leave it out")
    try:
        size = len(os.fsencode(command))
    except UnicodeEncodeError as error:
        raise ToolError(f"the command has a character that cannot be encoded ({command[error.start]!r})") from error
    if size >= 128 * 1024:
        raise ToolError(f"the command has {size} bytes, the system takes 131071; write it to a file and run that")
    return [shutil.which("bash") or "/bin/sh", "-c", command]


# -- the environment --------------------------------------------------------------------------------------------------

SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASS(WORD|WD|PHRASE)?|CREDENTIAL)S?(_|\d*$)|(^|_)(PWD|PAT|JWT|AUTH|AUTHORIZATION|COOKIES?|DSN)(_|$)",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(
    r"\A([a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"  # a URL with a password
    r"|https?://[0-9a-f]{32}@|https://(hooks\.slack\.com|discord(app)?\.com/api/webhooks)/\w+/\w+"  # Sentry, webhooks
    r"|(sk|pk|rk|xai|gsk|hf|pplx|r8|npm|glpat|xox[a-z]|xapp|sntry[su]|gh[opsur]|github_pat)[-_][\w-]{8}"
    r"|xoxe\.xox|hv[sbr]\.[\w-]{16}|AKIA|ASIA|AIza|ey[JK][\w-]+\.ey|-----BEGIN)"
    r"|(?i:(?<!\w)password|(\A|;)\s*(pwd|accountkey|sharedaccesskey))\s*=\s*[^\s;$]"  # a connection string
)
"""How the keys of well-known services look."""
PLAIN_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})
SET_NAMES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""No person can answer a pager or a prompt."""


def environment(have: Mapping[str, str], *, keep: Collection[str], secrets: Collection[str]) -> dict[str, str]:
    """`have` without secrets: what looks like a key, and what has the same value as one. A name in `keep` stays; a glob
    in `keep` opens what looks like a secret, but none of `secrets`."""
    private = {name.upper() for name in secrets}

    def is_secret(name: str, value: str) -> bool:
        if name in keep or name in PLAIN_NAMES:
            return False
        if name.upper() in private:
            return True
        looks = SECRET_NAME.search(name) is not None or SECRET_VALUE.search(value) is not None
        return looks and not any(fnmatchcase(name, pattern) for pattern in keep)

    hidden = {name for name, value in have.items() if is_secret(name, value)}
    values = {have[name] for name in hidden if len(have[name]) >= 16}
    return {
        name: value for name, value in have.items() if name in keep or not (name in hidden or value in values)
    } | SET_NAMES


# -- its output -------------------------------------------------------------------------------------------------------


class HeadAndTail:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, max_bytes: int) -> None:
        self.most_head = max_bytes // 2
        self.most_tail = max_bytes - self.most_head
        self.head = bytearray()
        self.tail: deque[bytes] = deque()
        self.n_tail = 0
        self.n_bytes = self.n_lines = 0
        """Of the whole stream."""

    def take(self, chunk: bytes) -> None:
        self.n_bytes += len(chunk)
        self.n_lines += chunk.count(b"\n")
        room = self.most_head - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self.tail.append(chunk)
            self.n_tail += len(chunk)
            while self.tail and self.n_tail - len(self.tail[0]) >= self.most_tail:
                self.n_tail -= len(self.tail.popleft())

    @property
    def text(self) -> str:
        """As a terminal would have shown it, with a note about what is left out."""
        tail = b"".join(self.tail)[-self.most_tail :] if self.most_tail else b""
        n_missing = self.n_bytes - len(self.head) - len(tail)
        head = bytes(self.head)
        if b"\0" in head[:8192]:
            return f"({self.n_bytes} bytes that are not text)"
        if not n_missing:
            return readable(head + tail)
        while tail and 0x80 <= tail[0] < 0xC0:  # the rest of a character that was cut
            tail, n_missing = tail[1:], n_missing + 1
        try:
            head[:-3].decode()
        except UnicodeDecodeError as error:
            is_utf8 = error.end >= len(head) - 6  # only its end is cut off
        else:
            is_utf8 = True
        whole = head.decode("utf-8", "ignore").encode() if is_utf8 else head
        n_missing += len(head) - len(whole)
        return f"{readable(whole)}\n… {n_missing} bytes left out …\n{readable(tail)}"


ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[PX^_][^\x1b]*(\x1b\\)?|[ -/]*[0-~])")
"""Signs for a terminal: colours, titles, movements."""
CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))


def readable(data: bytes) -> str:
    """The text, without signs for a terminal; what is not UTF-8 is in the encoding of the locale."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(locale.getencoding(), "replace")
    lines = ESCAPES.sub("", text).split("\n")
    # Of a progress bar, the last state stays.
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).translate(CONTROLS)


def last_line(chunk: bytes) -> str:
    lines = [line for line in re.split(r"[\r\n]+", readable(chunk[-2000:].replace(b"\r", b"\n"))) if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


# -- its end ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    stdout: str
    stderr: str
    exit_code: int
    """Negative: ended by that signal."""
    timed_out: bool = False
    n_lines: int = 0
    left: Sequence[str] = ()
    """The command lines of its background processes, which were ended with it."""

    def result(self, timeout_s: float) -> Result:
        how = self.how(timeout_s)
        parts = [self.stdout.rstrip("\n"), self.stderr.strip("\n") and "stderr:\n" + self.stderr.strip("\n")]
        if self.left:
            parts.append(f"these background processes were ended: {', '.join(dict.fromkeys(self.left))}")
        content = "\n".join([part for part in parts if part] + [how])
        success = self.exit_code == 0 and not self.timed_out
        summary = f"{how.partition(';')[0]}, {self.n_lines} line{'' if self.n_lines == 1 else 's'}"
        return Result(content, success, summary, error="" if success else how)

    def how(self, timeout_s: float) -> str:
        if self.timed_out:
            longer = f"; a longer timeout may be given, at most {MOST_SECONDS} s" if timeout_s < MOST_SECONDS else ""
            return f"timed out after {timeout_s:g} s and was ended with everything it had started{longer}"
        if self.exit_code < 0:
            return f"killed by {signal_name(-self.exit_code)}"
        name = signal_name(self.exit_code - 128)
        return f"exit code {self.exit_code}" + (f" (a program in it was killed by {name})" if name else "")


def signal_name(number: int) -> str:
    """Such as `SIGSEGV (Segmentation fault)`; empty for none."""
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return ""


# -- running it -------------------------------------------------------------------------------------------------------


def run(
    arguments: Sequence[str],
    folder: str | None,
    env: Mapping[str, str],
    *,
    timeout_s: float,
    max_bytes: int,
    stop: threading.Event,
    tell: Callable[[str], None],
    keep: Callable[[int], HeadAndTail] = HeadAndTail,
) -> FinishedCommand:
    """Run a program to its end, to the deadline, or until `stop` is set. Blocks; no process is left behind. `keep`
    makes what takes an output. Raises: `ToolError` if it cannot be started.
    """
    from shepherd.process.tree import ProcessTree, exit_code_of, start  # noqa: PLC0415 - psutil costs 30 ms

    deadline = time.monotonic() + timeout_s
    mark = uuid.uuid4().hex
    try:
        process = start(arguments, cwd=folder, env=env, mark=mark)
    except OSError as error:
        raise ToolError(f"the command cannot be started: {error.strerror or error}") from error
    with contextlib.closing(OutputReader(process, max_bytes, tell, keep)) as streams:
        tree = ProcessTree(process.pid, mark)
        try:
            while (exit_code := exit_code_of(process)) is None and time.monotonic() < deadline and not stop.is_set():
                streams.pump(min(TICK_S, deadline - time.monotonic()))
            ended = quiet_since = time.monotonic()
            while exit_code is not None and streams.n_open and (now := time.monotonic()) < ended + MOST_FLUSH_S:
                if streams.pump(TICK_S / 10) or tree.is_running():
                    quiet_since = now
                elif now >= quiet_since + FLUSH_S:
                    break
        finally:
            for pause_s in tree.ending():
                streams.pump(pause_s)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the system cannot be killed
                process.wait(TICK_S)
        for _ in range(32):  # what the pipes still hold, and no more: a process that escaped may go on writing
            if not streams.pump(0):
                break
        out, err = streams.kept
        return FinishedCommand(
            out.text,
            err.text,
            exit_code=-signal.SIGKILL if process.returncode is None else process.returncode,
            timed_out=exit_code is None and not stop.is_set(),
            n_lines=out.n_lines + err.n_lines,
            left=tree.background if exit_code is not None else (),
        )


class OutputReader:
    """The two outputs of a process, read as they come; the end of the process ends a wait, too."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        max_bytes: int,
        tell: Callable[[str], None],
        keep: Callable[[int], HeadAndTail] = HeadAndTail,
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.files: list[IO[bytes]] = [process.stdout, process.stderr]
        self.kept = [keep(max_bytes) for _ in self.files]
        self.tell = tell
        self.shown_at = time.monotonic()
        self.latest = b""
        """The last chunk since then."""
        self.selector = selectors.DefaultSelector()
        for file, kept in zip(self.files, self.kept, strict=True):
            os.set_blocking(file.fileno(), False)
            self.selector.register(file, selectors.EVENT_READ, kept)
        self.n_open = len(self.files)
        with contextlib.suppress(AttributeError, OSError):  # Linux only; elsewhere, the next tick notices the end
            self.files.append(os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0))
            self.selector.register(self.files[-1], selectors.EVENT_READ, None)

    def close(self) -> None:
        self.selector.close()
        for file in self.files:
            file.close()

    def pump(self, wait_s: float) -> bool:
        """Read what is there, or wait for it so long; whether there was any."""
        ready = self.selector.select(max(0.0, wait_s))
        n_read = sum(self.read(key) for key, _ in ready if key.data is not None)
        if not n_read and any(key.data is None for key, _ in ready):
            self.selector.unregister(self.files[-1])  # its end has been seen; further waits are real ones
        if self.latest and time.monotonic() - self.shown_at >= TICK_S:
            self.shown_at, line, self.latest = time.monotonic(), last_line(self.latest), b""
            if line:
                self.tell(line)
        return n_read > 0

    def read(self, key: selectors.SelectorKey) -> bool:
        try:
            chunk = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.selector.unregister(key.fileobj)
            self.n_open -= 1
            return False
        key.data.take(chunk)
        self.latest = chunk
        return True
