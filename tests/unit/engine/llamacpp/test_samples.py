"""Recordings as samples: the child decodes them to the same numbers as the library does for a projector."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests import recordings
from tests.unit.engine.tiny_gguf import finish
from tests.unit.engine.tiny_projector import write_projector

from shepherd.core import InvalidRequest
from shepherd.engine.llamacpp import samples
from shepherd.engine.llamacpp.library import libmtmd
from shepherd.media import sound
from shepherd.process.child import Cancelled

pytestmark = pytest.mark.model


def write_ear(path: Path) -> None:
    """What `ear.gguf` was made with: the least that the library takes for a projector that hears."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "gemma4ua")
    numbers = {
        "embedding_length": 32, "attention.head_count": 1, "feed_forward_length": 32, "block_count": 0,
        "projection_dim": 32, "num_mel_bins": 640,
    }  # fmt: skip
    for name, number in numbers.items():
        writer.add_uint32(f"clip.audio.{name}", number)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    writer.add_tensor("mm.a.input_projection.weight", np.zeros((1, 32), np.float32))
    finish(writer)


def test_the_ear_is_what_its_recipe_writes(tmp_path: Path) -> None:
    write_ear(tmp_path / "ear.gguf")
    assert (tmp_path / "ear.gguf").read_bytes() == samples.EAR.read_bytes()


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One that hears, with an encoder, as models have them; without a model."""
    path = tmp_path_factory.mktemp("speech") / "mmproj.gguf"
    write_projector("speech", path)
    mtmd = libmtmd()
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.n_threads, params.print_timings, params.warmup = False, 1, False, False
    handle = mtmd.mtmd_init_from_file(bytes(path), None, params)
    assert mtmd.mtmd_get_audio_sample_rate(handle) == samples.RATE
    yield handle
    mtmd.mtmd_free(handle)


def floats(n: int, bits: int) -> bytes:
    drawn = random.Random(bits)
    return struct.pack(f"<{n}{'f' if bits == 32 else 'd'}", *(drawn.uniform(-1, 1) for _ in range(n)))


FILES = {
    "WAV": recordings.wav(1, 0.7),
    "WAV, 8 bits": recordings.wav_of(1, 8, 1, random.Random(1).randbytes(4000)),
    "WAV, 24 bits, two channels": recordings.wav_of(1, 24, 2, random.Random(2).randbytes(60_000), rate=44_100),
    "WAV, floats": recordings.wav_of(3, 32, 1, floats(4000, 32), rate=22_050),
    "WAV, long floats": recordings.wav_of(3, 64, 1, floats(4000, 64), rate=8_000, extensible=True),
    "WAV, A-law": recordings.wav_of(6, 8, 1, random.Random(3).randbytes(4000), rate=8_000),
    "WAV, µ-law": recordings.wav_of(7, 8, 2, random.Random(4).randbytes(8000), rate=8_000),
    "WAV, eight channels": recordings.wav_of(1, 16, 8, random.Random(5).randbytes(160_000), rate=48_000),
    "FLAC": recordings.flac(6, 0.7),
    "FLAC, 48 kHz": recordings.flac(7, 0.7, 48_000),
    "MP3": recordings.mp3(8),
    "MP3 with tags": recordings.mp3(9, promised=20, tag=True),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", FILES)
def test_the_samples_are_those_that_a_projector_gets(name: str, projector: Any) -> None:
    found = sound.read_header(FILES[name])
    stream = found.stream(FILES[name])
    made = samples.decode(stream, found.seconds)
    assert made == samples.read_by(projector, stream)
    assert len(made) == pytest.approx(4 * samples.RATE * found.seconds, abs=4 * 600), (
        "but for a first frame without sound"
    )
    assert np.abs(np.frombuffer(made, np.float32)).max() > 0.01


def test_a_recording_that_takes_too_long_is_a_sentence() -> None:
    stream = recordings.mp3(1, 500) * 40
    with pytest.raises(InvalidRequest, match=r"^a recording of 720\.0 s takes a decoder more than 0\.01 s or too much"):
        samples.decode(stream, 720.0, deadline_s=0.01)


def test_a_recording_is_not_decoded_for_a_client_that_has_left() -> None:
    with pytest.raises(Cancelled):
        samples.decode(recordings.mp3(1, 500) * 40, 720.0, lambda: False)


def test_a_damaged_recording_is_a_sentence() -> None:
    with pytest.raises(InvalidRequest, match=r"^a recording is damaged, and cannot be decoded"):
        samples.decode(b"fLaC" + bytes(100), 1.0)
