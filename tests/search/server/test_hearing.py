"""The tests of `tests/unit/server/test_hearing.py` that take long."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from tests import recordings
from tests.unit.engine.tiny_projector import HEARING, png, write_seeing
from tests.unit.server.test_hearing import SAID, answer, running, user
from tests.unit.server.test_vision import N_ANSWER, asked, config, image, seeing_llama_server, text

from shepherd.core import (
    Message,
)

pytestmark = [pytest.mark.model]


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
