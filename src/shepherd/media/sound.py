"""A recording by its first bytes and its structure: its type, how long it is, whether it is whole. Nothing is decoded.

    first bytes ─▶ WAV | FLAC | MP3 ─ a walk over its blocks or frames ─▶ SoundFile(media_type, seconds, rate, ...)

The type that a client names proves nothing, and a decoder takes memory for as many samples as a header promises: what
is promised is read here first, and `SoundFile.stream` gives a decoder nothing that was not checked: no tags, no other
blocks, no bytes behind the sound. A walk takes a bounded number of steps.

Sources: Microsoft's multimedia standards update (RIFF, 1994), RFC 9639 (FLAC), ISO 11172-3 and 13818-3 (MPEG layer
III), id3.org (ID3v2), and the tag of Xing and LAME in the first frame of an MP3 file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from struct import unpack_from

from shepherd.core.dataclasses import dataclass
from shepherd.media.image import HEAD_BYTES, NotMedia, kind_of

MOST_CHANNELS = 8
LEAST_RATE, MOST_RATE = 1_000, 768_000
"""Samples a second of each channel, in which recordings exist."""
LEAST_SECONDS = 0.1
"""Of a recording: no model makes anything of less."""
MOST_STEPS = 500_000
"""Of one walk. So many frames of MP3 last three hours and more."""


@dataclass(frozen=True, slots=True)
class SoundFile:
    media_type: str
    seconds: float
    """A decoder takes memory for no more than this, even if the file holds more."""
    rate: int
    """Samples a second of each channel, as stored."""
    channels: int
    is_whole: bool
    """The file has all that its structure names; what is in between may still be damaged."""
    start: int
    stop: int
    """Where the sound is, in bytes: samples of WAV, frames of MP3; a FLAC file without tags around it."""
    head: bytes = b""
    """What a decoder needs before these bytes."""

    def stream(self, data: bytes) -> bytes:
        """The file with nothing but its sound."""
        return self.head + data[self.start : self.stop]


def find_type(data: bytes) -> str | None:
    """The media type of a recording by its first bytes; None for anything else."""
    if re.match(rb"RIFF....WAVE", data, re.DOTALL):
        return "audio/wav"
    start = _behind_tags(data)
    if data[start : start + 4] == b"fLaC":
        return "audio/flac"
    return "audio/mpeg" if _frame(data, start) is not None else None


def is_text(data: bytes) -> bool:
    """Whether the bytes are empty or a text, such as the page of an error that a client took for a recording."""
    return find_type(data) is None and _name_of(data)[1]


def read_header(data: bytes) -> SoundFile:
    """The facts about a recording. Time: below a millisecond for WAV and FLAC; 50 ms for an hour of MP3.

    Raises: `NotMedia` where the first bytes are of no known format, or no sound follows them.
    """
    kind = find_type(data)
    if kind is None:
        name, is_text = _name_of(data)
        raise NotMedia(f"is {name}", is_text=is_text)
    try:
        found = _FORMATS[kind](data)
    except (struct.error, IndexError):
        raise NotMedia(f"begins like {kind} and has no readable header") from None
    if not (LEAST_RATE <= found.rate <= MOST_RATE and 1 <= found.channels <= MOST_CHANNELS):
        raise NotMedia(f"begins like {kind} and names {found.channels} channels of {found.rate:,} samples a second")
    if found.seconds < LEAST_SECONDS:
        raise NotMedia(f"is a file of type {kind} with less than {LEAST_SECONDS} s of sound")
    return found


# -- WAV ---------------------------------------------------------------------------------------------------------------

_CODINGS = {(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8)}
"""The kind of numbers and their bits: integers, floats, A-law, µ-law."""
_EXTENSIBLE = 0xFFFE
_UNKNOWN_SIZE = 0xFFFFFFFF
"""Of programs that write before they know how much: the samples reach to the end of the file."""


def _wav(data: bytes) -> SoundFile:
    at, form = 12, b""
    for _ in range(MOST_STEPS):
        name, size = unpack_from("<4sI", data, at)  # a file without samples ends here
        at += 8
        if name == b"data":
            break
        if name == b"fmt ":
            form = data[at : at + min(size, 40)]
        at += size + size % 2
    else:
        raise NotMedia("is a WAV file of more blocks than there should be")
    coding, channels, rate, _, _, bits = unpack_from("<HHIIHH", form)
    if coding == _EXTENSIBLE:
        (coding,) = unpack_from("<H", form, 24)
    if (coding, bits) not in _CODINGS:
        raise NotMedia(
            f"is a WAV file of {bits} bits in coding {coding}, and only PCM, floats, A-law and µ-law are read"
        )
    width = bits // 8 * channels
    n_there = len(data) - at
    n_bytes = min(size, n_there) // max(1, width) * width
    head = _wav_head(coding, channels, rate, bits, n_bytes)
    seconds = n_bytes / max(1, width * rate)
    is_whole = size in {_UNKNOWN_SIZE, min(size, n_there)}
    return SoundFile("audio/wav", seconds, rate, channels, is_whole, at, at + n_bytes, head)


def _wav_head(coding: int, channels: int, rate: int, bits: int, n_bytes: int) -> bytes:
    width = bits // 8 * channels
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + n_bytes, b"WAVE", b"fmt ", 16, coding, channels, rate,
        min(rate * width, 0xFFFFFFFF), min(width, 0xFFFF), bits, b"data", n_bytes,
    )  # fmt: skip


def wav(samples: bytes, rate: int) -> bytes:
    """A WAV file of one channel of signed 16-bit samples."""
    return _wav_head(1, 1, rate, 16, len(samples)) + samples


# -- FLAC --------------------------------------------------------------------------------------------------------------

_SEARCHED_BYTES = 1 << 19
"""From the end of a FLAC file, for its last frame: the largest that encoders make have some tens of thousands."""
_MOST_CANDIDATES, _MOST_CHECKED = 10_000, 4
"""Places where a frame may begin, and those of which all bytes are checked: by chance one in 256 looks right."""


def _flac(data: bytes) -> SoundFile:
    start = _behind_tags(data)
    facts = unpack_from(">Q", data, start + 18)[0]
    rate, channels, n_samples = facts >> 44, (facts >> 41 & 7) + 1, facts & (1 << 36) - 1
    if unpack_from(">I", data, start + 4)[0] & 0x7FFFFFFF != 34:
        raise NotMedia("begins like audio/flac and has no readable header")
    if not n_samples:
        raise NotMedia("is a FLAC file that does not name its number of samples")
    at, is_last = start + 4, False
    while not is_last:
        (head,) = unpack_from(">I", data, at)
        at, is_last = at + 4 + (head & 0xFFFFFF), head >> 31 == 1
    stop = _before_tags(data)
    # A decoder takes each frame as it comes, but memory for the number above.
    is_whole = (
        _flac_end(data, max(at, stop - _SEARCHED_BYTES), stop, unpack_from(">H", data, start + 10)[0]) == n_samples
    )
    return SoundFile("audio/flac", n_samples / max(1, rate), rate, channels, is_whole, start, stop)


def _flac_end(data: bytes, start: int, stop: int, block: int) -> int | None:
    """The sample at which the last frame of a FLAC file ends, if it is whole; `block`: samples of a usual one."""
    at, n_checked = stop, 0
    for _ in range(_MOST_CANDIDATES):
        at = data.rfind(b"\xff", start, at)
        if at < 0 or n_checked == _MOST_CHECKED:
            return None
        if data[at + 1 : at + 2] not in {b"\xf8", b"\xf9"} or (found := _flac_frame(data, at, block)) is None:
            continue
        n_checked += 1
        if _crc(data[at:stop], _CRC_16, 16) == 0:
            return found
    return None


def _flac_frame(data: bytes, at: int, block: int) -> int | None:
    """The sample at which the frame at `at` ends; None where no frame begins there."""
    size, number, behind = data[at + 2] >> 4 if at + 2 < len(data) else 0, 0, at + 4
    first = data[behind] if behind < len(data) else 0xFF
    n_more = 0 if first < 0x80 else 8 - (first ^ 0xFF).bit_length() - 1  # a number in the way of UTF-8
    if n_more not in {0, 1, 2, 3, 4, 5, 6} or size == 0:
        return None
    number = first & (0x7F if not n_more else (1 << 6 - n_more) - 1)
    for byte in data[behind + 1 : behind + 1 + n_more]:
        number = number << 6 | byte & 0x3F
    behind += 1 + n_more
    n_size = {6: 1, 7: 2}.get(size, 0)
    n_rate = {12: 1, 13: 2, 14: 2}.get(data[at + 2] & 15, 0)
    end = behind + n_size + n_rate + 1
    if end > len(data) or _crc(data[at:end], _CRC_8, 8) != 0:
        return None
    if n_size:
        n_samples = int.from_bytes(data[behind : behind + n_size], "big") + 1
    else:
        n_samples = 192 if size == 1 else 576 << size - 2 if size < 6 else 256 << size - 8
    return (number if data[at + 1] & 1 else number * block) + n_samples


def _table(polynomial: int, bits: int) -> tuple[int, ...]:
    def remainder(value: int) -> int:
        value <<= bits - 8
        for _ in range(8):
            value = (value << 1 ^ (polynomial if value >> bits - 1 else 0)) & (1 << bits) - 1
        return value

    return tuple(map(remainder, range(256)))


_CRC_8, _CRC_16 = _table(0x07, 8), _table(0x8005, 16)


def _crc(data: bytes, table: tuple[int, ...], bits: int) -> int:
    """The remainder; 0 where the last bytes are the right one of those before."""
    found, mask, shift = 0, (1 << bits) - 1, bits - 8
    for byte in data:
        found = (found << 8 ^ table[found >> shift ^ byte]) & mask
    return found


# -- MP3 ---------------------------------------------------------------------------------------------------------------

_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""By the version in a header: MPEG 1, 2 and 2.5."""
_KBIT = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBIT_LOW = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_SAME = 0xFFFE0C00
"""The bits of a header that are equal in all frames: version, layer, rate."""


