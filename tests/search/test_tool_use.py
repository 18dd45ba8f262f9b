"""The tests of `tests/unit/test_tool_use.py` that take long."""

import asyncio
import os
from pathlib import Path

import httpx2
import psutil
from tests.unit.test_tool_use import (
    ASKED,
    Model,
    folder,  # noqa: F401 - fixtures
    serving,
)


async def test_a_client_that_leaves_in_the_middle_of_a_call_ends_what_the_call_has_started(folder: Path) -> None:
    fifo = folder / "started"
    os.mkfifo(fifo)
    running = Model("execute_command", command="sleep 3600 & echo $$ > started; wait")
    async with (
        serving(folder, running, enable_tools=("command",)) as (address, service),
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        for stream in (True, False):
            service.ended.clear()
            body = {"model": "fake", "messages": ASKED, "stream": stream}
            asking = asyncio.create_task(http.post(f"{address}/v1/chat/completions", json=body))
            shell = psutil.Process(int(await asyncio.to_thread(fifo.read_text)))
            family = [shell, *shell.children()]
            asking.cancel()
            await service.ended.wait()
            await asyncio.to_thread(psutil.wait_procs, family, timeout=30)
            assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)
