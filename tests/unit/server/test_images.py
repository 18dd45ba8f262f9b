"""Images over HTTP to a model that reads only text: the newest one is refused, no other one ends a conversation."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.own_server import serving
from tests.pictures import data_url, picture

PIXEL = base64.b64encode(picture()).decode()
PART = {"type": "image_url", "image_url": {"url": data_url(picture())}}
LINK = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
INPUT = {"type": "input_image", "image_url": data_url(picture())}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}


def turns(content: Any, **more: Any) -> list[dict[str, Any]]:
    """A user's message, its answer, and a newest message without an image."""
    return [
        {"role": "user", "content": content, **more},
        {"role": "assistant", "content": "A sheep."},
        {"role": "user", "content": "Sure?"},
    ]


CASES: dict[str, tuple[str, str, Any, dict[str, Any], str]] = {
    "chat": ("/v1/chat/completions", "messages", [PART], {}, "messages[0].content[0].image_url.url"),
    "chat, an address": ("/v1/chat/completions", "messages", [LINK], {}, "messages[0].content[0].image_url.url"),
    "responses": ("/v1/responses", "input", [INPUT], {}, "input[0].content[0].image_url"),
    "input tokens": ("/v1/responses/input_tokens", "input", [INPUT], {}, "input[0].content[0].image_url"),
    "anthropic": ("/v1/messages", "messages", [BLOCK], {}, "messages[0].content[0].source.data"),
    "count tokens": ("/v1/messages/count_tokens", "messages", [BLOCK], {}, "messages[0].content[0].source.data"),
    "ollama": ("/api/chat", "messages", "?", {"images": [PIXEL]}, "messages[0].images[0]"),
    "template": ("/apply-template", "messages", [PART], {}, "messages[0].content[0].image_url.url"),
}
WHY = (
    "{} is an image, and model 'lamb' reads only text; leave the image out, or set mmproj = PATH in [models.lamb] to "
    "the projector that belongs to this model"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with (
        serving(tmp_path_factory.mktemp("images"), "[caches.main]\nn_ctx = 2048\n") as url,
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        yield client


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_newest_image_is_refused_and_an_earlier_one_is_a_note(
    case: str, stream: bool, client: httpx2.Client
) -> None:
    path, key, content, more, field = CASES[case]
    body = {"model": "lamb", "max_tokens": 2, "stream": stream, "options": {"num_predict": 2}}
    if path not in {"/v1/messages", "/v1/chat/completions"}:
        del body["max_tokens"]
    messages = turns(content, **more)
    refused = client.post(path, json={**body, key: messages[:1]})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error if isinstance(error, str) else error["message"]) == WHY.format(field)
    if path == "/v1/messages":
        assert refused.json()["type"] == "error"
        assert error["type"] == "invalid_request_error"
    elif path == "/v1/chat/completions":
        assert (error["type"], error["param"]) == ("invalid_request_error", field)
    answered = client.post(path, json={**body, key: messages})
    assert answered.status_code == 200, answered.text


@pytest.mark.model
def test_a_screenshot_in_a_result_does_not_end_a_conversation(client: httpx2.Client) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}, BLOCK]}
    body = {
        "model": "lamb",
        "max_tokens": 2,
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, BLOCK]},
        ],
    }
    answered = client.post("/v1/messages", json=body)
    assert answered.status_code == 200, answered.text
