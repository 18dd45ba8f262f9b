"""The tests of `tests/unit/server/test_vision_surfaces.py` that start programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.engine.tiny_projector import png
from tests.unit.server.test_vision import image, text
from tests.unit.server.test_vision_surfaces import (
    N_ANSWER,
    WORDS,
    Ask,
    Server,
    chat,
    encoded,
    of_ollama,
    of_responses,
    posted,
    question,
    server,  # noqa: F401 - fixtures
)
from tests.unit.tools.mcp.scene import Nod, Stage, call_tool, scripted

from shepherd.app.toolset import Advisors
from shepherd.core import Assembler, Message, Request, Text, ToolCall, ToolResult
from shepherd.tools.tool import ToolContext

pytestmark = [pytest.mark.model]

SEEN = "[image, image/png, {} bytes]"


def in_order(data: bytes) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [text("see "), image(data), text(WORDS)]},
    ]


def result(data: bytes, words: str = "a picture", *, image_first: bool = False) -> list[dict[str, Any]]:
    call = {"id": "call1", "type": "function", "function": {"name": "look", "arguments": '{"at": 3}'}}
    parts = [text(words), image(data)]
    return [
        {"role": "user", "content": WORDS},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call1", "content": parts[::-1] if image_first else parts},
    ]


def block(data: bytes) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(data)}}


def input_image(data: bytes) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(data)}"}


def anthropic_result(data: bytes) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "call1", "name": "look", "input": {"at": 3}}
    shown = {"type": "tool_result", "tool_use_id": "call1", "content": [text("a picture"), block(data)]}
    messages = [
        {"role": "user", "content": WORDS},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [shown]},
    ]
    return {"messages": messages}


def responses_result(data: bytes) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "call1", "name": "look", "arguments": '{"at": 3}'}
    output = [{"type": "input_text", "text": "a picture"}, input_image(data)]
    shown = {"type": "function_call_output", "call_id": "call1", "output": output}
    return {"input": [{"role": "user", "content": WORDS}, call, shown]}


def ollama_result(data: bytes) -> dict[str, Any]:
    call = {"function": {"name": "look", "arguments": {"at": 3}}}
    messages = [
        {"role": "user", "content": WORDS},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "look", "content": "a picture", "images": [encoded(data)]},
    ]
    return {"messages": messages}


def of_anthropic(answer: Any) -> str:
    return str(answer["content"][0]["text"])


def sampled_from(server: Server, blocks: list[dict[str, Any]], seen: str) -> str:
    """The answer of the model to an MCP server that sends it `blocks`, of which the person sees `seen`."""
    person = Nod({})

    async def ask() -> str:
        advisors = Advisors([("eyes", True)], server.app.conversations.stream)
        said = [{"role": "user", "content": blocks}]
        async with Stage(scripted(said=said), person=person, answer=advisors.answer) as servers:
            answered = json.loads((await call_tool(servers, "s", "ask_model", {}, ToolContext())).content)
            return str(answered["content"]["text"])

    answer = server.run(ask())
    assert seen in person.forms[0].message
    return answer


def sampled(server: Server, data: bytes) -> str:
    blocks = [
        {"type": "text", "text": "see "},
        {"type": "image", "data": encoded(data), "mimeType": "image/png"},
        {"type": "text", "text": WORDS},
    ]
    return sampled_from(server, blocks, f"see [image, image/png, {len(data):,} bytes]{WORDS}")


def called(server: Server, data: bytes) -> str:
    """A tool of an MCP server has an image in its result."""

    async def ask() -> str:
        async with Stage(scripted(image=encoded(data))) as servers:
            found = await call_tool(servers, "s", "many", {}, ToolContext())
        messages = (
            Message.user(WORDS),
            Message("assistant", (ToolCall("call1", "look", '{"at": 3}'),)),
            Message("tool", (ToolResult("call1", (Text(found.content), *found.images)),)),
        )
        assembler = Assembler()
        async for event in server.app.conversations.stream(Request("eyes", messages, max_tokens=N_ANSWER)):
            assembler.feed(event)
        return assembler.reply().message.text

    return server.run(ask())


def all_items(data: bytes) -> list[dict[str, Any]]:
    lines = [
        "first", SEEN.format(len(data)), "[audio, audio/wav, 5 bytes]", "[note://2]", "inside",
        "[note://3: binary data, a/b, 5 bytes, not shown]",
        '[note, text/plain: read_resource(uri="note://1", server="s") reads it]', "last",
    ]  # fmt: skip
    return result(data, "\n".join(lines))


CASES: dict[str, tuple[Ask, Callable[[bytes], list[dict[str, Any]]]]] = {
    "ollama generate": (
        posted(
            "/api/generate", lambda data: {"prompt": WORDS, "images": [encoded(data)]},
            lambda answer: str(answer["response"]),
        ),
        question,
    ),
    "ollama chat": (
        posted(
            "/api/chat", lambda data: {"messages": [{"role": "user", "content": WORDS, "images": [encoded(data)]}]},
            of_ollama,
        ),
        question,
    ),
    "ollama tool message": (posted("/api/chat", ollama_result, of_ollama), partial(result, image_first=True)),
    "responses": (
        posted(
            "/v1/responses",
            lambda data: {
                "instructions": "Be brief.",
                "input": [{"role": "user", "content": [
                    {"type": "input_text", "text": "see "}, input_image(data), {"type": "input_text", "text": WORDS},
                ]}],
            },
            of_responses,
        ),
        in_order,
    ),
    "responses call output": (posted("/v1/responses", responses_result, of_responses), result),
    "anthropic": (
        posted(
            "/v1/messages",
            lambda data: {
                "system": "Be brief.",
                "messages": [{"role": "user", "content": [text("see "), block(data), text(WORDS)]}],
            },
            of_anthropic,
        ),
        in_order,
    ),
    "anthropic tool result": (posted("/v1/messages", anthropic_result, of_anthropic), result),
    "mcp sampling": (sampled, in_order),
    "mcp tool result": (called, all_items),
}  # fmt: skip


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("case", CASES)
def test_an_image_has_the_same_answer_through_every_surface(case: str, server: Server) -> None:
    ask, reference = CASES[case]
    answers = []
    for seed in (1, 4):
        (wanted,) = chat(server, reference(png(seed)))
        assert ask(server, png(seed)) == wanted
        assert len(wanted) == N_ANSWER
        answers.append(wanted)
    assert len({*answers}) == 2, "the answer depends on the image"
