"""Ten thousand hostile calls over every tool of ours: nothing outside is touched, nothing hangs, each gets a sentence.

    uv run --no-sync pytest tests/search/fuzz/test_hostile_calls.py                      10,000 calls, always the same
    SHEPHERD_SEARCH=1 uv run --no-sync pytest tests/search/fuzz/test_hostile_calls.py  many more, of several seeds

The real `ConversationToolbox` with the real tools, in a world of its own: a folder that they may touch, full of traps
(links out, links in circles, FIFOs, devices, sockets, a file of a gigabyte), where another process swaps a folder for a
link out all the while; beside it a folder that must stay as it is, and whose texts must not be seen; and a server that
no tool may call.

The judge is judged, too: tools with holes in them must be found out.
"""

import asyncio
import contextlib
import json
import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cases import SEED, amount
from tests.in_time import becomes_true

from shepherd.core import Text, ToolCall
from shepherd.memory.store import MemoryStore
from shepherd.tools.base import ToolError
from shepherd.tools.permission import Permission
from shepherd.tools.registry import Registry
from shepherd.tools.sandbox.network import NetworkPolicy
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.signature import tool
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox

N_CALLS = amount(1_000, 10_000)
SEEDS = range(1, 9) if SEED is not None else (7,)
TOGETHER = 8
"""Calls of one round."""
N_CTX = 16_000
HANGS_S = 60.0
"""A call that takes longer hangs, on any machine."""
STOPPED = "and was stopped; ask for less at once"

DEAR = {"execute_command": 60, "json_path": 12, "json_validate": 12, "search_files": 250, "http_get": 400}
"""Of ten thousand, calls of tools that start processes, or read the whole tree; the others share the rest."""
LOOKS = frozenset({"read_file", "list_directory", "file_exists"})
"""Tools whose holes would do no harm to the machine: these are given its own files, too."""


# -- the world --------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """What the calls may touch, and what they may not."""

    inside: Path
    outside: Path
    twin: Path
    """Its name begins as that of `inside`."""
    secret: str
    """Stands in all that must not be seen."""
    port: int = 0
    """Of the server that nobody may call."""
    callers: list[object] = field(default_factory=list)

    def guarded(self) -> dict[str, tuple[int, int, int, str]]:
        """All that must stay as it is: kind and rights, size, time, content."""
        found = {}
        for top in (self.outside, self.twin):
            for path in (top, *sorted(top.rglob("*"))):
                status = path.lstat()
                content = path.read_text() if path.is_file() and not path.is_symlink() else ""
                found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, content)
        return found


def build(folder: Path, secret: str) -> World:
    inside, outside, twin = folder / "in", folder / "out", folder / "in2"
    for each in (outside / "deep", twin):
        each.mkdir(parents=True)
    for each in (outside / "canary.txt", outside / "deep" / "canary.txt", twin / "canary.txt"):
        each.write_text(f"{secret} of {each.name}\n")
    (outside / "script.sh").write_text(f"#!/bin/sh\necho {secret}\n")
    (outside / "script.sh").chmod(0o755)
    world = World(inside, outside, twin, secret)
    furnish(world)
    return world


SWAPPED = (("swap", ".links/dir"), ("swapfile", ".links/file"))
"""One of each pair is a link out."""


