"""Models that see, over HTTP: llama-server's greedy tokens on the same files, and only new tokens are computed."""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.llama_server import llama_server
from tests.own_server import serving
from tests.unit.engine.tiny_projector import N_SEEING, PROJECTORS, png, write_seeing

pytestmark = [pytest.mark.model]

N_ANSWER = 12
N_VISIBLE = 94
"""The first tokens of the vocabulary are the visible characters of ASCII."""


def post(address: str, body: dict[str, Any], path: str = "/v1/chat/completions") -> dict[str, Any]:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        read: dict[str, Any] = json.load(answer)
        return read


def got(address: str, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        read: dict[str, Any] = json.load(answer)
        return read


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def asked(address: str, messages: list[dict[str, Any]], **more: Any) -> str:
    """The greedy answer, of which each token is a visible character."""
    biases = {str(token): -100 for token in range(N_VISIBLE, N_SEEING)}
    body = {"messages": messages, "temperature": 0, "max_tokens": N_ANSWER, "logit_bias": biases, **more}
    content: str = post(address, body)["choices"][0]["message"]["content"]
    return content


@contextlib.contextmanager
def seeing_llama_server(model: Path, projector: Path, *options: str, n_ctx: int = 2048) -> Iterator[str]:
    shared = ("-c", str(n_ctx), "-np", "1", "--no-warmup", "--jinja", "--swa-full")
    with llama_server(model, "--mmproj", str(projector), *shared, *options) as address:
        yield address


# Images for which no two tokens are nearly as likely as each other: the servers cut a prompt at other places.


def config(model: Path, projector: Path) -> str:
    return f"""
[models.eyes]
path = "{model}"
mmproj = "{projector}"
[caches.eyes]
model = "eyes"
n_ctx = 2048
"""


@pytest.fixture(scope="module", params=PROJECTORS)
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model that sees, of every kind; one for all tests of a file."""
    folder = tmp_path_factory.mktemp("seeing")
    with serving(folder, config(*write_seeing(request.param, folder))) as address:
        yield address


def computed(address: str, messages: list[dict[str, Any]], **more: Any) -> tuple[int, int]:
    """How many tokens a prompt has, and how many of them were computed for it."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 4, **more}
    usage = post(address, body)["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return usage["prompt_tokens"], usage["prompt_tokens"] - cached


def question(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


ANSWER = {"role": "assistant", "content": "I see."}


def test_text_cannot_spell_an_image(seeing: str) -> None:
    name = "[image " + "0" * 32 + "]"
    counts = []
    for words in (name, "x" * len(name), "<__media__>", "x" * len("<__media__>")):
        counts.append(computed(seeing, [question(text(words))])[0])
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


@pytest.mark.grid(0.2)
def test_tokens_of_an_image_are_counted_before_anything_is_computed(seeing: str) -> None:
    messages = [question(text("what is "), image(png(7, 120, 60)), text("?"))]
    content = [
        {"type": "text", "text": "what is "},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                     "data": base64.b64encode(png(7, 120, 60)).decode()}},
        {"type": "text", "text": "?"},
    ]  # fmt: skip
    body = {"model": "eyes", "messages": [{"role": "user", "content": content}]}
    counted = post(seeing, body, "/v1/messages/count_tokens")["input_tokens"]
    assert counted == computed(seeing, messages)[0]


def test_the_capabilities_say_that_it_sees(seeing: str) -> None:
    assert got(seeing, "/props")["modalities"] == {"vision": True, "video": False, "audio": False}
    assert "image" in json.dumps(got(seeing, "/v1/models"))
    assert "vision" in post(seeing, {"model": "eyes"}, "/api/show")["capabilities"]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("data", [b"", b"<html>", png(1)[:150]])
def test_a_damaged_image_is_one_sentence(seeing: str, data: bytes) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        asked(seeing, [question(text("see "), image(data), text("!"))])
    with caught.value as refused:
        assert refused.code == 400
        assert "error" in json.load(refused)


def test_a_model_that_is_to_read_text_only_does(tmp_path: Path) -> None:
    model, projector = write_seeing("llava", tmp_path)
    with serving(tmp_path, config(model, projector).replace(str(projector), "none")) as address:
        assert got(address, "/props")["modalities"]["vision"] is False
