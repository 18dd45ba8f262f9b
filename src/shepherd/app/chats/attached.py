"""What goes into a chat besides its text: files that a client sends or names, and messages of the memory.

Files are named by paths inside of the folders that the tools may read (`tools/sandbox/roots.py`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from shepherd.agent.attachment import Attached, Limits, check_senses, part_of, senses
from shepherd.agent.fitting import fitting
from shepherd.app.chats.chats import Chat
from shepherd.core import InvalidRequest, Text
from shepherd.memory.recall.recall import Quote, render
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.builtin.content import first_bytes, opened
from shepherd.tools.sandbox.folder import Folder
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.sandbox.tree import walk
from shepherd.wire.base import Fields, shown

Json = dict[str, Any]

MOST_ATTACHMENTS = 20
MOST_QUOTES = 50
MOST_SUGGESTIONS = 100
MOST_WALKED = 5_000
"""Files and folders that a completion looks at."""


async def attached(chat: Chat, given: Sequence[Fields]) -> tuple[Attached, ...]:
    """The parts of the files of a message. Raises: `InvalidRequest` that names the file."""
    chats = chat.shelf.chats
    if len(given) > MOST_ATTACHMENTS:
        raise InvalidRequest(
            f"attachments has {len(given)} files; at most {MOST_ATTACHMENTS} are accepted", field="attachments"
        )
    limits = Limits.of(
        chat.session.n_ctx or 4096, image=chats.config.images.max_bytes, audio=chats.config.audio.max_bytes
    )
    parts = await in_pool("media", lambda: [_part(chat, file, limits) for file in given])
    able = senses(chats.models(), chat.session.model)
    for file, part in zip(given, parts, strict=True):
        check_senses([part], able, chat.session.model, where=_called(file), field=file.path)
    return tuple(parts)


def _called(file: Fields) -> str:
    return f"{file.path} ({shown(file.find_string('name') or file.find_string('path') or '')})"


def _part(chat: Chat, file: Fields, limits: Limits) -> Attached:
    path, name = file.find_string("path"), file.find_string("name") or "file"
    if odd := [*{*file.body} - {"path", "name", "type", "data"}]:
        raise InvalidRequest(f"{file.path} has no {shown(odd[0])}; known: path, name, type, data", field=file.path)
    if path is not None and file.has("data"):
        raise InvalidRequest(f"{file.path} has a path and data; send one of them", field=file.path)
    if path is not None:
        raw = _read(chat, file, path, limits.most)
        name = path
    else:
        try:
            raw = base64.b64decode(file.get_string("data", "send data in base64, or a path"), validate=True)
        except (ValueError, binascii.Error) as error:
            raise InvalidRequest(f"{file.at('data')} must be base64", field=file.at("data")) from error
    return part_of(" ".join(name.split())[:200], raw, len(raw), limits, called=_called(file), field=file.path)


def _read(chat: Chat, file: Fields, path: str, most: int) -> bytes:
    if chat.shelf.owner.is_guest:
        raise InvalidRequest(
            f"{file.at('path')}: this API key may not name files of the server; send data", field=file.at("path")
        )
    try:
        with _roots(chat).find(path) as place:
            place.stat()  # says what is there, where the file is not
            with opened(place.folder, place.name) as blocks:
                return first_bytes(blocks, most)
    except ToolError as error:
        raise InvalidRequest(f"{file.at('path')}: {error.message}", field=file.at("path")) from error


def _roots(chat: Chat) -> Roots:
    return Roots.of(chat.shelf.chats.tools.folders)


async def quoted(chat: Chat, ids: Sequence[int]) -> tuple[Text, ...]:
    """Messages of the memory, as the memory quotes them. Raises: `InvalidRequest` that names the unknown ones."""
    if not ids:
        return ()
    if len(ids) > MOST_QUOTES:
        raise InvalidRequest(f"quotes has {len(ids)} ids; at most {MOST_QUOTES} are accepted", field="quotes")
    store = await in_pool("memory", chat.shelf.chats.memory, chat.shelf.owner.user)
    found = [] if store is None else await in_pool("memory", store.stored, ids)
    known = {each.id for each in found}
    if missing := [f"{id}" for id in dict.fromkeys(ids) if id not in known]:
        raise InvalidRequest(
            f"quotes has ids of no message in your memory: {', '.join(missing)}; GET /v1/chats/search finds messages",
            field="quotes",
        )
    return (Text(render(Quote(each, each.body) for each in found), aside=True),)


def paths(chat: Chat, typed: str) -> Iterator[str]:
    """Files and folders below the working folder of the tools whose path, or name, fits. Not on the event loop."""
    if chat.shelf.owner.is_guest:
        return
    found: list[tuple[str, str]] = []
    with (
        contextlib.suppress(OSError, ToolError),
        Folder.top(_roots(chat).base) as top,
        contextlib.closing(walk(top)) as entries,
    ):
        for _, names, kind in islice(entries, MOST_WALKED):
            if typed.startswith(".") or not any(name.startswith(".") for name in names):
                path = "/".join(names) + ("/" if kind == "directory" else "")
                found.append((path if "/" in typed else names[-1], path))
    yield from (path for _, path in islice(fitting(typed, found), MOST_SUGGESTIONS))
