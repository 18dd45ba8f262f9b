"""The tests of `tests/unit/test_tool_use.py` that start programs."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest
from tests.unit.test_tool_use import (
    ASKED,
    Model,
    folder,  # noqa: F401 - fixtures
    serving,
)

from shepherd.server.endpoints.handler import Limits


@pytest.mark.parametrize(
    ("path", "ping"), [("/v1/chat/completions", ": ping"), ("/v1/messages", "event: ping")], ids=["openai", "anthropic"]
)
async def test_a_client_hears_that_it_is_not_forgotten_while_a_tool_runs(folder: Path, path: str, ping: str) -> None:
    gate = folder / "gate"
    os.mkfifo(gate)
    waiting = Model("execute_command", command="cat gate")
    limits = Limits(ping_s=0.05)
    async with (
        serving(folder, waiting, limits=limits, enable_tools=("command",)) as (address, _),
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        body = {"model": "fake", "messages": ASKED, "stream": True, "max_tokens": 100}
        lines: list[str] = []
        async with (
            http.stream("POST", f"{address}{path}", json=body) as response,
        ):
            is_shut = True
            async for line in response.aiter_lines():
                lines.append(line)
                if line.startswith(ping) and any("I look" in each for each in lines) and is_shut:
                    await asyncio.to_thread(gate.write_text, "done\n")
                    is_shut = False
        assert not is_shut
        assert any("done" in line for line in lines)
