"""The tests of `tests/unit/server/test_anthropic_client.py` that start programs."""

import json
from typing import Any

import anthropic
import pytest
from tests.unit.server.test_anthropic_client import ASK

SYSTEM: Any = [
    {"type": "text", "text": "x-anthropic-billing-header: cch=0;"},
    {"type": "text", "text": "You are a sheep. " * 20, "cache_control": {"type": "ephemeral"}},
]


def test_the_embedded_model_counts_exactly_and_finds_its_first_turn_in_the_cache(server: str) -> None:
    """The accounting line changes with every request; the newest message is blocks first and a string later."""
    asked: Any = {"role": "user", "content": [{"type": "text", "text": "Hi!", "cache_control": {"type": "ephemeral"}}]}
    with anthropic.Anthropic(base_url=server, api_key="any", max_retries=0, default_headers=SESSION) as client:
        counted = client.messages.count_tokens(model="claude-x", system=SYSTEM, messages=[asked])
        with client.messages.stream(
            model="claude-x", max_tokens=8, system=SYSTEM, messages=[asked], extra_body=GREEDY
        ) as stream:
            first = next(iter(stream))
            answer = stream.get_final_message()
        assert first.type == "message_start"
        begun = first.message.usage
        prompt = begun.input_tokens + (begun.cache_read_input_tokens or 0) + (begun.cache_creation_input_tokens or 0)
        assert prompt == counted.input_tokens
        assert answer.usage.input_tokens == begun.input_tokens
        assert 0 < answer.usage.output_tokens <= 8
        assert answer.stop_reason in ("end_turn", "max_tokens")

        later: Any = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, SYSTEM[1]]
        history: Any = [
            {"role": "user", "content": "Hi!"},
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": "And you?"},
        ]
        again = client.messages.create(
            model="claude-x", max_tokens=8, system=later, messages=history, extra_body=GREEDY
        )
        full = client.messages.count_tokens(model="claude-x", system=later, messages=history).input_tokens
    told = again.usage
    assert told.input_tokens + (told.cache_read_input_tokens or 0) == full
    assert (told.cache_read_input_tokens or 0) >= prompt - 1
    assert json.loads(again.model_dump_json())["model"] == "claude-x"


GREEDY = {"temperature": 0}


SESSION = {"x-claude-code-session-id": "test-anthropic-client"}


def test_the_embedded_model_calls_the_named_tool_and_continues_from_its_own_tokens(server: str) -> None:
    tools: Any = [
        {
            "name": name,
            "description": f"Gets the {name}.",
            "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        }
        for name in ("wool", "milk")
    ]
    asked: Any = [{"role": "user", "content": "Get some!"}]
    with anthropic.Anthropic(base_url=server, api_key="any", max_retries=0) as client:
        answer = client.messages.create(
            model="claude-x", max_tokens=200, tools=tools, messages=asked, tool_choice={"type": "tool", "name": "milk"},
            extra_body=GREEDY,
        )  # fmt: skip
        call = answer.content[-1]
        assert call.type == "tool_use"
        assert (answer.stop_reason, call.name, list(call.input)) == ("tool_use", "milk", ["n"])
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "A bottle of milk."}
        history: Any = [*asked, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        again = client.messages.create(model="claude-x", max_tokens=8, tools=tools, messages=history, extra_body=GREEDY)
    written = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) + answer.usage.output_tokens
    assert (again.usage.cache_read_input_tokens or 0) >= written - 2  # the end of the turn, and the token behind it


def test_the_embedded_model_refuses_what_does_not_fit_in_the_words_that_clients_parse(server: str) -> None:
    long: Any = [{"role": "user", "content": "sheep " * 10_000}]
    with anthropic.Anthropic(base_url=server, api_key="any", max_retries=0, timeout=60) as client:
        for stream in (False, True):
            with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
                client.messages.create(model="claude-x", max_tokens=64_000, messages=long, stream=stream)
        short = client.messages.create(
            model="claude-x", max_tokens=64_000, messages=ASK["messages"], stop_sequences=["."]
        )
    assert short.content