def furnish(world: World) -> None:
    """Make what there is inside, again where the calls have taken it away."""
    inside, outside = world.inside, world.outside
    for name in ("notes/deep", "many", ".links"):
        with contextlib.suppress(OSError):  # by now it is something else
            (inside / name).mkdir(parents=True, exist_ok=True)
    files = {
        "notes/a.txt": b"hello\nworld\n" * 50, "notes/deep/b.txt": b"deep\n", "canary.txt": b"harmless\n",
        "notes/canary.txt": b"harmless\n", "binary": bytes(range(256)) * 400,
        "line": b"x" * 300_000, "escapes.txt": b"\x1b]0;title\x07\x1b[2J\xff\xfe\0\r\n" * 40,
        "ünïcode \u202e name\n": b"odd\n", os.fsdecode(b"\xff\xfe"): b"no text for a name",
        **{f"many/{n}.txt": b"word " * n for n in range(60)},
    }  # fmt: skip
    links: dict[str, str | Path] = {
        "link": outside, "linkfile": outside / "canary.txt", "up": "..", "upup": "../out", "loop": "loop",
        "ping": "pong", "pong": "ping", "zero": "/dev/zero", "random": "/dev/urandom", "stdin": "/dev/stdin",
        "tty": "/dev/tty", "proc": "/proc/self", "root": "/", "dangling": outside / "new.txt", "good": "notes/a.txt",
        "gooddir": "notes", "notes/back": "../../out/deep", "chain": "up/out/canary.txt", "fd": "/proc/self/fd",
        "cwd": "/proc/self/cwd", "magic": f"/proc/self/root{outside}", "hop": "gooddir/back",
    }  # fmt: skip

    def make(name: str, how: Callable[[Path], object]) -> None:
        path = inside / name
        if not os.path.lexists(path):
            with contextlib.suppress(OSError):  # a folder that is gone, or a system that has no such thing
                how(path)

    for name, content in files.items():
        make(name, lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
    for name, target in links.items():
        make(name, lambda path, target=target: path.symlink_to(target))  # type: ignore[misc]
    make("fifo", os.mkfifo)
    make("device", lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)))
    make("huge", as_gigabyte)
    make("socket", as_socket)
    for (one, other), target in zip(SWAPPED, (outside, outside / "canary.txt"), strict=True):
        for name, its_twin in ((one, other), (other, one)):
            if not (inside / its_twin).is_symlink():
                make(name, lambda path, target=target: path.symlink_to(target))  # type: ignore[misc]
            elif target.is_dir():
                make(name, Path.mkdir)
            else:
                make(name, lambda path: path.write_text("harmless\n"))


def as_gigabyte(path: Path) -> None:
    with path.open("xb") as file:
        file.truncate(2**30)


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # a name of at most a hundred bytes


SWAPPER = """
import ctypes, os, sys, time
swap = ctypes.CDLL(None).renameat2
pairs = [tuple(map(os.fsencode, sys.argv[at : at + 2])) for at in range(1, len(sys.argv), 2)]
print("go", flush=True)
while os.getppid() != 1:
    for one, other in pairs:
        swap(-100, one, -100, other, 2)  # both names at once; in vain while one is gone
    time.sleep(0.0001)
"""


