"""Recorded tool loops: a provider gets the same bytes whether a client keeps thoughts and signatures or drops them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.providers_replay import REASON, Way, answer_of, replaying, sessions
from tests.unit.backends.cloud.test_recordings import ENDPOINTS, backend_for, is_there

from shepherd.core import Message, Opaque, Part, Reasoning, Request, Text, ToolCall, ToolResult, fold
from shepherd.wire.signature import raw_for

SESSIONS = [
    session
    for session in sessions()
    if all(is_there(ENDPOINTS[step["endpoint"]]) and not step["expect"].get("error") for step in session["steps"])
    and not session["steps"][0]["request"]["path"].endswith("/v1/chat")
]


def dropped(message: Message) -> Message:
    """The answer as a client of chat completions sends it back."""

    def left(part: Part) -> Part | None:
        if isinstance(part, Reasoning | Opaque):
            return None
        return ToolCall(part.id, part.name, part.arguments) if isinstance(part, ToolCall) else part

    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = tuple(part for part in map(left, message.parts) if isinstance(part, ToolCall))
    return Message("assistant", ((Text(text),) if text else ()) + calls)


async def played(session: dict[str, Any], *, drops: bool) -> tuple[list[bytes], list[Message]]:
    """The bodies that were sent, and the answers."""
    answers = [replace(answer_of(step), way=Way(number)) for number, step in enumerate(session["steps"])]
    messages, replies = [Message.user("question")], list[Message]()
    async with replaying(library={session["id"]: answers}) as server:
        backend = backend_for({**session["steps"][0], "id": session["id"], "provider": session["provider"]}, server.url)
        for step in session["steps"]:
            request = Request("m", tuple(messages), owner="me")
            reply = fold([event async for event in backend.stream(request)]).message
            assert reply.text == (step["expect"].get("text") or "")
            replies.append(reply)
            messages.append(dropped(reply) if drops else reply)
            results = tuple(ToolResult(call.id, (Text("result"),), call.name) for call in reply.calls)
            messages.append(Message("tool", results) if results else Message.user("next"))
        await backend.aclose()
        assert server.faults == []
        return [each.body for each in server.requests], replies


@pytest.mark.grid(0.2)
@pytest.mark.skipif(not SESSIONS, reason=REASON)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session["id"])
async def test_what_a_client_drops_is_sent_all_the_same(session: dict[str, Any]) -> None:
    kept, replies = await played(session, drops=False)
    dropping, others = await played(session, drops=True)
    has_own_ids = [[call.id for call in reply.calls] for reply in replies] != [
        [call.id for call in reply.calls] for reply in others
    ]
    if not has_own_ids:  # calls without ids get random ones
        assert dropping == kept
    for number, reply in enumerate(others[:-1]):
        for part in reply.parts:
            signature = part.signature if isinstance(part, Reasoning | ToolCall) else None
            protocol = ENDPOINTS[session["steps"][0]["endpoint"]]
            raw = raw_for(protocol, signature)
            if raw is not None and (raw := of_item(raw)):
                assert raw.encode() in dropping[number + 1]


def of_item(raw: str) -> str:
    """Of a whole item of Responses, what proves it; empty where nothing does."""
    return str(json.loads(raw).get("encrypted_content") or "") if raw.startswith("{") else raw
