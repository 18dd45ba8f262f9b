"""A request that demands what only one provider does: it goes there, and is refused everywhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.own_app import app_of, loaded
from tests.providers_replay import Answer, replaying

from shepherd.cli.command.serve import loops
from shepherd.core import InvalidRequest, Request
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.openai.responses import codec as responses

SEARCH = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
HELLO: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
DEMANDS: dict[str, tuple[Request, str]] = {
    "a tool by name": (
        anthropic.decode_request({**HELLO, **SEARCH, "tool_choice": {"type": "tool", "name": "web_search"}}).request,
        "only its vendor's servers can run",
    ),
    "any tool": (
        anthropic.decode_request({**HELLO, **SEARCH, "tool_choice": {"type": "any"}}).request,
        "no tool is offered that can be called here",
    ),
    "a hosted tool": (
        responses.decode_request({"model": "m", "input": "Hello.", "tool_choice": {"type": "web_search"}}).request,
        "which nothing here can run",
    ),
}
ANSWER = b"""{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
"content": [{"type": "text", "text": "Found."}], "usage": {"input_tokens": 1, "output_tokens": 1}}"""


async def answered(tmp_path: Path, toml: str, request: Request) -> str:
    async with loaded(app_of(tmp_path, toml), lazy=True) as app:
        events = [event async for event in app.conversations.stream(request, endpoint="/v1/messages")]
    return "".join(getattr(event, "text", "") for event in events)


async def test_a_provider_of_the_protocol_gets_it_and_another_one_does_not(tmp_path: Path) -> None:
    request, why = DEMANDS["a tool by name"]
    async with replaying(Answer("/v1/messages", ANSWER, headers={"content-type": "application/json"})) as server:
        toml = f'[providers.x]\ntype = "{{}}"\nbase_url = "{server.url}"\nmodel = "m"\napi_key = "k"\n'
        assert await answered(tmp_path, toml.format("anthropic"), request) == "Found."
        (received,) = [each for each in server.requests if each.method == "POST"]
        assert received.json["tool_choice"] == {"type": "tool", "name": "web_search"}
        assert received.json["tools"][0]["type"] == "web_search_20250305"
        with pytest.raises(InvalidRequest, match=why):
            await answered(tmp_path, toml.format("openai"), replace(request))
        assert sum(each.method == "POST" for each in server.requests) == 1


async def test_a_provider_at_our_own_address_is_warned_of(tmp_path: Path) -> None:
    lines = [
        f'[providers.{name}]\ntype = "vllm"\nbase_url = "http://127.0.0.1:{port}"'
        for name, port in (("us", 8000), ("b", 8001))
    ]
    async with loaded(app_of(tmp_path, "\n".join(lines)), lazy=True) as app:
        (warning,) = loops(app, 8000)
    assert warning.startswith("the provider 'us' is this server itself (http://127.0.0.1:8000/v1)")
