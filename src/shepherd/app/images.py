"""The images of a request before a model of this machine answers it: what a user has just sent is right, or is refused.

    newest message of the user ─▶ fetch addresses, read headers ─▶ shown, or `InvalidRequest` that names its field
    earlier ones, results      ─▶ fetch addresses               ─▶ `backends/local/images.py` leaves out what is wrong

A request is refused where its sender can change it at once. An image of the history is not: the client sends it again
with every request, and the conversation would never have an answer. An address is fetched only from the hosts that
the operator names, once for each request, and never for a provider, which fetches by itself. Not here: the guard
against addresses of private networks (`tools/sandbox/network.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from shepherd.backends.local.images import ImageLimits, find_fault, images_of, newest_input, with_images
from shepherd.core import Image, InvalidRequest, Message, Request, Unsupported
from shepherd.core.image_file import NotAnImage, find_type, read_header
from shepherd.tools.base import ToolError

FETCH_S = 30.0
"""For one address, all its redirects included."""
FETCHED_AT_ONCE = 4
_FOUND: ContextVar[dict[str, bytes | str] | None] = ContextVar("found", default=None)
"""By address, what was fetched within `fetching_once`: the bytes, or why there are none."""


@contextmanager
def fetching_once() -> Iterator[None]:
    """Within the block, this task and those that it starts fetch each address once: for all choices of a body."""
    found: dict[str, bytes | str] = {}
    token = _FOUND.set(found)
    try:
        yield
    finally:
        _FOUND.reset(token)
        found.clear()  # a timer that was started within keeps the variable


class ImageDoor:
    """Admits the images of requests. One event loop."""

    def __init__(self, limits: ImageLimits, hosts: Sequence[str]) -> None:
        """`hosts`: names or globs of those from which images are fetched."""
        self._limits = limits
        self._hosts = tuple(hosts)

    async def admit(self, request: Request, blindness: Callable[[], str]) -> Request:
        """The request with the images behind its addresses, as far as they could be fetched.

        `blindness` says why the model sees no images; it is asked only where there are some. Raises: `Unsupported` for
        an image in the user's newest message where the model sees none; `InvalidRequest` for one there that cannot be
        shown.
        """
        messages = request.messages
        if not any(True for message in messages for _ in images_of(message)):
            return request
        asked = _asked(messages)
        if why := blindness():
            for image in asked[:1]:
                raise Unsupported(f"{_name(image)} is an image, and {why}", field=_field(image))
            return request
        if len(asked) > (most := self._limits.max_count):
            image = asked[most]
            raise InvalidRequest(
                f"{_name(image)} is image {most + 1} of {len(asked)} in its message, and the limit is {most} "
                "(images.max_count); send fewer at once",
                field=_field(image),
            )
        messages = await self._fetched(messages)
        await asyncio.to_thread(_check, _asked(messages), self._limits)
        return replace(request, messages=messages)

    async def _fetched(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with the images behind the addresses; one that was not fetched says why (`Image.unseen`)."""
        images = [image for message in messages for image in images_of(message)]
        # Earlier ones than these are not shown anyway.
        wanted = [image for image in images if not image.unseen][-self._limits.max_count :]
        urls = list(dict.fromkeys(image.url for image in wanted if image.data is None and image.url))
        if not urls:
            return messages
        found = {} if (kept := _FOUND.get()) is None else kept
        places = asyncio.Semaphore(FETCHED_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            running = {url: tasks.create_task(self._fetch(url, places)) for url in urls if url not in found}
        found |= {url: task.result() for url, task in running.items()}
        return with_images(messages, (_with_answer(image, found) for image in images))

    async def _fetch(self, url: str, places: asyncio.Semaphore) -> bytes | str:
        """The bytes at an address, or why there are none."""
        from shepherd.tools.builtin.web import download  # noqa: PLC0415 - few requests name an address
        from shepherd.tools.sandbox.network import NetworkPolicy  # noqa: PLC0415

        reach = NetworkPolicy(only=self._hosts, key="images.hosts", max_bytes=self._limits.max_bytes)
        async with places:
            try:
                return await download(reach, url, FETCH_S)
            except ToolError as error:
                return error.message


def for_provider(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages for a provider: each image has the type that its bytes have. What formats and sizes a provider takes
    is its own affair.

    Raises: `InvalidRequest` for a text in place of an image in the user's newest message.
    """
    images = [image for message in messages for image in images_of(message)]
    if not images:
        return tuple(messages)
    for image in _asked(messages):
        if image.data is not None:
            try:
                read_header(image.data)
            except NotAnImage as error:
                if error.is_text:
                    raise InvalidRequest(
                        f"{_name(image)} {error}; send an image in its place", field=_field(image)
                    ) from error
    return with_images(messages, map(_with_type, images))


def _with_type(image: Image) -> Image:
    kind = find_type(image.data or b"")
    return image if kind is None or kind == image.media_type else replace(image, media_type=kind)


def _with_answer(image: Image, found: dict[str, bytes | str]) -> Image:
    answer = found.get(image.url or "") if image.data is None else None
    match answer:
        case bytes():
            return replace(image, data=answer, media_type=find_type(answer) or image.media_type)
        case str():
            return replace(image, unseen=f"it was not fetched: {answer}")
        case _:
            return image


def _asked(messages: Sequence[Message]) -> list[Image]:
    """The images that the user has just sent."""
    at = newest_input(messages)
    return [] if at is None else list(images_of(messages[at]))


def _check(images: Iterable[Image], limits: ImageLimits) -> None:
    """Raises: `InvalidRequest` for the first that cannot be shown."""
    for image in images:
        if image.unseen:
            raise InvalidRequest(f"{_name(image)}: {image.unseen}", field=_field(image))
        if image.data is not None and (fault := find_fault(image.data, limits)) is not None:
            raise InvalidRequest(
                f"{_name(image)} {fault.what}; {fault.remedy}", field=_field(image), status=fault.status
            )


def _name(image: Image) -> str:
    return image.path or "the image"


def _field(image: Image) -> str:
    return image.path or "messages"
