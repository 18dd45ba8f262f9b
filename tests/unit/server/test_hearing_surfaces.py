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
)

from shepherd.media import sound

pytestmark = [pytest.mark.model]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with hosting(tmp_path_factory.mktemp("hearing"), "both") as made:
        yield made


def spoken(data: bytes, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": encoded(data), "format": form}}


def test_another_format_of_the_same_samples_is_another_recording(server: Server) -> None:
    """The bytes are the identity: what was cached of one file never answers for another."""
    for data, form in ((recordings.wav(3), "wav"), (recordings.flac(3), "flac"), (recordings.mp3(3), "mp3")):
        body = {"messages": [{"role": "user", "content": [spoken(data, form), text(WORDS)]}], "max_tokens": N_ANSWER}
        usages = [post(server.address, {"model": "eyes", **body})["usage"] for _ in range(2)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert cached[0] < 30 < cached[1]


WRONG: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "cut": (lambda: recordings.wav(1)[:-900], 400, "ends too early"),
    "too long": (lambda: sound.wav(bytes(601 * 2 * 8_000), 8_000), 400, "audio.max_seconds"),
    "a page": (lambda: b"<!doctype html><p>not found</p>", 400, "is an HTML page"),
    "an image": (picture, 400, "image"),
    "too large": (lambda: recordings.wav(1) + bytes(25 * 2**20), 413, "audio.max_bytes"),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recording_gets_one_sentence(server: Server, name: str) -> None:
    made, status, words = WRONG[name]
    with pytest.raises(urllib.error.HTTPError) as refused:
        chat(server, [{"role": "user", "content": [spoken(made()), text(WORDS)]}])
    error = json.load(refused.value)["error"]
    assert refused.value.code == status
    assert words in error["message"]
    assert error["param"] == "messages[0].content[0].input_audio.data"


def test_the_model_is_said_to_hear(server: Server) -> None:
    assert got(server.address, "/props")["modalities"] == {"vision": True, "video": False, "audio": True}
