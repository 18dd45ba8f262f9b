"""The tests of `tests/unit/tools/builtin/test_shell.py` that start programs."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import becomes_true, in_time
from tests.unit.tools.builtin.test_shell import seconds  # noqa: F401 - fixtures

from shepherd.process.tree import MARK, ProcessTree
from shepherd.tools.arguments import coerce_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.shell import execute_command, run
from shepherd.tools.sandbox.confinement import confine
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import CommandOptions, ToolContext

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands need a POSIX system")


async def call(command: str, context: ToolContext | None = None, **arguments: Any) -> Result:
    given = coerce_arguments({"command": command, **arguments}, execute_command)
    return await execute_command.run(context or ToolContext(), given)


@pytest.mark.parametrize(
    ("command", "content", "success"),
    [
        ("echo hello", "hello\nexit code 0", True),
        ("true", "exit code 0", True),
        ("echo out; echo err >&2; exit 3", "out\nstderr:\nerr\nexit code 3", False),
        ("cat; echo end of input", "end of input\nexit code 0", True),
        ("printf 'a\\r\\nb\\r\\n'", "a\nb\nexit code 0", True),
        ("printf ' 10%%\\r 50%%\\r100%%\\n'", "100%\nexit code 0", True),
        ("printf '\\033[1;31mred\\033[0m \\033]0;title\\007x\\a\\n'", "red x\nexit code 0", True),
        ("printf 'caf\\303\\251 \\377'", "café �\nexit code 0", True),
        ("printf 'a\\0b'", "(3 bytes that are not text)\nexit code 0", True),
        ("kill -SEGV $$", "killed by SIGSEGV (Segmentation fault)", False),
        ("kill -KILL $$", "killed by SIGKILL (Killed)", False),
        ("exit 139", "exit code 139 (a program in it was killed by SIGSEGV (Segmentation fault))", False),
        ("exit 255", "exit code 255", False),
        ("seq 3 | tee >(sleep 0.01; sort -r)", "1\n2\n3\n3\n2\n1\nexit code 0", True),
    ],
)
async def test_a_command_says_what_it_wrote_and_how_it_ended(command: str, content: str, success: bool) -> None:
    result = await call(command)
    assert result.content == content
    assert result.success is success
    assert result.error in content
    assert bool(result.error) is not success


async def test_a_person_reads_how_it_ended_and_how_much_it_wrote() -> None:
    assert (await call("seq 12")).summary == "exit code 0, 12 lines"
    assert (await call("echo x; exit 1")).summary == "exit code 1, 1 line"


async def test_the_names_that_models_use_are_taken(tmp_path: Path) -> None:
    assert {"Bash"} <= set(execute_command.aliases)
    arguments = {"cmd": "pwd", "timeout": "120000", "description": "where?", "run_in_background": True}
    result = await execute_command.run(ToolContext(), coerce_arguments(arguments, execute_command))
    assert result.success


async def test_it_runs_in_a_folder_within_the_roots(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in'side; $(x)", tmp_path / "outside"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    context = ToolContext(roots=Roots.of([str(inside)]))
    assert (await call("pwd", context)).content == f"{inside.resolve()}\nexit code 0"
    assert (await call("pwd", context, working_dir="deep")).content == f"{inside.resolve()}/deep\nexit code 0"
    for folder in ("..", "link", str(outside), "nowhere"):
        with pytest.raises(ToolError):
            await call("pwd", context, working_dir=folder)


async def test_it_inherits_no_descriptor_and_no_terminal() -> None:
    # `ls` itself opens one, to list them.
    listed = "import os; print(sorted(int(fd) for fd in os.listdir('/dev/fd')))"
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        result = await call(f'exec {sys.executable} -c "{listed}"; true')
    finally:
        os.close(read)
        os.close(write)
    assert result.content.startswith("[0, 1, 2, 3]")
    leads = "import os; print(os.getpid() == os.getpgid(0) == os.getsid(0))"
    assert (await call(f'exec {sys.executable} -c "{leads}"')).content.startswith("True")
    assert "not a tty" in (await call("tty")).content


async def test_a_command_sees_what_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("X_TOKEN", "Y_TOKEN", "OUR_SPECIAL", "HARMLESS"):
        monkeypatch.setenv(name, "value-of-" + name)
    context = ToolContext(secrets=("OUR_SPECIAL",), commands=CommandOptions(keep_env=("Y_*",)))
    printed = (await call("env; cat /proc/self/environ 2>/dev/null | tr '\\0' '\\n'", context)).content
    assert "value-of-Y_TOKEN" in printed
    assert "value-of-HARMLESS" in printed
    assert "value-of-X_TOKEN" not in printed
    assert "value-of-OUR_SPECIAL" not in printed
    assert "TERM=dumb" in printed


LOOKS = {
    "the parent": "cat /proc/$PPID/environ",
    "all parents": "p=$$; while [ $p -gt 1 ]; do cat /proc/$p/environ; p=$(($(ps -o ppid= -p $p))); done",
    "everything": "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ",
    "ps": "ps eww -A",
}


def in_a_thread(work: Callable[[], bool]) -> bool:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


@pytest.mark.skipif(not in_a_thread(confine), reason="needs Landlock")
def test_a_command_cannot_read_the_secrets_of_other_processes(tmp_path: Path) -> None:
    # A parent's and our own environment have the secret from their start.
    script = """
