"""The tests of `tests/unit/backends/cloud/test_replay_server.py` that start programs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx2
from tests.places import TESTS
from tests.unit.backends.cloud.providing import CHAT, SPOKEN


async def test_as_a_process(tmp_path: Path) -> None:
    recording = {
        "id": "one",
        "endpoint": "openai.chat",
        "request": {"method": "POST", "path": CHAT, "body": {}},
        "response": {"status": 200, "headers": {"content-type": "text/event-stream"}, "sse_text": SPOKEN.decode()},
    }
    (tmp_path / "index.json").write_text(json.dumps([{"file": "one.json"}]))
    (tmp_path / "one.json").write_text(json.dumps(recording))
    script = str(TESTS / "providers_replay.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, "--folder", str(tmp_path), "--seed", "1", stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().partition(": ")[0]
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{url}/one{CHAT}", json={"stream": True})
        assert answer.content == SPOKEN
    finally:
        process.terminate()
        await process.wait()
