"""Recordings for tests: right ones of every format, made by hand, and the wrong ones that clients send."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache

from tests.pictures import picture

from shepherd.media import sound

NAMES = ("audio/wav", "audio/flac", "audio/mpeg")


@cache
def samples(seed: int, seconds: float, rate: int = 16_000) -> bytes:
    """Tones that change, of 16 bits."""
    drawn = random.Random(seed)
    value, step, made = 0, 400, []
    for at in range(int(seconds * rate)):
        if at % 800 == 0:
            step = drawn.randrange(100, 4000)
        value = (value + step) % 40_000
        made.append(value - 20_000)
    return struct.pack(f"<{len(made)}h", *made)


def wav(seed: int = 0, seconds: float = 0.5, rate: int = 16_000) -> bytes:
    return sound.wav(samples(seed, seconds, rate), rate)


def wav_of(
    coding: int, bits: int, channels: int, content: bytes, *, rate: int = 16_000, extensible: bool = False
) -> bytes:
    """A WAV file with a block before its samples, and one behind."""
    width = bits // 8 * channels
    named = 0xFFFE if extensible else coding
    form = struct.pack("<HHIIHH", named, channels, rate, rate * width, width, bits)
    if extensible:
        form += struct.pack("<HHIH", 22, bits, 3, coding) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    blocks = block(b"LIST", b"INFOx") + block(b"fmt ", form) + block(b"data", content) + block(b"note", b"abc")
    return b"RIFF" + struct.pack("<I", 4 + len(blocks)) + b"WAVE" + blocks


def block(name: bytes, content: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(content) if size is None else size) + content + b"\0" * (len(content) % 2)


@cache
def flac(seed: int = 0, seconds: float = 0.5, rate: int = 16_000, *, n_samples: int | None = None) -> bytes:
    """A FLAC file of verbatim frames of 1,024 samples. `n_samples`: what its header says instead."""
    content = samples(seed, seconds, rate)
    numbers = [struct.unpack_from("<h", content, at)[0] for at in range(0, len(content), 2)]
    said = len(numbers) if n_samples is None else n_samples
    facts = (rate << 44 | 0 << 41 | 15 << 36 | said).to_bytes(8, "big")
    made = b"fLaC" + b"\x00\0\0\x22" + struct.pack(">HH", 1024, 1024) + bytes(6) + facts + bytes(16)
    made += b"\x84\0\0\x08" + struct.pack("<II", 0, 0)  # a comment
    for number, at in enumerate(range(0, len(numbers), 1024)):
        part = numbers[at : at + 1024]
        head = b"\xff\xf8\x70\x08" + chr(number).encode() + struct.pack(">H", len(part) - 1)
        head += bytes([crc(head, 0x07, 8)])
        frame = head + b"\x02" + struct.pack(f">{len(part)}h", *part)
        made += frame + crc(frame, 0x8005, 16).to_bytes(2, "big")
    return made


def crc(data: bytes, polynomial: int, bits: int) -> int:
    """Bit by bit, another way than the code under test."""
    value = 0
    for byte in data:
        for at in range(7, -1, -1):
            carry = (value >> bits - 1 & 1) ^ (byte >> at & 1)
            value = (value << 1 & (1 << bits) - 1) ^ (polynomial if carry else 0)
    return value


def mp3(seed: int = 0, n_frames: int = 20, *, promised: int | None = None, tag: bool = False) -> bytes:
    """An MP3 file of noise: 16 kHz, one channel, 32 kbit/s, 36 ms a frame. `promised`: frames that its first one names;
    `tag`: with ID3 tags around it."""
    head, size = b"\xff\xf3\x48\xc4", 144
    drawn = random.Random(seed)
    made = b""
    if promised is not None:
        made += (head + bytes(9) + b"Info\0\0\0\x01" + struct.pack(">I", promised)).ljust(size, b"\0")
    for _ in range(n_frames):
        # Side information of MPEG 2: 8 bits of main_data_begin, 1 private, then 63 of the granule.
        granule = (400 << 51) | (60 << 42) | (drawn.randrange(170, 190) << 34) | (0 << 25) | (1 << 20) | (5 << 15)
        side = (granule << 0).to_bytes(8, "big")
        made += (head + b"\0" + side + drawn.randbytes(60)).ljust(size, b"\0")
    before = b"ID3\x04\0\0\0\0\0\x14" + b"x" * 20
    return before + made + b"TAG" + bytes(125) if tag else made


def recording(kind: str) -> bytes:
    """A right one."""
    return {"audio/wav": wav(), "audio/flac": flac(), "audio/mpeg": mp3()}[kind]


WRONG: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "a WAV that claims 4 GB": (
        lambda: wav()[:40] + b"\xfe\xff\xff\xff", 400, "is a file of type audio/wav with less than 0.1 s of sound",
    ),
    "a truncated WAV": (lambda: wav()[:-100], 400, "is a file of type audio/wav that ends too early; send all of it"),
    "a truncated FLAC": (
        lambda: flac()[:-100], 400, "is a file of type audio/flac that ends too early; send all of it",
    ),
    "a FLAC cut at a frame": (lambda: flac()[: flac().rfind(b"\xff\xf8")], 400, "ends too early"),
    "a truncated MP3": (lambda: mp3()[:-10], 400, "is a file of type audio/mpeg that ends too early; send all of it"),
    "an MP3 with fewer frames than it says": (lambda: mp3(promised=40), 400, "ends too early"),
    "a FLAC of 19 days": (
        lambda: flac(n_samples=(1 << 36) - 1), 400,
        "lasts 4,294,967 s, and the limit is 600 s (audio.max_seconds); send",
    ),
    "an MP3 that claims 4 years": (
        lambda: mp3(promised=0xFFFFFFFE), 400, "s, and the limit is 600 s (audio.max_seconds)",
    ),
    "hours of MP3": (lambda: mp3() * 900, 400, "lasts 648 s, and the limit is 600 s (audio.max_seconds)"),
    "a FLAC of too many samples": (
        lambda: flac(seconds=0.01, rate=655_350, n_samples=300_000_000), 400,
        "has 655,350 samples a second in all channels, and the limit is 400,000; send it with fewer",
    ),
    "a FLAC of unknown length": (
        lambda: flac(n_samples=0), 400, "does not name its number of samples; send a whole WAV, MP3",
    ),
    "too many bytes": (lambda: wav() + bytes(26 * 2**20), 413, "bytes, and the limit is 26,214,400 (audio.max_bytes)"),
    "ADPCM": (lambda: wav_of(2, 4, 1, bytes(4000)), 400, "is a WAV file of 4 bits in coding 2, and only PCM, floats"),
    "a hundred channels": (
        lambda: wav_of(1, 16, 100, bytes(40_000)), 400, "names 100 channels of 16,000 samples a second",
    ),
    "a sample a second": (lambda: wav_of(1, 16, 1, bytes(4000), rate=1), 400, "names 1 channels of 1 samples a second"),
    "no samples": (lambda: wav(seconds=0), 400, "is a file of type audio/wav with less than 0.1 s of sound"),
    "some samples": (
        lambda: wav(seconds=0.05), 400, "with less than 0.1 s of sound; send a whole WAV, MP3 or FLAC file",
    ),
    "an Ogg file": (lambda: b"OggS" + bytes(100), 400, "is an Ogg file; send a whole WAV, MP3 or FLAC file"),
    "an M4A file": (lambda: b"\0\0\0\x20ftypM4A " + bytes(100), 400, "is an MP4 or M4A file; send a whole WAV"),
    "an image": (picture, 400, "is an image; send a whole WAV, MP3 or FLAC file"),
    "HTML": (
        lambda: b"<!doctype html><title>Not found</title>", 400, "is an HTML page; send a whole WAV, MP3 or FLAC file",
    ),
    "text": (lambda: b"hello", 400, "is text; send a whole WAV"),
    "nothing": (lambda: b"", 400, "is empty; send a whole WAV"),
}  # fmt: skip
"""By what it is: what makes the bytes, the status of the answer, and a part of the sentence."""
