"""The tests of `tests/unit/tools/test_toolbox.py` that start programs."""

import asyncio

import psutil
import pytest
from tests.unit.tools.test_toolbox import boxed, call

from shepherd.tools.builtin.shell import execute_command


async def test_a_command_that_is_cancelled_leaves_no_process() -> None:
    box = boxed(execute_command)
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hear(line: str) -> None:
        if not told.done():
            told.set_result(int(line))

    asked = call("execute_command", command="while true; do echo $$; sleep 0.01; done")
    task = asyncio.create_task(box.run(asked, tell=hear))
    pid = await told
    assert psutil.pid_exists(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(pid)