import asyncio, json, sys
from shepherd.tools.builtin.shell import execute_command
from shepherd.tools.tool import CommandOptions, ToolContext
async def seen(look, sudo):
    context = ToolContext(commands=CommandOptions(allow_sudo=sudo))
    command = f"({look}) 2>/dev/null | grep -ao 'a-long-[a-z-]*'"
    return "a-long-secret-value" in (await execute_command.run(context, {"command": command})).content
async def main():
    print(json.dumps([[how for how, look in json.loads(sys.argv[1]).items() if await seen(look, sudo)]
                      for sudo in (False, True)]))
asyncio.run(main())
"""
    (tmp_path / "script.py").write_text(script)
    line = [sys.executable, str(tmp_path / "script.py"), json.dumps(LOOKS)]
    parents = ["bash", "-c", '"$@"; true', "bash", *line]
    env = {**os.environ, "X_TOKEN": "a-long-secret-value"}
    printed = subprocess.run(parents, env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == [[], list(LOOKS)]


async def test_a_confined_command_can_work_with_its_files_and_its_children(tmp_path: Path) -> None:
    command = "mkdir a b && echo x > a/f && ln a/f b/g && mv a/f b/h && cat b/*; sleep 9 & cat /proc/$!/environ | wc -l"
    result = await call(command, ToolContext(roots=Roots.of([str(tmp_path)])))
    assert result.content.startswith("x\nx\n0\n")


ESCAPES = {
    "a child in the background": "sleep {n} & sleep {n}",
    "a session of its own": "setsid sleep {n} & sleep {n}",
    "a daemon": "(setsid sleep {n} </dev/null >/dev/null 2>&1 &); sleep {n}",
    "no environment": "env -i sleep {n} & sleep {n}",
    "a child of a daemon without environment": "(setsid sh -c 'env -i sleep {n}; :' &); sleep {n}",
    "deaf to TERM": "trap '' TERM; sleep {n} & sleep {n}; sleep {n}",
    "stopped": "sleep {n} & kill -STOP $!; kill -STOP $$",
    "born while it is ended": "trap 'setsid sleep {n} & sleep {n}' TERM; sleep {n} & wait; wait",
    "always new ones": "while :; do sleep {n} & sleep 0.01; done",
}


@pytest.mark.parametrize("how", ESCAPES)
async def test_the_deadline_ends_the_whole_tree(how: str, seconds: str) -> None:
    result = await call(ESCAPES[how].format(n=seconds), timeout=0.4)
    assert not result.success
    assert result.error == (
        "timed out after 0.4 s and was ended with everything it had started; "
        "a longer timeout may be given, at most 3600 s"
    )
    assert result.content.endswith(result.error)


@pytest.mark.parametrize("how", [how for how in ESCAPES if how != "stopped"])
async def test_cancelling_ends_the_whole_tree(how: str, seconds: str) -> None:
    begun = threading.Event()
    context = ToolContext(tell=lambda line: begun.set())
    command = "(sleep 0.2; echo begun); " + ESCAPES[how].format(n=seconds)
    task = asyncio.create_task(call(command, context, timeout=3600))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "command",
    [
        "sleep {n} & echo x",
        "sleep {n} >/dev/null 2>&1 & echo x",
        "setsid -f sleep {n}; echo x",
        "(setsid sleep {n} &); echo x",
        "nohup sleep {n} & echo x",
    ],
)
async def test_what_is_left_in_the_background_is_ended_and_told(command: str, seconds: str) -> None:
    """A command that is done does not wait for them, though they hold its output open."""
    result = await call(command.format(n=seconds), timeout=3000)
    assert result.success
    assert "x\n" in result.content
    # It may not yet have become `sleep` when it is found.
    assert re.search(rf"these background processes were ended: .*sleep {seconds}.*\nexit code 0$", result.content)


async def test_what_was_written_before_the_deadline_is_shown(seconds: str) -> None:
    async def attempt(timeout_s: float) -> None:
        result = await call(f"echo early; echo wrong >&2; sleep {seconds}", timeout=timeout_s)
        assert result.content.startswith(f"early\nstderr:\nwrong\ntimed out after {timeout_s:g} s")

    await in_time(attempt)


@pytest.mark.parametrize("then", ["sleep {n} & wait", "kill -STOP $$"])
async def test_a_goodbye_is_heard(seconds: str, then: str) -> None:
    """Who is asked to end, be it in its sleep, may still write more than a pipe holds."""

    async def attempt(timeout_s: float) -> None:
        result = await call(f"trap 'seq 40000; echo bye; exit 0' TERM; {then.format(n=seconds)}", timeout=timeout_s)
        assert "39999\n40000\nbye\n" in result.content

    await in_time(attempt)


async def test_commands_run_side_by_side(seconds: str) -> None:
    results = await asyncio.gather(*(call(f"echo {n}; sleep 0.0{n}") for n in range(8)))
    assert [result.content for result in results] == [f"{n}\nexit code 0" for n in range(8)]


async def test_a_person_sees_the_last_line(tmp_path: Path) -> None:
    told: list[str] = []
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def tell(line: str) -> None:
        told.append(line)
        if line == "second":
            threading.Thread(target=gate.write_text, args=("go\n",)).start()

    await call(f"sleep 0.2; printf 'first\\nsecond\\n'; read x < {gate}", ToolContext(tell=tell))
    assert told[-1] == "second"
    assert set(told) <= {"first", "second"}


def test_a_tree_is_not_its_neighbours() -> None:
    """Only what carries the same mark, or descends from the process, is found."""
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True, env={MARK: "outer mine"}) as mine,
        subprocess.Popen(["sleep", "60"], start_new_session=True, env={MARK: "mine"}) as daemon,
        subprocess.Popen(["sleep", "60"], start_new_session=True, env={MARK: "other"}) as other,
    ):
        tree = ProcessTree(mine.pid, "mine")
        # A program that has just started may not have its environment yet.
        assert becomes_true(lambda: {process.pid for process in tree.members()} == {mine.pid, daemon.pid})
        for pause_s in tree.ending():
            threading.Event().wait(pause_s)
        assert tree.background == ["sleep 60"]
        assert other.poll() is None
        other.kill()
    assert (mine.returncode, daemon.returncode, other.returncode) == (
        -signal.SIGTERM,
        -signal.SIGTERM,
        -signal.SIGKILL,
    )


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="the command cannot be started: No such file or directory"):
        run(
            [str(tmp_path / "nothing")], None, {}, timeout_s=1, max_bytes=1, stop=threading.Event(), tell=print
        )  # fmt: skip


async def test_a_flood_costs_no_memory_and_leaves_its_beginning_and_its_end() -> None:
    context = ToolContext(commands=CommandOptions(max_bytes=10_000))
    tracemalloc.start()
    try:
        result = await call("echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo; echo last", context)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.content.startswith("first\nxxx")
    assert result.content.endswith("xxx\nlast\nexit code 0")
    assert "\n… 39990012 bytes left out …\n" in result.content
    assert peak < 5_000_000
