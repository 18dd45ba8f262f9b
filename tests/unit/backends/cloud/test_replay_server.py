"""The replaying server is a faithful provider: right path, method and stream flag, or a fault; also as a process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx2
from tests.places import TESTS
from tests.providers_replay import Answer, Way, replaying
from tests.unit.backends.cloud.providing import CHAT, SPOKEN, spoken


async def test_only_the_right_request_gets_the_answer() -> None:
    answer = Answer(CHAT, SPOKEN, stream=True)
    async with replaying(answer) as server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
        assert (await client.post("/v1/messages", json={"stream": True})).status_code == 404
        assert (await client.get(CHAT)).status_code == 404
        assert (await client.post(CHAT, json={"stream": False})).status_code == 400
        assert len(server.faults) == 3
        assert (await client.post(CHAT, json={"stream": True})).content == SPOKEN
        assert (await client.post(CHAT, json={"stream": True})).status_code == 400


async def test_sessions_by_the_first_part_of_the_path() -> None:
    library = {"s": [spoken(body=b"1"), spoken(Way(3), b"22")]}
    async with replaying(library=library) as server, httpx2.AsyncClient(trust_env=False) as client:
        bodies = [(await client.post(f"{server.url}/s{CHAT}", json={})).content for _ in range(3)]
        assert bodies == [b"1", b"22", b"1"]
        assert (await client.post(f"{server.url}/t{CHAT}", json={})).status_code == 400


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
