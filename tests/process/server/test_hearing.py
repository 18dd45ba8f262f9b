"""The tests of `tests/unit/server/test_hearing.py` that start programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import recordings
from tests.unit.engine.tiny_projector import HEARING, N_FF, WIDTH, write_projector, write_seeing
from tests.unit.server.test_hearing import (
    SAID,
    answer,
    hearing,  # noqa: F401 - fixtures
    running,
    user,
)
from tests.unit.server.test_vision import config

from shepherd.app.app import App
from shepherd.core import (
    Audio,
    EngineError,
    Message,
    Request,
    Text,
    ToolCall,
    ToolResult,
    Unsupported,
)
from shepherd.engine.llamacpp import trial

pytestmark = [pytest.mark.model]


@pytest.mark.grid(0.2)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_recording_is_computed_once_and_belongs_to_its_bytes(hearing: App) -> None:
    words = "a longer text before the recording, which every conversation has: "
    first = user(words, recordings.wav(1), " tell me")
    usage = (await answer(hearing, first)).usage
    assert usage.cache_read == 0
    n_first = usage.input
    second = (await answer(hearing, first, SAID, user("and then?"))).usage
    assert second.input <= second.input + second.cache_read - n_first + 8, "only what stands behind the first question"
    again = (await answer(hearing, user(words, recordings.wav(1), " something else"))).usage
    assert again.input < 60, "the same recording is the same tokens"
    other = (await answer(hearing, user(words, recordings.wav(2), " tell me"))).usage
    assert other.input + other.cache_read == n_first
    assert 20 < other.cache_read < n_first - 30, "the text before it is shared, and nothing behind it"


@pytest.mark.parametrize("name", ["a text-only model", "a model that only sees"])
async def test_a_model_that_does_not_hear_refuses_the_newest_recording_only(name: str, tmp_path: Path) -> None:
    model, projector = write_seeing("llava", tmp_path)
    written = config(model, projector)
    reads = "cannot hear"
    if name == "a text-only model":
        written, reads = written.replace(str(projector), "none"), "reads only text"
    async with running(tmp_path, written) as app:
        heard = Message("user", (Text("hear "), Audio("audio/wav", recordings.wav(), path="messages[0].content[1]")))
        with pytest.raises(Unsupported) as refused:
            await answer(app, heard)
        assert refused.value.field == "messages[0].content[1]"
        assert refused.value.message.startswith(
            f"messages[0].content[1] is a recording, and model 'eyes' {reads}; leave the recording out"
        )
        result = Message("tool", (ToolResult("c1", (Audio("audio/wav", recordings.wav()),)),))
        calls = Message("assistant", (ToolCall("c1", "f", "{}"),))
        assert (await answer(app, heard, SAID, user("and?"), calls, result, n=2)).message.text
        noted = await app.conversations.render(Request("eyes", (heard, SAID, user("and?"))))
        assert noted.count("[audio: audio/wav, 16 kB; this model cannot hear]") == 1


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("kind", [*HEARING, "llava"])
def test_the_child_listens_and_looks_as_the_projector_can(kind: str, tmp_path: Path) -> None:
    model, projector = write_seeing(kind, tmp_path)
    trial.prove(model, tmp_path / "cache", build="this", projector=projector)
    assert list((tmp_path / "cache").rglob("*.json"))


def test_a_projector_that_ends_the_process_when_it_listens_is_refused(tmp_path: Path) -> None:
    model, _ = write_seeing("speech", tmp_path)
    shapes = dict(HEARING["speech"].tensors)
    shapes |= {"mm.a.norm_pre.weight": (8 * WIDTH,), "mm.a.mlp.1.weight": (2 * N_FF, 8 * WIDTH)}
    # The library counts 187 tokens and computes 188.
    write_projector(replace(HEARING["speech"], tensors=shapes, stack=8), tmp_path / "mmproj-other.gguf")
    with pytest.raises(EngineError, match="ends the process that loads it"):
        trial.prove(model, tmp_path / "cache", build="this", projector=tmp_path / "mmproj-other.gguf")
