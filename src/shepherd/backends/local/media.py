"""Which images and recordings of a conversation a model of this machine is given, and why not the others. Pure; nothing
is decoded.

    messages ─ marked ─▶ the same, each file that cannot be given with its reason (`left_out`), for a note

A broken screenshot in the history must not end a session, so nothing is refused here. What a user has just sent is
refused instead, with the same words (`app/media.py`). The reasons depend on the files before and on the limits only:
the prompt of a conversation that grows begins as it did. Not here: how a file becomes tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shepherd.core import Audio, Image, Message, ToolResult
from shepherd.core.dataclasses import dataclass, replace
from shepherd.media import image, sound
from shepherd.media.image import NotMedia

NOT_FETCHED = "its address was not fetched"
SHARE_LEFT_OUT = 4
"""Of `max_count`, one part in so many leaves at once: then not every new file changes the beginning of the prompt."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    max_count: int = 20
    """Of one request."""
    max_bytes: int = 20 * 2**20
    """Of one image, as a file."""
    max_pixels: int = 40_000_000
    """Of one image: a decoder needs three or four bytes for each."""
    max_side: int = 65_535
    """Of one image, in pixels, as of a JPEG file: a decoder takes memory for each row, and copies each."""
    max_scans: int = 100
    """Of one JPEG file, which has ten where it is progressive: a decoder passes over all pixels in each."""


@dataclass(frozen=True, slots=True)
class AudioLimits:
    max_count: int = 10
    """Of one request."""
    max_bytes: int = 25 * 2**20
    """Of one recording, as a file."""
    max_seconds: int = 600
    """Of one recording: each second takes about 300 kB while it is read, and up to 25 tokens."""
    max_rate: int = 400_000
    """Samples a second of one recording, of all its channels: 192,000 in stereo, 48,000 in eight channels. A decoder
    computes each, and a FLAC file of some kB may name billions."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What a model of this machine is given at most; None: it sees none, or hears none, and a note stands for each."""

    images: ImageLimits | None = None
    audio: AudioLimits | None = None

    def n_most(self, kind: type[Image | Audio]) -> int | None:
        """The number that one request may have of a kind; None for a kind that is not given."""
        limits = self.images if kind is Image else self.audio
        return None if limits is None else limits.max_count


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a file cannot be given."""

    what: str
    """Behind its name: "is an HTML page"."""
    remedy: str
    status: int = 400
    """Of an answer that refuses it."""


def find_fault(part: Image | Audio, limits: MediaLimits) -> Fault | None:
    """What is wrong with a file; None = it can be decoded, as far as its structure says. Time: linear."""
    if isinstance(part, Audio):
        return None if limits.audio is None else _sound_fault(part.data, limits.audio)
    return None if limits.images is None or part.data is None else _image_fault(part.data, limits.images)


def _image_fault(data: bytes, limits: ImageLimits) -> Fault | None:
    if len(data) > limits.max_bytes:
        return _too_large(data, limits.max_bytes, "images")
    try:
        found = image.read_header(data)
    except NotMedia as error:
        return Fault(str(error), "send a whole PNG, JPEG, GIF, WebP or BMP file")
    if found.width * found.height > limits.max_pixels:
        size = f"{found.width:,} x {found.height:,} pixels"
        return Fault(f"has {size}, and the limit is {limits.max_pixels:,} in all (images.max_pixels)", "scale it down")
    if max(found.width, found.height) > limits.max_side:
        size = f"{found.width:,} x {found.height:,} pixels"
        return Fault(f"has {size}, and the limit is {limits.max_side:,} a side", "cut it into pieces")
    if found.scans > limits.max_scans:
        what = f"is a JPEG file of {found.scans:,} scans, and the limit is {limits.max_scans}"
        return Fault(what, "save it again with usual settings")
    if found.is_animated:
        return Fault("is an animation, and a model sees one picture", "send one frame of it")
    return None if found.is_whole else _too_short(found.media_type)


def _sound_fault(data: bytes, limits: AudioLimits) -> Fault | None:
    if len(data) > limits.max_bytes:
        return _too_large(data, limits.max_bytes, "audio")
    try:
        found = sound.read_header(data)
    except NotMedia as error:
        return Fault(str(error), "send a whole WAV, MP3 or FLAC file")
    if found.seconds > limits.max_seconds:
        what = f"lasts {found.seconds:,.0f} s, and the limit is {limits.max_seconds:,} s (audio.max_seconds)"
        return Fault(what, "send a shorter one")
    if (rate := found.rate * found.channels) > limits.max_rate:
        what = f"has {rate:,} samples a second in all channels, and the limit is {limits.max_rate:,}"
        return Fault(what, "send it with fewer")
    return None if found.is_whole else _too_short(found.media_type)


def _too_large(data: bytes, most: int, section: str) -> Fault:
    what = f"has {len(data):,} bytes, and the limit is {most:,} ({section}.max_bytes)"
    return Fault(what, "send a smaller file", status=413)


def _too_short(media_type: str) -> Fault:
    return Fault(f"is a file of type {media_type} that ends too early", "send all of it")


def has_media(messages: Iterable[Message]) -> bool:
    return any(True for message in messages for _ in media_of(message))


def media_of(message: Message) -> Iterator[Image | Audio]:
    """The images and recordings of a message, those in results of calls included, in their order."""
    for part in message.parts:
        match part:
            case Image() | Audio():
                yield part
            case ToolResult(parts=inner):
                yield from (each for each in inner if isinstance(each, Image | Audio))
            case _:
                pass


def with_media(messages: Sequence[Message], media: Iterable[Image | Audio]) -> tuple[Message, ...]:
    """The messages with others in place of their images and recordings, one for each. A message without a change stays
    the object that it is."""
    others = iter(media)
    return tuple(_with_media(message, others) for message in messages)


def _with_media(message: Message, others: Iterator[Image | Audio]) -> Message:
    parts = tuple(
        next(others)
        if isinstance(part, Image | Audio)
        else replace(
            part, parts=tuple(next(others) if isinstance(each, Image | Audio) else each for each in part.parts)
        )
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    return message if parts == message.parts else replace(message, parts=parts)


def marked(messages: Sequence[Message], limits: MediaLimits) -> tuple[Message, ...]:
    """The messages; each file that cannot be given says why. A second time nothing changes."""
    media = [_examined(part, limits) for message in messages for part in media_of(message)]
    if not media:
        return tuple(messages)
    for kind, given in ((Image, "images are shown"), (Audio, "recordings are played")):
        most = limits.n_most(kind)
        if most is None:
            continue
        found = [at for at, part in enumerate(media) if isinstance(part, kind) and not part.left_out]
        step = max(1, most // SHARE_LEFT_OUT)
        n_over = max(0, len(found) - most)
        for at in found[: -(-n_over // step) * step]:
            media[at] = replace(media[at], left_out=f"only the newest {given}, at most {most}")
    return with_media(messages, media)


def _examined(part: Image | Audio, limits: MediaLimits) -> Image | Audio:
    """The part with the type that its bytes have, or with the reason why it is not given."""
    if part.left_out or limits.n_most(type(part)) is None:
        return part
    if part.data is None:
        return replace(part, left_out=NOT_FETCHED)
    if (fault := find_fault(part, limits)) is not None:
        return replace(part, left_out=f"it {fault.what}")
    return typed(part)


def typed(part: Image | Audio) -> Image | Audio:
    """The part with the type that its bytes have, where they have one."""
    find_type = image.find_type if isinstance(part, Image) else sound.find_type
    kind = find_type(part.data or b"") or part.media_type
    return part if kind == part.media_type else replace(part, media_type=kind)
