"""The tests of `tests/process/tools/mcp/test_servers.py` that take long."""

import asyncio
from pathlib import Path

from tests.in_time import SHORT_S, in_time
from tests.process.tools.mcp.test_servers import call, failure_of
from tests.unit.tools.mcp.scene import Stage, pids_in, scripted


async def test_a_server_that_reads_no_more_holds_up_only_its_own_calls(tmp_path: Path) -> None:
    async def attempt(timeout_s: float) -> None:
        pids = tmp_path / f"pids within {timeout_s}"
        async with Stage(scripted(timeout=timeout_s, pids=str(pids), deaf=True), scripted("other")) as servers:
            large = "x" * 10**6
            calls = (failure_of(servers, "freeze"), *(failure_of(servers, "old", text=large) for _ in range(2)))
            for error in await asyncio.gather(*calls):
                assert f"within {timeout_s:g} s" in error
            assert (await call(servers, "echo", "other")).content == "{}"
        assert pids_in(pids) == []

    await in_time(attempt, SHORT_S[1:])