def _frame(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Of the frame of layer III at `at`: its header, its bytes, its samples, its rate; None where none begins."""
    if at + 4 > len(data):
        return None
    (head,) = unpack_from(">I", data, at)
    version, kbit, rate = head >> 19 & 3, head >> 12 & 15, head >> 10 & 3
    if head >> 21 != 0x7FF or version == 1 or head >> 17 & 3 != 1 or not 0 < kbit < 15 or rate == 3:
        return None
    n_samples = 1152 if version == 3 else 576
    rate = _RATES[version][rate]
    size = n_samples // 8 * 1000 * (_KBIT if version == 3 else _KBIT_LOW)[kbit] // rate + (head >> 9 & 1)
    return head, size, n_samples, rate


def _mpeg(data: bytes) -> SoundFile:
    start = at = _behind_tags(data)
    first = _frame(data, start)
    assert first is not None  # that is how the type was found
    head, size, n_samples, rate = first
    n_frames, end = 0, _before_tags(data)
    for _ in range(MOST_STEPS):
        found = _frame(data, at)
        if found is None or (found[0] ^ head) & _SAME or at + found[1] > end:
            break
        at, n_frames = at + found[1], n_frames + 1
    is_whole = not data[at:end].strip(b"\0")
    n_promised = _promised(data[start : start + size], head)
    channels = 1 if head >> 6 & 3 == 3 else 2
    # A decoder takes memory for the frames that are promised, if there is one to begin with.
    seconds = max(n_frames, n_promised) * n_samples / rate if n_frames else 0.0
    return SoundFile("audio/mpeg", seconds, rate, channels, is_whole and n_promised <= n_frames, start, at)


def _promised(frame: bytes, head: int) -> int:
    """The number of frames that a first frame without sound states; 0 where it states none."""
    is_first, is_mono = head >> 19 & 3 == 3, head >> 6 & 3 == 3
    at = 4 + ((17 if is_mono else 32) if is_first else (9 if is_mono else 17))
    at += 0 if head >> 16 & 1 else 2  # a checksum
    if frame[at : at + 4] not in {b"Xing", b"Info"} or len(frame) < at + 12 or not frame[at + 7] & 1:
        return 0
    return int(unpack_from(">I", frame, at + 8)[0])


def _behind_tags(data: bytes) -> int:
    """Where the sound begins behind ID3 tags."""
    at = 0
    for _ in range(8):
        if data[at : at + 3] != b"ID3" or at + 10 > len(data):
            break
        size = 0
        for byte in data[at + 6 : at + 10]:
            size = size << 7 | byte & 0x7F
        at += 10 + size + (10 if data[at + 5] & 0x10 else 0)
    zeros = re.compile(rb"\0{0,65536}").match(data, at)  # some programs fill up with them
    return zeros.end() if at and zeros else at


def _before_tags(data: bytes) -> int:
    """Where the sound ends before tags: those of ID3v1 and of APE."""
    stop = len(data)
    if data[-128:-125] == b"TAG":
        stop -= 128
    if data[stop - 32 : stop - 24] == b"APETAGEX":
        size, _, flags = unpack_from("<III", data, stop - 20)
        stop -= size + (32 if flags >> 31 else 0)
    return max(0, stop)


_FORMATS: Mapping[str, Callable[[bytes], SoundFile]] = {"audio/wav": _wav, "audio/flac": _flac, "audio/mpeg": _mpeg}

# -- what is no recording ----------------------------------------------------------------------------------------------

_OTHERS = (
    (rb"OggS", "an Ogg file"),
    (rb"....ftyp", "an MP4 or M4A file"),
    (rb"\x1aE\xdf\xa3", "a WebM or Matroska file"),
    (rb"FORM....AIF", "an AIFF file"),
    (rb"RIFX|RF64|riff", "a WAV file of another kind"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "an AAC file"),
    (rb"#!AMR", "an AMR file"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF....WEBP", "an image"),
    (rb"ID3", "a tag without a sound"),
)


def _name_of(data: bytes) -> tuple[str, bool]:
    """What a file is instead, and whether it is text."""
    head = data[:HEAD_BYTES]
    known = next((name for start, name in _OTHERS if re.match(start, head, re.DOTALL)), None)
    return (known, False) if known else kind_of(head)
