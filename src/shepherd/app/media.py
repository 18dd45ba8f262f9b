"""The images and recordings of a request before a model of this machine answers it: what a user has just sent is right,
or is refused.

    newest message of the user ─▶ fetch addresses, read headers ─▶ given, or `InvalidRequest` that names its field
    earlier ones, results      ─▶ fetch addresses               ─▶ `backends/local/media.py` leaves out what is wrong

A request is refused where its sender can change it at once. A file of the history is not: the client sends it again
with every request, and the conversation would never have an answer. An address is fetched only from the hosts that the
operator names, once for each request, and never for a provider, which fetches by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal

from shepherd.backends.local.media import (
    ImageLimits,
    MediaLimits,
    find_fault,
    media_of,
    typed,
    with_media,
)
from shepherd.core import Audio, Image, InvalidRequest, Message, Request, Unsupported
from shepherd.core.messages import newest_input
from shepherd.media import image as image_file
from shepherd.media import sound
from shepherd.process.pools import in_pool
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


Sense = Literal["vision", "audio"]
"""A capability of a model, as its card names it."""
_KINDS: tuple[tuple[type[Image | Audio], Sense, str, str], ...] = (
    (Image, "vision", "images", "an image"),
    (Audio, "audio", "audio", "a recording"),
)


class MediaDoor:
    """Admits the images and recordings of requests. One event loop."""

    def __init__(self, limits: MediaLimits, hosts: Sequence[str]) -> None:
        """`hosts`: names or globs of those from which images are fetched."""
        self._limits = limits
        self._max_bytes = (limits.images or ImageLimits()).max_bytes
        self._hosts = tuple(hosts)

    async def admit(self, request: Request, lacking: Callable[[Sense], str]) -> Request:
        """The request with the images behind its addresses, as far as they could be fetched.

        `lacking` says why the model has not a sense; it is asked only where there is something for it. Raises:
        `Unsupported` for a file in the user's newest message that the model has no sense for; `InvalidRequest` for one
        there that cannot be given.
        """
        media = [part for message in request.messages for part in media_of(message)]
        for kind, sense, section, word in _KINDS:
            if not any(isinstance(part, kind) for part in media):
                continue
            asked = [part for part in _asked(request.messages) if isinstance(part, kind)]
            if why := lacking(sense):
                for part in asked[:1]:
                    raise Unsupported(f"{_name(part)} is {word}, and {why}", field=_field(part))
                continue
            most = self._limits.n_most(kind)
            if most is not None and len(asked) > most:
                number = f"{word.split()[1]} {most + 1} of {len(asked)} in its message"
                raise InvalidRequest(
                    f"{_name(asked[most])} is {number}, and the limit is {most} ({section}.max_count); send fewer "
                    "at once",
                    field=_field(asked[most]),
                )
            if kind is Image:
                request = replace(request, messages=await self._fetched(request.messages))
            asked = [part for part in _asked(request.messages) if isinstance(part, kind)]
            await in_pool("media", _check, asked, self._limits)
        return request

    async def _fetched(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with the images behind the addresses; one that was not fetched says why (`Image.left_out`)."""
        media = [part for message in messages for part in media_of(message)]
        # Earlier ones than these are not shown anyway.
        shown = [part for part in media if isinstance(part, Image) and not part.left_out]
        wanted = shown[-(self._limits.n_most(Image) or len(shown)) :]
        urls = list(dict.fromkeys(image.url for image in wanted if image.data is None and image.url))
        if not urls:
            return messages
        found = {} if (kept := _FOUND.get()) is None else kept
        places = asyncio.Semaphore(FETCHED_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            running = {url: tasks.create_task(self._fetch(url, places)) for url in urls if url not in found}
        found |= {url: task.result() for url, task in running.items()}
        return with_media(messages, (_with_answer(part, found) for part in media))

    async def _fetch(self, url: str, places: asyncio.Semaphore) -> bytes | str:
        """The bytes at an address, or why there are none."""
        from shepherd.tools.builtin.web import download  # noqa: PLC0415 - few requests name an address
        from shepherd.tools.sandbox.network import NetworkPolicy  # noqa: PLC0415

        reach = NetworkPolicy(only=self._hosts, key="images.hosts", max_bytes=self._max_bytes)
        async with places:
            try:
                return await download(reach, url, FETCH_S)
            except ToolError as error:
                return error.message


def for_provider(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages for a provider: each file has the type that its bytes have. What formats and sizes a provider takes
    is its own affair.

    Raises: `InvalidRequest` for a text in place of an image or a recording in the user's newest message.
    """
    media = [part for message in messages for part in media_of(message)]
    if not media:
        return tuple(messages)
    for part in _asked(messages):
        if part.data is not None and (text := _text_in(part)):
            word = "an image" if isinstance(part, Image) else "a recording"
            raise InvalidRequest(f"{_name(part)} {text}; send {word} in its place", field=_field(part))
    return with_media(messages, map(typed, media))


def _text_in(part: Image | Audio) -> str:
    """What text a file is; empty for other files."""
    try:
        if isinstance(part, Image):
            image_file.read_header(part.data or b"")
        else:
            sound.read_header(part.data)
    except image_file.NotMedia as error:
        return str(error) if error.is_text else ""
    return ""


def _with_answer(part: Image | Audio, found: dict[str, bytes | str]) -> Image | Audio:
    if isinstance(part, Audio) or part.data is not None:
        return part
    match found.get(part.url or ""):
        case bytes() as data:
            return typed(replace(part, data=data))
        case str() as why:
            return replace(part, left_out=f"it was not fetched: {why}")
        case _:
            return part


def _asked(messages: Sequence[Message]) -> list[Image | Audio]:
    at = newest_input(messages)
    return [] if at is None else list(media_of(messages[at]))


def _check(media: Iterable[Image | Audio], limits: MediaLimits) -> None:
    for part in media:
        if part.left_out:
            raise InvalidRequest(f"{_name(part)}: {part.left_out}", field=_field(part))
        if (fault := find_fault(part, limits)) is not None:
            raise InvalidRequest(f"{_name(part)} {fault.what}; {fault.remedy}", field=_field(part), status=fault.status)


def _name(part: Image | Audio) -> str:
    return part.path or ("the image" if isinstance(part, Image) else "the recording")


def _field(part: Image | Audio) -> str:
    return part.path or "messages"
