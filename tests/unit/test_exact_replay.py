"""An answer that comes back is the very tokens in the cache, in every protocol and as its clients send it (K7).

The model thinks, says a word and makes a call in its own spelling; the client answers the call. The next request must
find all of that in the cache: what is computed is the result alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.scripted_service import ScriptedService

from shepherd.backends.local.backend import LocalBackend
from shepherd.cli.command.replay import listening
from shepherd.core import Event, Request
from shepherd.dialects import Template, detect
from shepherd.engine.engine import InProcessEngine

TEMPLATE = """
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>
{{ m.reasoning_content or '' }}
</think>

{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CALL = '<tool_call>{"arguments":{"b":[1,2],"a":"x"},"name":"add"}</tool_call>'
FIRST = f"I should add.\n</think>\nLet me see. \n\n{CALL}"
LAST = "Hm.\n</think>\n\nThree."
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}}
Json = dict[str, Any]


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[Callable[[str, Json], Any], InProcessEngine]]:
    """Asks a server whose model gives the two answers in turn; and that model's engine."""
    vocabulary = FakeVocabulary(user_defined=TAGS)
    answers = say(vocabulary, f"<think>\n{FIRST}", f"<think>\n{LAST}")
    runtime = FakeRuntime(answers, frozenset({vocabulary.ids["<|im_end|>"]}))
    engine = InProcessEngine(runtime, show=vocabulary.piece)
    template = Template(TEMPLATE)
    backend = LocalBackend(engine, vocabulary, template=template, dialect=detect(TEMPLATE), model="m")

    async def script(request: Request) -> AsyncIterator[Event]:
        async with aclosing(backend.stream(request)) as events:
            async for event in events:
                yield event

    try:
        async with (
            listening(ScriptedService(script)) as (url, key),  # type: ignore[arg-type]  # an iterator does
            httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}) as client,
        ):

            async def ask(path: str, body: Json) -> Json:
                answer = await client.post(path, json=body)
                assert answer.status_code == 200, answer.text
                reply: Json = answer.json()
                return reply

            yield ask, engine
    finally:
        await asyncio.to_thread(engine.close)


# Each makes the body of a request from the history, and from an answer what comes behind it in the next one.


def chat_body(history: list[Json]) -> Json:
    tool = {"type": "function", "function": {"name": "add", "description": "", "parameters": SCHEMA}}
    return {"model": "m", "messages": history, "tools": [tool]}


def chat_turn(answer: Json, *, keep: bool) -> list[Json]:
    message = answer["choices"][0]["message"]
    call = message["tool_calls"][0]
    kept = {"reasoning_content": message["reasoning_content"]} if keep else {}
    return [
        # As LiteLLM and others send it: content in parts, arguments parsed and written anew.
        {
            "role": "assistant",
            "content": [{"type": "text", "text": message["content"].strip()}],
            "tool_calls": [
                {**call, "function": {**call["function"], "arguments": anew(call["function"]["arguments"])}}
            ],
            **kept,
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "3"},
    ]


def messages_body(history: list[Json]) -> Json:
    tool = {"name": "add", "description": "", "input_schema": SCHEMA}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return {"model": "m", "max_tokens": 2000, "messages": history, "tools": [tool], "thinking": thinking}


def messages_turn(answer: Json, *, keep: bool) -> list[Json]:
    blocks = [block for block in answer["content"] if keep or block["type"] != "thinking"]
    blocks = [{**block, "text": block["text"].strip()} if block["type"] == "text" else block for block in blocks]
    blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    (call,) = (block for block in blocks if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "3"}]}
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]


def responses_body(history: list[Json]) -> Json:
    tool = {"type": "function", "name": "add", "description": "", "parameters": SCHEMA}
    return {"model": "m", "input": history, "tools": [tool], "store": False}


def responses_turn(answer: Json, *, keep: bool) -> list[Json]:
    items = [item for item in answer["output"] if keep or item["type"] != "reasoning"]
    (call,) = (item for item in items if item["type"] == "function_call")
    return [*items, {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}]


def ollama_body(history: list[Json]) -> Json:
    return {**chat_body(history), "stream": False, "think": True}


def ollama_turn(answer: Json, *, keep: bool) -> list[Json]:
    message = {name: value for name, value in answer["message"].items() if keep or name != "thinking"}
    message["tool_calls"] = [
        {"function": call["function"]} for call in message["tool_calls"]
    ]  # the protocol has no ids
    return [message, {"role": "tool", "tool_name": "add", "content": "3"}]


def anew(arguments: str) -> str:
    return json.dumps(json.loads(arguments), sort_keys=True, indent=2)


PROTOCOLS: Mapping[str, tuple[Any, ...]] = {
    "/v1/chat/completions": (chat_body, chat_turn),
    "/v1/messages": (messages_body, messages_turn),
    "/v1/responses": (responses_body, responses_turn),
    "/api/chat": (ollama_body, ollama_turn),
}
ASK: Json = {"role": "user", "content": "1 + 2?"}


@pytest.mark.parametrize("keep", [True, False], ids=["thoughts kept", "thoughts dropped"])
@pytest.mark.parametrize("path", PROTOCOLS)
async def test_the_result_of_a_call_is_all_that_is_computed(path: str, keep: bool) -> None:
    if path == "/api/chat" and not keep:
        pytest.skip("neither an id nor the thought comes back: nothing shows that the thought is this client's")
    body, turn = PROTOCOLS[path]
    async with asking() as (ask, engine):
        first = await ask(path, body([ASK]))
        before = engine.stats()
        await ask(path, body([ASK, *turn(first, keep=keep)]))
        after = engine.stats()
    assert after.cached_tokens - before.cached_tokens >= before.prefilled_tokens + n_tokens(FIRST)
    new = "\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert after.prefilled_tokens - before.prefilled_tokens <= n_tokens(new)


def n_tokens(text: str) -> int:
    for tag in ("<|im_start|>", "<|im_end|>", *TAGS):
        text = text.replace(tag, "\0")
    return len(text.encode())
