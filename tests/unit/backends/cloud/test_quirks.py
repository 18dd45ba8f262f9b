"""Answers as gateways write them are the answers that the providers behind them gave."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from tests.providers_quirks import QUIRKS
from tests.providers_scripted import Said, scripted

from shepherd.backends.cloud.backend import CloudBackend
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.core import Message, Reply, Request, ToolCall, ToolSpec, Usage, fold
from shepherd.wire.signature import Protocol

ANSWER = Said(
    "I look \U0001f600\U0001f411 now, and say so.",
    "Hm, yes: \U0001f4a1.",
    (("look", {"at": 1, "what": "a\U0001f600b"}), ("rest", {"for": "\U0001f411"}), ("look", {"at": 2})),
)
TOOLS = (ToolSpec("look"), ToolSpec("rest"))
KIND = {protocol: kind for kind in reversed([*KINDS.values()]) for protocol in kind.protocols}


async def reply_of(protocol: Protocol, said: Said) -> Reply:
    async with scripted(protocol, lambda heard: said) as provider:
        row = provider_of(KIND[protocol], base_url=provider.url, key="k", protocol=protocol, model="m")
        backend = CloudBackend(row, chance=lambda: 0.0)
        try:
            async with aclosing(backend.stream(Request("m", (Message.user("Hello."),), tools=TOOLS))) as events:
                return fold([event async for event in events])
        finally:
            await backend.aclose()


def said_in(reply: Reply) -> tuple[str, str, list[tuple[str, Any]], str, Usage]:
    """All but the ids."""
    calls = [(call.name, json.loads(call.arguments)) for call in reply.message.calls if isinstance(call, ToolCall)]
    return reply.message.text, reply.message.reasoning, calls, reply.reason, reply.usage


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("protocol", "name"), [(protocol, name) for protocol in QUIRKS for name in QUIRKS[protocol]])
async def test_a_gateway_s_answer_is_the_provider_s(protocol: Protocol, name: str) -> None:
    for answer in (ANSWER, replace(ANSWER, calls=()), replace(ANSWER, calls=(), is_cut=True)):
        plain = await reply_of(protocol, answer)
        reply = await reply_of(protocol, replace(answer, quirk=QUIRKS[protocol][name]))
        assert said_in(reply) == said_in(plain)
        ids = [call.id for call in reply.message.calls]
        assert all(id.strip() for id in ids)
        assert len({*ids}) == len(ids) == len(answer.calls)
