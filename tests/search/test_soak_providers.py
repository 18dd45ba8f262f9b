"""The soak of providers in small, and its checkers, each shown what it is there to find."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from bench.soak import providers
from bench.soak.providers import Client, FaultyProvider, Plan, Stage, check_the_end, key_of, text_for
from bench.soak.server import Running
from bench.soak.surfaces import Answer, Ask, Turn
from tests.cases import amount

TOKEN = "t1-7"
WHOLE = text_for(TOKEN)


def found(answer: Answer, *, route: str = "steady", by: str = "first") -> list[str]:
    """The kinds of findings about one answer."""
    stage = Stage()
    with_nothing: Any = None
    client = Client(1, stage, with_nothing, Plan(1.0), str)
    client._checked(Ask("chat", f"{route}-1", (Turn("user", TOKEN),)), TOKEN, route, answer, by)
    return [each["kind"] for each in stage.findings.told]


def test_what_is_lost_doubled_misled_or_refused_is_noticed() -> None:
    right = Answer(200, WHOLE, finish="stop")
    assert found(right) == []
    assert found(Answer(200, WHOLE[:-1], finish="stop")) == ["wrong"]
    assert found(Answer(200, WHOLE + WHOLE, finish="stop")) == ["wrong"]
    assert found(Answer(200, WHOLE)) == ["broken"]
    assert found(Answer(200, WHOLE[:9], error="{}")) == []
    assert found(Answer(200, WHOLE[1:9], error="{}")) == ["wrong"]
    assert found(Answer(200, "anything", finish="stop"), by="local") == []
    assert found(Answer(200, "anything", finish="stop"), route="spread", by="local") == ["wrong"]
    assert found(right, route="near") == ["wrong"]
    for answer in (right, Answer(200, error="{}"), Answer(200, WHOLE[:9], error="{}")):
        assert found(answer, route="spread", by="-") == []
    assert found(Answer(200, "<tool_call>", finish="stop"), route="spread", by="-") == ["wrong"]
    assert found(Answer(200, "<tool_call>", finish="stop"), route="poor", by="-") == []
    for status, kinds in ((429, []), (503, []), (400, ["refused"]), (500, ["refused"])):
        assert found(Answer(status, error="no")) == kinds


def test_what_only_the_whole_run_shows_is_noticed(tmp_path: Path) -> None:
    stage, log = Stage(), tmp_path / "warm.log"
    log.write_text(f"Authorization: Bearer {key_of('second')}")
    stage.told["t1-1"] = 2
    provider = FaultyProvider("first", stage, 1)
    provider.faults.append("a call without its result")
    spent = {"fourth": {"today": {"input": 10 * providers.BUDGET, "cached": 0, "output": 0}}}
    process: Any = None
    check_the_end(stage, Running("", process, log), tmp_path, {"first": provider}, spent)
    words = [each["what"] for each in stage.findings.told]
    for word in ("was given 2 times", "a call without its result", "holds a key", "tokens were spent"):
        assert any(word in each for each in words), word


def test_a_stream_without_an_end_and_a_key_in_an_error_are_noticed() -> None:
    async def asked(body: bytes, status: int = 200) -> list[str]:
        transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body))
        stage, plan = Stage(), Plan(1.0)
        async with httpx.AsyncClient(transport=transport, base_url="http://warm") as http:
            client = Client(1, stage, http, plan, str)
            await client._ask(Ask("chat", "steady-1", (Turn("user", TOKEN),), stream=True), TOKEN, "steady")
        return [each["kind"] for each in stage.findings.told]

    assert asyncio.run(asked(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')) == ["broken"]
    assert asyncio.run(asked(b"data: {\n\n")) == ["broken"]
    assert asyncio.run(asked(b'{"error": "SECRET"}', 503)) == ["wrong"]


@pytest.mark.model
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_between_faulty_providers(tmp_path: Path) -> None:
    plan = Plan(1e6, clients=5, seed=7, requests=amount(80, 400), pause_s=0.0)
    result = asyncio.run(providers.soak(plan, tmp_path))
    assert result["findings"] == []
    assert providers.failures(result) == []
    assert result["counts"]["answered"] > amount(16, 80)
    assert {"fault: none", "left"} <= result["counts"].keys()
    assert sum(name.startswith("fault: ") for name in result["counts"]) > 4
    assert result["settled"]["requests to providers"] == result["settled"]["jobs"] == 0
