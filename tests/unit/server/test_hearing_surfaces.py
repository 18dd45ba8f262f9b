"""A recording has the same answer in every protocol, and a wrong one gets one sentence with its field."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import recordings
from tests.pictures import picture
from tests.unit.server.test_vision import got, post, text
from tests.unit.server.test_vision_surfaces import (
    N_ANSWER,
    WORDS,
    Server,
    chat,
    encoded,
    hosting,
    of_ollama,
    of_responses,
    posted,
)
from tests.unit.tools.mcp.scene import Nod, Stage, call_tool, scripted

from shepherd.app.toolset import Advisors
from shepherd.tools.tool import ToolContext

pytestmark = [pytest.mark.model]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with hosting(tmp_path_factory.mktemp("hearing"), "both") as made:
        yield made


def spoken(data: bytes, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": encoded(data), "format": form}}


def sampled(server: Server, data: bytes) -> str:
    """An MCP server asks the model."""
    blocks = [
        {"type": "audio", "data": encoded(data), "mimeType": "audio/wav"},
        {"type": "text", "text": WORDS},
    ]

    person = Nod({})

    async def ask() -> str:
        advisors = Advisors([("eyes", True)], server.app.conversations.stream)
        said = [{"role": "user", "content": blocks}]
        async with Stage(scripted(said=said), person=person, answer=advisors.answer) as servers:
            answered = json.loads((await call_tool(servers, "s", "ask_model", {}, ToolContext())).content)
            return str(answered["content"]["text"])

    answer = server.run(ask())
    assert f"[audio, audio/wav, {len(data):,} bytes]" in person.forms[0].message, "the person sees it named"
    return answer


CASES: dict[str, Callable[[Server, bytes], str]] = {
    "llama-server's address": lambda server, data: chat(
        server,
        [{"role": "user", "content": [
            {"type": "input_audio", "input_audio": {"url": f"data:audio/wav;base64,{encoded(data)}"}}, text(WORDS)]}],
    )[0],
    "vLLM's audio_url": lambda server, data: chat(
        server,
        [{"role": "user", "content": [
            {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{encoded(data)}"}}, text(WORDS)]}],
    )[0],
    "Responses": posted(
        "/v1/responses",
        lambda data: {"input": [{"role": "user", "content": [
            spoken(data), {"type": "input_text", "text": WORDS}]}]},
        of_responses,
    ),
    "Ollama's chat": posted(
        "/api/chat",
        lambda data: {"messages": [{"role": "user", "content": WORDS, "images": [encoded(data)]}]},
        of_ollama,
    ),
    "Ollama's generate": posted(
        "/api/generate",
        lambda data: {"prompt": WORDS, "images": [encoded(data)]},
        lambda answer: str(answer["response"]),
    ),
    "MCP sampling": sampled,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_recording_has_the_same_answer_in_every_protocol(server: Server, name: str) -> None:
    answers = set()
    before = [{"role": "system", "content": "Be brief."}] if name == "MCP sampling" else []  # the server says it
    for seed in (1, 2):
        data = recordings.wav(seed)
        (expected,) = chat(server, [*before, {"role": "user", "content": [spoken(data), text(WORDS)]}])
        assert CASES[name](server, data) == expected
        answers.add(expected)
    assert len(answers) == 2, "the answer says what was heard"


def test_another_format_of_the_same_samples_is_another_recording(server: Server) -> None:
    """The bytes are the identity: what was cached of one file never answers for another."""
    for data, form in ((recordings.wav(3), "wav"), (recordings.flac(3), "flac"), (recordings.mp3(3), "mp3")):
        body = {"messages": [{"role": "user", "content": [spoken(data, form), text(WORDS)]}], "max_tokens": N_ANSWER}
        usages = [post(server.address, {"model": "eyes", **body})["usage"] for _ in range(2)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert cached[0] < 30 < cached[1]


WRONG: dict[str, tuple[bytes, int, str]] = {
    "cut": (recordings.wav(1)[:-900], 400, "ends too early"),
    "too long": (recordings.wav(1, 601, 8_000), 400, "audio.max_seconds"),
    "a page": (b"<!doctype html><p>not found</p>", 400, "is an HTML page"),
    "an image": (picture(), 400, "image"),
    "too large": (recordings.wav(1) + bytes(25 * 2**20), 413, "audio.max_bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recording_gets_one_sentence(server: Server, name: str) -> None:
    data, status, words = WRONG[name]
    with pytest.raises(urllib.error.HTTPError) as refused:
        chat(server, [{"role": "user", "content": [spoken(data), text(WORDS)]}])
    error = json.load(refused.value)["error"]
    assert refused.value.code == status
    assert words in error["message"]
    assert error["param"] == "messages[0].content[0].input_audio.data"


def test_the_model_is_said_to_hear(server: Server) -> None:
    assert got(server.address, "/props")["modalities"] == {"vision": True, "video": False, "audio": True}
