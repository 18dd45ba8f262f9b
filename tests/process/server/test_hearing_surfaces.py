"""The tests of `tests/unit/server/test_hearing_surfaces.py` that start programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests import recordings
from tests.process.server.test_vision_surfaces import sampled_from
from tests.unit.server.test_hearing_surfaces import (
    server,  # noqa: F401 - fixtures
    spoken,
)
from tests.unit.server.test_vision import text
from tests.unit.server.test_vision_surfaces import (
    WORDS,
    Server,
    chat,
    encoded,
    of_ollama,
    of_responses,
    posted,
)

pytestmark = [pytest.mark.model]


def sampled(server: Server, data: bytes) -> str:
    blocks = [
        {"type": "audio", "data": encoded(data), "mimeType": "audio/wav"},
        {"type": "text", "text": WORDS},
    ]
    return sampled_from(server, blocks, f"[audio, audio/wav, {len(data):,} bytes]")


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


@pytest.mark.grid(0.2)
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
