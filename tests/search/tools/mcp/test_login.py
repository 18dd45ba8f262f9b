"""The tests of `tests/unit/tools/mcp/test_login.py` that take long."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import psutil
import pytest
from tests.in_time import until
from tests.unit.tools.mcp.authorization import options_of, world
from tests.unit.tools.mcp.test_login import logged_in

from shepherd.tools.mcp.login_store import LoginFile

OTHER = """
import asyncio, sys
from pathlib import Path
from tests.unit.tools.mcp.scene import Stage, call_tool
from shepherd.tools.mcp.values import LoginOptions, ServerOptions
from shepherd.tools.tool import ToolContext
async def main():
    options = ServerOptions("web", url=sys.argv[1], timeout=60)
    async with Stage(options, login=LoginOptions(Path(sys.argv[2]))) as servers:
        print((await call_tool(servers, "web", "t", {}, ToolContext())).content)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process does not show its open files there")
async def test_two_processes_renew_one_login_once(tmp_path: Path) -> None:
    async with world() as made:
        await logged_in(made, tmp_path)
        made.tokens.clear()
        made.seen.clear()
        lock = str(LoginFile.of(options_of(made), tmp_path).path.with_suffix(".lock"))
        pids: list[int] = []

        def waits(pid: int) -> bool:
            return any(each.path == lock for each in psutil.Process(pid).open_files())

        async def both_are_here() -> None:
            await until(lambda: len(pids) == 2)
            await until(lambda: made.seen.count("POST /token") > 1 or all(map(waits, pids)))

        made.before_token = both_are_here
        command = (sys.executable, "-c", OTHER, made.url, str(tmp_path))
        processes = [await asyncio.create_subprocess_exec(*command, stdout=PIPE) for _ in range(2)]
        pids += [each.pid for each in processes]
        answers = await asyncio.gather(*(each.communicate() for each in processes))
    assert [answer for answer, _ in answers] == [b"done\n"] * 2
    assert made.seen.count("grant refresh_token") == 1
    assert LoginFile.of(options_of(made), tmp_path).read().state == "logged in"
