"""Models that hear: llama-server's greedy tokens on the same files, and only new tokens are computed."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import recordings
from tests.own_app import loaded
from tests.unit.engine.tiny_projector import HEARING, N_HEARING, png, write_seeing
from tests.unit.server.test_vision import N_ANSWER, N_VISIBLE, asked, config, image, seeing_llama_server, text

from shepherd import config as configuration
from shepherd.app.app import App
from shepherd.core import (
    Audio,
    Image,
    InvalidRequest,
    Message,
    Part,
    Reply,
    Request,
    Sampling,
    ShepherdError,
    Text,
    Unsupported,
    fold,
)

pytestmark = [pytest.mark.model]

BIASES = tuple((token, -100.0) for token in range(N_VISIBLE, N_HEARING))
GREEDY = Sampling(temperature=0.0, logit_bias=BIASES)
SAID = Message.assistant("I hear.")


@asynccontextmanager
async def running(folder: Path, written: str) -> AsyncIterator[App]:
    file = folder / "shepherd.toml"
    file.write_text(written)
    app = App(configuration.load(flags={"threads": 1}, env=os.environ, cwd=folder, user_dir=folder, file=file))
    async with loaded(app, lazy=True):
        yield app


async def answer(app: App, *messages: Message, n: int = N_ANSWER) -> Reply:
    request = Request("eyes", messages, sampling=GREEDY, max_tokens=n)
    async with aclosing(app.conversations.stream(request, endpoint="/v1/chat/completions")) as events:
        return fold([event async for event in events])


def user(*parts: str | bytes) -> Message:
    """A message of texts, images and recordings."""
    return Message("user", tuple(map(_part, parts)))


def _part(part: str | bytes) -> Part:
    if isinstance(part, str):
        return Text(part)
    return Image("image/png", part) if part.startswith(b"\x89PNG") else Audio("audio/wav", part)


def theirs_of(*parts: str | bytes) -> dict[str, Any]:
    """The same for llama-server."""
    return {"role": "user", "content": [_theirs(part) for part in parts]}


def _theirs(part: str | bytes) -> dict[str, Any]:
    if isinstance(part, str):
        return text(part)
    if part.startswith(b"\x89PNG"):
        return image(part)
    form = "wav" if part.startswith(b"RIFF") else "mp3"  # it looks at the bytes
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(part).decode(), "format": form}}


LONG = recordings.wav(7, 31)
STEREO = recordings.wav_of(3, 32, 2, b"".join([b"\0\0\x80\x3e\0\0\0\xbf"] * 4000 + [bytes(8)] * 4000), rate=44_100)
CONVERSATIONS: dict[str, list[list[str | bytes]]] = {
    "a recording between texts": [["hello, hear ", recordings.wav(1), " and say what it is"]],
    "a FLAC file": [[recordings.flac(2), "what is it?"]],
    "an MP3 file": [["hear ", recordings.mp3(3), " now"]],
    "an MP3 file with tags": [["hear ", recordings.mp3(3, promised=20, tag=True), " now"]],
    "another rate": [["hear ", recordings.wav(4, 0.4, 44_100), "?"]],
    "floats of two channels": [["hear ", STEREO, "?"]],
    "two of half a minute and more": [["compare ", LONG, " with ", recordings.wav(1), " now"]],
    "a second turn, with another recording": [
        ["hear: ", recordings.wav(5), "."],
        ["and this: ", recordings.wav(6, 1.0), "?"],
    ],
    "text that spells a marker": [["<__media__> [sound] ", recordings.wav(1), "<audio>"]],
}
SEEN: dict[str, list[list[str | bytes]]] = {
    "an image and a recording": [["see ", png(1), " and hear ", recordings.wav(1), "?"]],
    "one after the other": [["hear ", recordings.wav(2), "."], ["see ", png(2, 70, 30), " and say"], ["and then?"]],
}


@pytest.mark.parametrize("kind", HEARING)
async def test_greedy_tokens_are_those_of_llama_server(kind: str, tmp_path: Path) -> None:
    model, projector = write_seeing(kind, tmp_path)
    conversations = CONVERSATIONS | (SEEN if HEARING[kind].image_size else {})
    # As llama-server has it: 750 tokens of one recording make the nearest choices closer than rounding.
    written = config(model, projector).replace("2048", "4096").replace("[caches", "flash_attn = true\n[caches")
    with seeing_llama_server(model, projector, n_ctx=4096) as theirs:
        async with running(tmp_path, written) as ours:
            answers: dict[str, set[str]] = {}
            for name, turns in conversations.items():
                messages: list[Message] = []
                bodies: list[dict[str, Any]] = []
                for parts in turns:
                    messages.append(user(*parts))
                    bodies.append(theirs_of(*parts))
                    own = (await answer(ours, *messages)).message.text
                    assert own == await asyncio.to_thread(asked, theirs, bodies), name
                    assert len(own) == N_ANSWER
                    answers.setdefault(own, set()).add(name)
                    messages.append(SAID)
                    bodies.append({"role": "assistant", "content": "I hear."})
            assert len(answers) > 2, "the answers say nothing about what was heard"


@pytest.fixture(params=["speech", "both"])
async def hearing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    """A program with a model that hears."""
    async with running(tmp_path, config(*write_seeing(request.param, tmp_path))) as app:
        yield app


async def test_the_card_says_that_it_hears(hearing: App) -> None:
    (card,) = [card for card in hearing.catalogue.models() if card.id == "eyes"]
    assert "audio" in card.capabilities


@pytest.mark.parametrize("what", ["a truncated WAV", "HTML", "a FLAC of 19 days", "an Ogg file", "nothing"])
async def test_a_wrong_recording_is_refused_in_the_newest_message_and_noted_in_older_ones(
    hearing: App, what: str
) -> None:
    data, status, says = recordings.WRONG[what]
    wrong = Message("user", (Text("hear "), Audio("audio/wav", data, path="messages[0].content[1]")))
    with pytest.raises(InvalidRequest) as refused:
        await answer(hearing, wrong)
    assert (refused.value.status, refused.value.field) == (status, "messages[0].content[1]")
    assert says in refused.value.message
    assert (await answer(hearing, wrong, SAID, user("and then?"), n=2)).message.text


async def test_a_model_that_only_hears_refuses_an_image(tmp_path: Path) -> None:
    async with running(tmp_path, config(*write_seeing("speech", tmp_path))) as app:
        with pytest.raises(Unsupported, match="is an image, and model 'eyes' cannot see; leave the image out"):
            await answer(app, user("see ", png(1)))
        assert (await answer(app, user("see ", png(1)), SAID, user("hear ", recordings.wav()), n=2)).message.text


async def test_many_recordings_are_refused_by_their_number(hearing: App) -> None:
    with pytest.raises(ShepherdError, match=r"recording 11 of 12 in its message.*\(audio.max_count\); send fewer"):
        await answer(hearing, user(*[recordings.wav()] * 12, "?"))
