"""Recordings by their structure: right ones, wrong ones, and any bytes at all."""

from __future__ import annotations

import contextlib
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.recordings import NAMES, block, flac, mp3, recording, samples, wav, wav_of

from shepherd.media.image import NotMedia
from shepherd.media.sound import MOST_RATE, MOST_STEPS, SoundFile, find_type, read_header

FACTS = {"audio/wav": (0.5, 16_000), "audio/flac": (0.5, 16_000), "audio/mpeg": (0.72, 16_000)}


def facts(found: SoundFile) -> tuple[str, float, int, int, bool]:
    return found.media_type, round(found.seconds, 6), found.rate, found.channels, found.is_whole


@pytest.mark.parametrize("kind", NAMES)
def test_a_recording_of_every_format_is_read(kind: str) -> None:
    assert find_type(recording(kind)) == kind
    assert facts(read_header(recording(kind))) == (kind, *FACTS[kind], 1, True)


@pytest.mark.parametrize(("coding", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8)])
@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_coding_of_wav_is_read(coding: int, bits: int, channels: int, extensible: bool) -> None:
    data = wav_of(coding, bits, channels, bytes(bits // 8 * channels * 4000), extensible=extensible)
    found = read_header(data)
    assert facts(found) == ("audio/wav", 0.25, 16_000, channels, True)
    # A decoder gets one header, of another kind, and the samples.
    assert facts(read_header(found.stream(data))) == facts(found)
    assert len(found.stream(data)) == 44 + bits // 8 * channels * 4000


def test_samples_of_unknown_size_reach_to_the_end_of_the_file() -> None:
    data = wav()[:40] + b"\xff\xff\xff\xff" + wav()[44:]
    assert facts(read_header(data)) == ("audio/wav", 0.5, 16_000, 1, True)


@pytest.mark.parametrize("claimed", [0xFFFFFFFE, 16_002, 1 << 31])
def test_samples_that_are_not_there_take_no_memory(claimed: int) -> None:
    found = read_header(wav()[:40] + struct.pack("<I", claimed) + wav()[44:])
    assert facts(found) == ("audio/wav", 0.5, 16_000, 1, False)
    assert len(found.head) + found.stop - found.start == len(wav())


@pytest.mark.parametrize("size", [0xFFFFFFF0, 1 << 31, 4])
def test_a_format_that_would_lead_a_decoder_astray_is_refused_or_left_out(size: int) -> None:
    form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    data = b"RIFF\0\0\0\0WAVE" + block(b"fmt ", form, size) + block(b"data", bytes(8000))
    with pytest.raises(NotMedia, match="begins like audio/wav and has no readable header"):
        read_header(data)


def test_an_mp3_that_only_promises_is_refused() -> None:
    with pytest.raises(NotMedia, match=r"with less than 0[.]1 s of sound"):
        read_header(mp3(promised=100)[:60])


@pytest.mark.parametrize("kind", NAMES)
def test_a_recording_cut_anywhere_is_not_whole(kind: str) -> None:
    data = recording(kind)
    for at in range(len(data) - 1, 0, -97):
        try:
            found = read_header(data[:at])
        except NotMedia:
            continue
        at_a_frame = kind == "audio/mpeg" and at % 144 == 0  # nothing in the file says that more should come
        assert found.is_whole is at_a_frame, at
        assert found.stop <= at


@pytest.mark.parametrize("at", [50, 4000, -3, -500])
def test_damage_at_the_end_of_a_flac_file_is_found(at: int) -> None:
    data = bytearray(flac())
    data[at] ^= 0x10
    assert read_header(bytes(data)).is_whole is (at > 0), "the frames before the last one are a decoder's affair"


def test_tags_around_a_recording_are_no_part_of_it() -> None:
    for data in (mp3(), flac()):
        tagged = b"ID3\x04\0\0\0\0\0\x14" + b"x" * 20 + data + b"TAG" + bytes(125)
        found = read_header(tagged)
        assert facts(found) == facts(read_header(data))
        assert found.stream(tagged) == data


def test_a_tag_cannot_hide_a_recording_of_another_format() -> None:
    for hidden in (b"OggS", b"RIFF\0\0\0\0WAVE", b"\0\0\0\0"):
        with pytest.raises(NotMedia, match="is a tag without a sound"):
            read_header(b"ID3\x04\0\0\0\0\0\x14" + b"x" * 20 + hidden + bytes(4000))


@pytest.mark.parametrize(
    ("promised", "seconds", "is_whole"), [(20, 0.756, True), (21, 0.756, True), (22, 0.792, False)]
)
def test_an_mp3_that_names_its_frames_has_them(promised: int, seconds: float, is_whole: bool) -> None:
    assert facts(read_header(mp3(promised=promised))) == ("audio/mpeg", seconds, 16_000, 1, is_whole)


def test_an_mp3_ends_where_its_frames_change() -> None:
    """So that no decoder makes more of it than was counted."""
    other = b"\xff\xfb\x90\xc4" + bytes(413)  # 44.1 kHz
    found = read_header(mp3() + other * 50)
    assert facts(found) == ("audio/mpeg", 0.72, 16_000, 1, False)
    assert found.stream(mp3() + other * 50) == mp3()


@pytest.mark.parametrize("number", [(1 << 36) - 1, 0])
def test_a_flac_header_alone_says_how_long_it_is(number: int) -> None:
    if not number:
        with pytest.raises(NotMedia, match="does not name its number of samples"):
            read_header(flac(n_samples=0))
        return
    assert facts(read_header(flac(n_samples=number))) == ("audio/flac", round(number / 16_000, 6), 16_000, 1, False)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 3_000_000,
        mp3(n_frames=1) * 30_000,
        b"RIFF\0\0\0\0WAVE" + block(b"junk", b"") * 400_000,
        flac() + b"\xff\xf8" * 1_000_000,
        b"ID3\x04\0\0\0\0\0\0" * 300_000,
    ],
    ids=["syncs", "frames", "blocks", "candidates", "tags"],
)
def test_a_walk_takes_a_bounded_number_of_steps(data: bytes) -> None:
    n_calls = 0

    def count(*_: object) -> None:
        nonlocal n_calls
        n_calls += 1

    sys.setprofile(count)
    try:
        with contextlib.suppress(NotMedia):
            read_header(data)
    finally:
        sys.setprofile(None)
    assert n_calls < 10 * MOST_STEPS


