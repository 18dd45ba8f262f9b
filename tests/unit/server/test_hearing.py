"""Models that hear: llama-server's greedy tokens on the same files, and only new tokens are computed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests import recordings
from tests.own_app import app_of, loaded
from tests.unit.engine.tiny_projector import N_HEARING, png, write_seeing
from tests.unit.server.test_vision import N_ANSWER, N_VISIBLE, config

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

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

BIASES = tuple((token, -100.0) for token in range(N_VISIBLE, N_HEARING))
GREEDY = Sampling(temperature=0.0, logit_bias=BIASES)
SAID = Message.assistant("I hear.")


@asynccontextmanager
async def running(folder: Path, written: str) -> AsyncIterator[App]:
    async with loaded(app_of(folder, written, os.environ), lazy=True) as app:
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


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["speech", "both"])
async def hearing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """A program with a model that hears; one for all tests of a file, which run in one event loop."""
    folder = tmp_path_factory.mktemp("hearing")
    async with running(folder, config(*write_seeing(request.param, folder))) as app:
        yield app


async def test_the_card_says_that_it_hears(hearing: App) -> None:
    (card,) = [card for card in hearing.catalogue.models() if card.id == "eyes"]
    assert "audio" in card.capabilities


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("what", ["a truncated WAV", "HTML", "a FLAC of 19 days", "an Ogg file", "nothing"])
async def test_a_wrong_recording_is_refused_in_the_newest_message_and_noted_in_older_ones(
    hearing: App, what: str
) -> None:
    made, status, says = recordings.WRONG[what]
    wrong = Message("user", (Text("hear "), Audio("audio/wav", made(), path="messages[0].content[1]")))
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
