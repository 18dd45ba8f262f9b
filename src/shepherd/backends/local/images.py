"""Which images of a conversation a model that sees them is shown, and why not the others. Pure; nothing is decoded.

    messages ─ marked ─▶ the same, each image that cannot be shown with its reason (`Image.left_out`), for a note

A broken screenshot in the history must not end a session, so nothing is refused here. What a user has just sent is
refused instead, with the same words (`app/images.py`). The reasons depend on the images before and on the limits only:
the prompt of a conversation that grows begins as it did. Not here: how an image becomes tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shepherd.core import Image, Message, ToolResult
from shepherd.core.image_file import NotAnImage, read_header

NOT_FETCHED = "its address was not fetched"
SHARE_LEFT_OUT = 4
"""Of `max_count`, one part in so many leaves at once: not every new image shall change the beginning of the prompt."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What a model of this machine is shown at most."""

    max_count: int = 20
    """Of one request."""
    max_bytes: int = 20 * 2**20
    """Of one image, as a file."""
    max_pixels: int = 40_000_000
    """Of one image: a decoder needs three or four bytes for each."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an image cannot be shown."""

    what: str
    """Behind the name of the image: "is an HTML page"."""
    remedy: str
    status: int = 400
    """Of an answer that refuses it."""


def find_fault(data: bytes, limits: ImageLimits) -> Fault | None:
    """What is wrong with an image file; None = it can be decoded, as far as its structure says. Time: linear."""
    if len(data) > limits.max_bytes:
        what = f"has {len(data):,} bytes, and the limit is {limits.max_bytes:,} (images.max_bytes)"
        return Fault(what, "send a smaller file", status=413)
    try:
        found = read_header(data)
    except NotAnImage as error:
        return Fault(str(error), "send a whole PNG, JPEG, GIF, WebP or BMP file")
    if found.width * found.height > limits.max_pixels:
        size = f"{found.width:,} x {found.height:,} pixels"
        return Fault(f"has {size}, and the limit is {limits.max_pixels:,} in all (images.max_pixels)", "scale it down")
    if found.is_animated:
        return Fault("is an animation, and a model sees one picture", "send one frame of it")
    if not found.is_whole:
        return Fault(f"is a file of type {found.media_type} that ends too early", "send all of it")
    return None


def images_of(message: Message) -> Iterator[Image]:
    """The images of a message, those in results of calls included, in their order."""
    for part in message.parts:
        match part:
            case Image():
                yield part
            case ToolResult(parts=inner):
                yield from (each for each in inner if isinstance(each, Image))
            case _:
                pass


def with_images(messages: Sequence[Message], images: Iterable[Image]) -> tuple[Message, ...]:
    """The messages with others in place of their images, one for each. A message without a change stays the object that
    it is."""
    others = iter(images)
    return tuple(_with_images(message, others) for message in messages)


def _with_images(message: Message, others: Iterator[Image]) -> Message:
    parts = tuple(
        next(others)
        if isinstance(part, Image)
        else replace(part, parts=tuple(next(others) if isinstance(each, Image) else each for each in part.parts))
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    return message if parts == message.parts else replace(message, parts=parts)


def marked(messages: Sequence[Message], limits: ImageLimits) -> tuple[Message, ...]:
    """The messages; each image that cannot be shown says why. A second time nothing changes."""
    images = [_examined(image, limits) for message in messages for image in images_of(message)]
    if not images:
        return tuple(messages)
    shown = [at for at, image in enumerate(images) if not image.left_out]
    step = max(1, limits.max_count // SHARE_LEFT_OUT)
    n_over = max(0, len(shown) - limits.max_count)
    for at in shown[: -(-n_over // step) * step]:
        images[at] = replace(images[at], left_out=f"only the newest images are shown, at most {limits.max_count}")
    return with_images(messages, images)


def _examined(image: Image, limits: ImageLimits) -> Image:
    """The image with the type that its bytes have, or with the reason why it is not shown."""
    if image.left_out:
        return image
    if image.data is None:
        return replace(image, left_out=NOT_FETCHED)
    if (fault := find_fault(image.data, limits)) is not None:
        return replace(image, left_out=f"it {fault.what}")
    kind = read_header(image.data).media_type
    return image if kind == image.media_type else replace(image, media_type=kind)