GARBLED = st.one_of(
    st.binary(max_size=300),
    st.tuples(
        st.sampled_from([b"ID3\x04\0\0\0\0\0\5", b"fLaC", b"RIFF....WAVE", b"\xff\xfb\x90\x64"]), st.binary()
    ).map(b"".join),
    st.tuples(
        st.sampled_from([wav(seconds=0.12), flac(seconds=0.12), mp3(n_frames=4, promised=4, tag=True)]),
        st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=12),
        st.integers(0, 5000),
    ).map(lambda drawn: damaged(*drawn)),
)


def damaged(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    made = bytearray(data)
    for at, value in changes:
        made[at % len(made) if at % 3 else at % 60] = value
    return bytes(made[: len(made) - cut] if cut % 2 else made)


@given(GARBLED)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_are_a_recording_or_refused(data: bytes) -> None:
    try:
        found = read_header(data)
    except NotMedia:
        return
    assert find_type(data) == found.media_type
    assert 0 <= found.start <= found.stop <= len(data)
    assert found.seconds >= 0.1
    assert found.rate <= MOST_RATE
    # What a decoder gets says no more than what was read.
    assert read_header(found.stream(data)).seconds <= found.seconds


def test_samples_are_what_they_were() -> None:
    found = read_header(wav(3))
    assert wav(3)[found.start : found.stop] == samples(3, 0.5)