@contextlib.contextmanager
def swapping(world: World) -> Iterator[None]:
    """Meanwhile a folder and a file are now themselves and now links out, thousands of times a second.

    In a process of its own: a thread of this interpreter hardly ever gets in between two calls of the system.
    """
    if sys.platform != "linux":
        yield
        return
    names = [str(world.inside / name) for pair in SWAPPED for name in pair]
    command = [sys.executable, "-S", "-c", SWAPPER, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout
            swapper.stdout.readline()
            yield
            assert swapper.poll() is None
        finally:
            swapper.kill()


@contextlib.contextmanager
def forbidden_server(world: World) -> Iterator[None]:
    """A server on this machine; every connection to it is a fault."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        world.port = server.getsockname()[1]
        server.settimeout(0.05)
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, caller = server.accept()
                    world.callers.append(caller)
                    connection.close()

        thread = threading.Thread(target=listen, name="listening")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


NAMES = {
    "inside.test": ["127.0.0.1"], "lan.test": ["10.1.2.3", "192.168.0.1"], "six.test": ["::1", "fc00::1"],
    "mixed.test": ["127.0.0.1", "169.254.169.254"], "mapped.test": ["::ffff:127.0.0.1"], "none.test": [],
}  # fmt: skip


async def look_up(host: str, port: int) -> list[str]:
    """The names of this world; numbers are read as the system reads them."""
    if host in NAMES:
        return NAMES[host]
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except UnicodeError as error:
        raise OSError(0, "not a name") from error
    return [str(address[0]) for *_, address in rows]


# -- the calls --------------------------------------------------------------------------------------------------------

# fmt: off
PARTS = (
    "notes", "a.txt", "deep", "b.txt", "many", "1.txt", "canary.txt", "new.txt", "new", "swap", "swapfile",
    "link", "linkfile", "up", "upup", "loop", "ping", "zero", "random", "stdin", "tty", "proc", "root", "dangling",
    "good", "gooddir", "back", "chain", "fd", "cwd", "magic", "hop", "fifo", "device", "socket", "huge", "binary",
    "line", "escapes.txt", "ünïcode \u202e name\n", ".links", "", ".", "..", "..", "..", "...", "out", "in2",
    "~", "~root", "~nobody", "$HOME", "*", "?", "%2e%2e", "..%2fout", "..%c0%af", "..\\out\\canary.txt", "C:\\", "CON",
    "．．", "․․", "‥", "\u2215", "\uff0f", "..\u2044", "\0", "a\0b", "\ud800", "\udcff\udcfe", "x" * 255, "x" * 300,
    " ", "a ", ".. ", " ..", "\n", "\t", "-rf", "--", "'", '"', "result:1", "é", "e\u0301", "self", "environ", "0", "3",
)
RACING = (
    "swap", "swapfile", "swap/canary.txt", "swap/deep/canary.txt", "swap/new.txt", "swap/../canary.txt",
    "swap/n/e/w.txt", "./swap//canary.txt", "notes/../swap/deep",
)
LONG = ("a/" * 5_000, "/" * 5_000, "../" * 50, "x" * 100_000, "notes/" * 60 + "../" * 61)
SYSTEM = (
    "/etc/passwd", "/dev/zero", "/dev/random", "/dev/stdin", "/dev/tty", "/proc/self/environ", "/proc/self/mem",
    "/proc/self/fd/0", "/proc/1/environ", "/proc/kmsg", "/sys", "//etc//passwd", "file:///etc/passwd",
    "/proc/self/maps",
)
WORDS = (
    "", " ", "hello", "word", "x" * 5_000, "é" * 300, "\0", "\ud800", "\U0001f600" * 50, "<|im_end|>", "</tool_call>",
    "null", "true", "-1", "1e400", "NaN", "Infinity", "9" * 400, "[]", "{}", '{"a": [1, {"b": null}]}', "[" * 3_000,
    '{"a": 1, "a": 2}', '"\\ud800"', "(a+)+$", "(x+x+)+y", "[", "\\", "(?P<", "**/" * 60, "*" * 300, "[!", "{a,b}",
    "$..*", "$[?@.a == 'x']", "$" + "..*" * 20, "$[" * 200, "$[?match(@, '(a+)+$')]", "'; DROP TABLE facts; --", "%s%n",
    "hello\nworld", "\r\n", "\x1b[2J", "AND OR NOT", '"', "*", "a:b", "utf-7", "base64", "text", "idna", "rot13",
    "GET", "POST", "TRACE", "CONNECT", "get\r\nHost: x", "multi", "content", "count", "regex", "1", "0", "-5",
)
RAW = (
    "", "{", "null", "[1]", '"x"', "NaN", '{"path": NaN}', "{'path': 'x'}", "[" * 5_000, "\ud800",
    '{"path": "a", "path": "../out/canary.txt"}', '{"path": "\\ud800"}',
)
COMMANDS = (
    "true", "false", "echo hello", "exit 77", "kill -9 $$", "kill -SEGV $$", "echo $FUZZ_API_KEY; env", "sleep 100",
    "sleep 100 & echo left", "(trap '' TERM; sleep 100)", "setsid sleep 100 & true", "yes", "yes >&2", "cat", "read x",
    "head -c 3000000 /dev/zero", "printf '\\377\\376\\033[2J'", "echo '\0'", "\0", "", " ", "\ud800", "'", "(((", "#",
    "nohup sleep 100 >/dev/null 2>&1 & disown", "exec 0<&-; cat", "ulimit -n 3; ls", "cd / && pwd", "touch made_here",
    "x" * 200_000,
)
NUMBERS = (0, 1, 2, 3, 7, -1, -2, 50, 10**6, 2**31, 2**63, -(2**63), 10**30, 0.5, 0.05, -0.0, 1e308, "3", "x", True)
HOSTS = (
    "127.0.0.1", "localhost", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.1", "017700000001",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "127.0.0.1.",
    "inside.test", "lan.test", "six.test", "mixed.test", "mapped.test", "none.test", "INSIDE.test", "169.254.169.254",
    "user:pw@127.0.0.1", "example.test@127.0.0.1", "127.0.0.1#@example.test", "１２７.０.０.１", "⑫⑦.0.0.1", "x" * 300,
    "127.0.0.1\\@example.test", "127.0.0.1%00.test", "127.0.0.1%2f", "[::1%25lo]", "[", "..", "", "a b", "\ud800",
)
URLS = (
    "/etc/passwd", "file:///etc/passwd", "http://", "http:///x", "//127.0.0.1/", "data:text/plain,x", "http://x:99999/",
    "http://x:-1/", "http://127.0.0.1:0/", "unix:///socket", "http://127.0.0.1\r\nHost: x/",
)
# fmt: on
NAMES_OF_PATHS = frozenset({"path", "working_dir"})


class Hostile:
    """Makes calls. The same seed makes the same ones."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.pick = chance.choice
        self.roots = [str(each) for each in (world.inside, world.outside, world.twin)]
        self.urls = self.addresses()

    def call(self, tool: Tool, n: int) -> ToolCall:
        name = self.pick((*[tool.name] * 8, tool.name.upper(), f" {tool.name}\n", *tool.aliases[:2]))
        if self.chance.random() < 0.01:
            name = self.pick(WORDS)[:2_000]
        return ToolCall(f"c{n}", name, self.arguments(tool))

    def arguments(self, tool: Tool) -> str:
        fields = tool.parameters["properties"]
        required = tool.parameters.get("required", ())
        likely = self.chance.random()
        if likely < 0.05:
            return self.pick(RAW)
        given = {
            name: self.value(tool, name, schema)
            for name, schema in fields.items()
            if name in required or name == "timeout" or self.chance.random() < 0.35
        }
        if likely < 0.1 and given:
            given[self.pick(list(given))] = self.junk(3)
        if likely > 0.98:
            given[self.pick(("user", "_user_id", "session", "context", "roots", "self", "__class__", "a" * 999))] = "x"
        other = next((name for name, own in tool.argument_aliases.items() if own in given), None)
        if other and likely > 0.9:
            given[other] = given.pop(tool.argument_aliases[other])
        with contextlib.suppress(ValueError, RecursionError):
            return json.dumps(given, ensure_ascii=self.chance.random() < 0.5)
        return "{}"

    def value(self, tool: Tool, name: str, schema: Mapping[str, Any]) -> Any:
        if name in NAMES_OF_PATHS and tool.category in {"filesystem", "command_execution"}:
            return self.path(tool)
        if name == "url":
            return self.pick(self.urls)
        if name == "command":
            return self.pick(COMMANDS)
        if name == "timeout":
            return self.pick((*[0.05] * 20, "0.05", 0, -1, 10**9, "soon", [0.05]))
        if name == "headers":
            return {"X-A": self.pick(WORDS), self.pick(("Host", "Content-Length", "a b", "x")): self.junk(1)}
        match schema.get("type"):
            case "integer" | "number":
                return self.pick(NUMBERS)
            case "boolean":
                return self.pick((True, False, "yes", 3))
            case "string":
                return self.pick(WORDS) if self.chance.random() < 0.9 else "".join(self.chance.choices(PARTS, k=4))
        return self.junk(3)

    def path(self, tool: Tool) -> str:
        kind = self.chance.random()
        if kind < 0.1 and tool.name in LOOKS:
            return self.pick(SYSTEM)
        if kind < 0.12:
            return self.pick(LONG)
        if kind < 0.25:
            return self.pick(RACING)
        between = self.pick(("/", "/", "/", "/./", "//", "\\"))
        text = between.join(self.chance.choices(PARTS, k=self.pick((1, 1, 2, 2, 3, 5))))
        if kind < 0.5:
            return f"{self.pick(self.roots)}/{text}"
        return self.pick(("", "", "", "file://", f"{self.world.inside}/", "./")) + text.lstrip("/")

    def junk(self, depth: int) -> Any:
        kind = self.chance.randrange(8 if depth else 5)
        match kind:
            case 0:
                return None
            case 1:
                return self.pick(NUMBERS)
            case 2 | 3 | 4:
                return self.pick(WORDS)
            case 5:
                return [self.junk(depth - 1) for _ in range(self.chance.randrange(4))]
            case 6:
                return {self.pick(WORDS)[:50]: self.junk(depth - 1) for _ in range(self.chance.randrange(4))}
        nested: Any = self.junk(0)
        for _ in range(self.pick((10, 300))):
            nested = [nested]
        return nested

    def addresses(self) -> list[str]:
        schemes = ("http", "http", "HTTP", "https", "ftp", "file", "gopher", "javascript", "http:http", "")
        urls = [f"{self.pick(schemes)}://{host}:{self.world.port}/" for host in HOSTS for _ in range(4)]
        return [*urls, *URLS, *WORDS]


def plan(tools: Sequence[Tool], chance: random.Random, n_calls: int) -> list[Tool]:
    """Which tools are called, in which order: each often, the dear ones less so."""
    dear = {} if SEED is not None else {name: max(1, n * n_calls // 10_000) for name, n in DEAR.items()}
    cheap = [each for each in tools if each.name not in dear] or list(tools)
    chosen = [each for each in tools for _ in range(dear.get(each.name, 0))]
    chosen += chance.choices(cheap, k=n_calls - len(chosen))
    chance.shuffle(chosen)
    return chosen


# -- the judge --------------------------------------------------------------------------------------------------------


def tokens(text: str) -> int:
    return len(text) // 3 + 1


async def throw(
    tools: Sequence[Tool], world: World, context: ToolContext, *, seed: int, n_calls: int, to_first: bool = False
) -> list[str]:
    """The faults that so many calls have found, the first of each kind; or those of the first round that has any."""
    chance = random.Random(seed)
    hostile = Hostile(world, chance)
    permission = Permission(allow=["*"], folder=world.inside)
    box = ConversationToolbox(lambda: tools, context=context, permission=permission, n_ctx=N_CTX, timeout_s=HANGS_S)
    planned = plan(tools, chance, n_calls)
    before = world.guarded()
    faults: dict[str, str] = {}

    async def one(tool: Tool, n: int) -> None:
        call = hostile.call(tool, n)
        shown = f"{call.name[:60]!r} {call.arguments[:300]!r}"
        try:
            ran = await box.run(call, share=TOGETHER, tell=lambda line: None)
        except Exception as error:  # the wall has a hole
            faults.setdefault(f"{tool.name} raises", f"{shown}: {type(error).__name__}: {error}")
            return
        texts = [part.text for part in ran.result.parts if isinstance(part, Text)]
        for said in (*texts, ran.summary, ran.diff):
            if world.secret in said:
                faults.setdefault(f"{tool.name} shows what is outside", shown)
            if any("\ud800" <= char <= "\udfff" for char in said):
                faults.setdefault(f"{tool.name} says what cannot be encoded", shown)
        text = "".join(texts)
        checks = {
            "hangs": STOPPED in text,
            "says nothing": not text,
            "says too much": tokens(text) > box.budget(TOGETHER),
            "does not say what is wrong": ran.result.is_error and not text.startswith("Error: "),
            "fails in a way that nobody meant": "the tool failed:" in text,
            "answers another call": ran.result.call_id != call.id,
            "has a summary of several lines": not ran.summary.isprintable(),
        }
        for fault, is_so in checks.items():
            if is_so:
                faults.setdefault(f"{tool.name} {fault}", f"{shown}: {text[:300]!r}")

    for start in range(0, n_calls, TOGETHER):
        await asyncio.gather(*(one(tool, n) for n, tool in enumerate(planned[start : start + TOGETHER], start)))
        if world.callers:
            faults.setdefault("the forbidden server is called", f"in the round of call {start}")
        if start % (TOGETHER * 16) == 0 or start + TOGETHER >= n_calls:
            furnish(world)
            after = world.guarded()
            for path in sorted({*before, *after}):
                if before.get(path) != after.get(path):
                    found = f"{path}, before call {start}: {before.get(path)} became {after.get(path)}"
                    faults.setdefault("what is outside has changed", found)
        if faults and to_first:
            break
    return [f"{fault}: {first}" for fault, first in faults.items()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    secret = f"canary-{random.SystemRandom().randrange(10**12):012}"
    monkeypatch.setenv("FUZZ_API_KEY", secret)
    made = build(tmp_path, secret)
    with forbidden_server(made), swapping(made):
        yield made


@pytest.mark.timeout(amount(300, 3_600))
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_hostile_call_touches_what_is_outside_hangs_or_is_left_without_a_sentence(
    world: World, seed: int
) -> None:
    tools = Registry.instance().tools()
    assert {each.category for each in tools} >= {"filesystem", "command_execution", "http", "json", "memory", "mcp"}
    children = set(psutil.Process().children())
    n_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with MemoryStore(world.inside.parent / "memory.db") as memory:
        context = ToolContext(
            count=tokens,
            user="ann",
            session="s",
            roots=Roots.of([str(world.inside)], str(world.inside)),
            reach=NetworkPolicy(lookup=look_up),
            memory=memory,
            secrets=("FUZZ_API_KEY",),
        )
        assert await throw(tools, world, context, seed=seed, n_calls=N_CALLS) == []
        assert becomes_true(lambda: not [each.name for each in threading.enumerate() if each.name == "tool"])
    assert becomes_true(lambda: set(psutil.Process().children(recursive=True)) <= children)
    if n_files:
        assert becomes_true(lambda: len(os.listdir("/proc/self/fd")) <= n_files + 8)


# -- the judge, judged ------------------------------------------------------------------------------------------------


def holes(world: World) -> dict[str, Tool]:
    """Tools as careless people write them."""

    @tool(category="filesystem", effect="read", subject="path")
    def read_file(path: str) -> str:
        """Read whatever there is."""
        full = os.path.join(world.inside, path)
        if not os.path.normpath(full).startswith(str(world.inside)) or not os.path.isfile(full):
            raise ToolError("not within the folder")
        if os.path.getsize(full) > 10**6:
            raise ToolError("too large")
        with open(full, encoding="utf-8", errors="replace") as file:
            return file.read(10_000)

    @tool(category="filesystem", effect="read", subject="path")
    def list_directory(path: str) -> str:
        """List after a check that somebody can overtake."""
        full = os.path.join(world.inside, path)
        if "\0" in path or not os.path.realpath(full).startswith(f"{world.inside}{os.sep}"):
            raise ToolError("not within the folder")
        time.sleep(0.001)
        return "\n".join(world.secret for name in os.listdir(full) if name == "script.sh") or "nothing"

    @tool(category="filesystem", effect="write", subject="path")
    def write_file(path: str) -> str:
        """Write through links."""
        full = os.path.normpath(os.path.join(world.inside, path))
        if full.startswith(str(world.outside)) or (full.startswith(f"{world.inside}{os.sep}") and "link" in full):
            with open(os.path.join(world.inside, path), "w", encoding="utf-8") as file:
                file.write("overwritten")
        return "ok"

    @tool(category="http", effect="net", subject="url")
    def http_get(url: str) -> str:
        """Call anybody."""
        if "://127.0.0.1:" in url:
            socket.create_connection(("127.0.0.1", world.port)).close()
        return "ok"

    @tool(effect="read")
    def http_put(url: str) -> str:
        """Fail on most of it."""
        return str(int(url))

    return {each.name: each for each in (read_file, list_directory, write_file, http_get, http_put)}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("read_file", "read_file shows what is outside"),
        ("list_directory", "list_directory shows what is outside"),
        ("write_file", "what is outside has changed"),
        ("http_get", "the forbidden server is called"),
        ("http_put", "http_put fails in a way that nobody meant"),
    ],
)
async def test_a_tool_with_a_hole_is_found_out(world: World, name: str, fault: str) -> None:
    faults = await throw([holes(world)[name]], world, ToolContext(count=tokens), seed=3, n_calls=5_000, to_first=True)
    assert [found for found in faults if found.startswith(fault)] == faults != []
