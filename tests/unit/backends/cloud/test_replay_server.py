"""The replaying server is a faithful provider: right path, method and stream flag, or a fault; also as a process."""

from __future__ import annotations

import httpx2
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
