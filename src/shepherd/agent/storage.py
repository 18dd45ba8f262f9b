"""Saved conversations: their JSON, and the folder of their files.

    Session ─ to_saved ─▶ Saved ─ to_json ─▶ 2026-11-22-1530-a-title.json ─ from_json ─▶ Saved ─▶ Session.restore

Every part of every message comes back exactly: signatures, the model's own spelling of calls, images, recordings. A
file is written beside its place, forced to the disk and then renamed, so a reader finds the old file or the new one.
Only its owner can read it: mode 0600, in a folder of mode 0700. Its contents are not trusted before they are checked.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import stat
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from shepherd.core import (
    Audio,
    BadCall,
    Document,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Sampling,
    ShepherdError,
    Text,
    ToolCall,
    ToolResult,
)  # fmt: skip
from shepherd.core.dataclasses import MISSING, asdict, dataclass, field, fields
from shepherd.process.files import MOST_DOCUMENT_BYTES, read_within, replace_private
from shepherd.wire.base import Fields, Range, wrong
from shepherd.wire.sampling import SAMPLING, sampling_of
from shepherd.wire.table import read_fields

FORMAT, VERSION = "shepherd conversation", 1
LONGEST_TITLE = 60
"""Characters of a title that is made from the first message."""
LONGEST_BEGINNING = 400
"""Characters of a message in a list of conversations."""
LONGEST_SLUG, LONGEST_NAME = 40, 80
"""Characters of a title in a file's name, and of the whole name."""
MOST_VERSIONS = 50
"""Of one question, besides the conversation's own."""
STALE_S = 3600.0
"""Age at which a half-written file counts as abandoned."""

Json = Any
T = TypeVar("T")


class SaveError(ShepherdError):
    """A conversation cannot be saved, found or read."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Text from the memory that stands before one message in the prompt."""

    text: str
    ids: tuple[int, ...] = ()
    """In the archive."""
    n_tokens: int = 0
    """For the model that reads it; not saved."""
    words: tuple[str, ...] = ()
    """What it was found by; not saved."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Another version of a conversation, from one of its questions on."""

    at: int
    """The index of the question."""
    place: int
    """Among the versions of that question, in the order in which they were made. The one number from 0 to their count
    that none has is that of the conversation itself."""
    messages: tuple[Message, ...]
    """From that index on."""
    branches: tuple[Branch, ...] = ()
    """Of the questions behind its first."""


@dataclass(slots=True)
class SavedConversation:
    id: str
    """Its name for the archive and the caches, which find what they hold by it."""
    messages: tuple[Message, ...] = ()
    system: str | None = None
    title: str = ""
    model: str = ""
    folder: str = ""
    """The working folder when it was saved."""
    began: datetime | None = None
    is_cut: bool = False
    """The last answer was interrupted."""
    unreported: int = 0
    """Messages that have left the context since the last notice to the model."""
    reported: dict[int, int] = field(default_factory=dict)
    """By index of the user message with the notice, how many messages it reports."""
    quotes: Mapping[int, Quote] = field(default_factory=dict)
    """By index of the message."""
    branches: tuple[Branch, ...] = ()
    sampling: Sampling | None = None
    """How its answers are drawn, where the conversation says so."""


@dataclass(frozen=True, slots=True)
class SavedListing:
    name: str
    title: str
    n_messages: int
    changed: datetime
    model: str = ""
    folder: str = ""
    first: str = ""
    """The beginning of the first message of the user."""
    last: str = ""
    """The beginning of the last one."""
    error: str = ""
    """Why it cannot be read."""
    id: str = ""
    """As that of the conversation."""


Stamp = tuple[int, int]


class Found(NamedTuple):
    name: str
    """Empty for a file elsewhere."""
    saved: SavedConversation
    stamp: Stamp | None
    """Of the file, as it was read."""


class ConversationStore:
    """A folder of conversations, created when the first one is saved. Several processes may use it."""

    def __init__(self, folder: Path, keep: int = 200) -> None:
        """`keep`: the most conversations that stay; the least recently changed are deleted first."""
        self.folder = folder
        self._keep = keep

    def save(self, saved: SavedConversation, name: str = "") -> str:
        """Write a conversation; its name from now on: `name`, or one made from its date and title. If another
        conversation has that name, this one gets a number. Raises: `SaveError`."""
        text = json.dumps(to_json(saved), ensure_ascii=False, indent=1) + "\n"
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair, which a model can write and UTF-8 cannot
            data = json.dumps(to_json(saved), indent=1).encode("ascii")
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.folder.chmod(0o700)
            path = self._path_for(saved, name)
            replace_private(path, data, durable=True)
            self._tidy(path)
        except OSError as error:
            raise SaveError(f"{self.folder} cannot be written: {error.strerror or error}") from error
        return path.stem

    def load(self, name: str) -> SavedConversation:
        """The conversation of exactly this name. Raises: `SaveError` when there is none, or it is damaged."""
        return from_json(_read(self._path(name)))

    def find(self, typed: str) -> Found:
        """The conversation of this name, or of the only name that begins with it, or in the file of this path. Raises:
        as `load`, with the path."""
        path = self._find(typed)
        name = path.stem if path == self._path(path.stem) else ""
        stamp = self.stamp(name) if name else None
        try:
            return Found(name, from_json(_read(path)), stamp)
        except SaveError as error:
            raise SaveError(f"{path}: {error.message}") from error

    def newest(self) -> str | None:
        """The name of the newest conversation; None when there is none."""
        return next(iter(self.names()), None)

    def names(self) -> tuple[str, ...]:
        """All names, the newest first."""
        return tuple(path.stem for path in self._paths())

    def is_changed(self, name: str, stamp: Stamp | None) -> bool:
        """Whether another program has written the file of exactly this name since it had this stamp. One that has
        none, and one that is gone, can be written."""
        return stamp is not None and self.stamp(name) not in (None, stamp)

    def stamp(self, name: str) -> Stamp | None:
        """What changes with the file of exactly this name: its time and its size; None without a file."""
        try:
            found = self._path(name).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size

    def listing(self, name: str) -> SavedListing:
        """The conversation of exactly this name. Reads its file."""
        return _listed(self._path(name))

    def list(self) -> tuple[SavedListing, ...]:
        """All conversations, the newest first; a file that cannot be read has an error. Reads every file."""
        return tuple(_listed(path) for path in self._paths())

    def remove(self, name: str) -> None:
        """Delete the conversation of exactly this name; one that has gone already is no error. Raises: `SaveError`."""
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SaveError(f"{path} cannot be deleted: {error.strerror or error}") from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _find(self, name: str) -> Path:
        name = name.strip()
        if os.sep in name or name.startswith("~"):
            path = Path(name).expanduser()
            if path.is_file():
                return path
            raise SaveError(f"there is no file {name}")
        stem = name.removesuffix(".json")
        names = self.names()
        near = [known for known in names if known == stem] or [known for known in names if known.startswith(stem)]
        if len(near) == 1 and stem:
            return self._path(near[0])
        if near and stem:
            raise SaveError(f"{name!r} may be any of {', '.join(near[:5])}; give more of the name")
        some = ", ".join(names[:5])
        raise SaveError(
            f"no saved conversation is called {name!r}; " + (f"the newest: {some}" if some else "none is saved yet")
        )

    def _paths(self) -> Sequence[Path]:
        try:
            entries = [each for each in os.scandir(self.folder) if each.name.endswith(".json") and each.name[0] != "."]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SaveError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        found = []
        for entry in entries:
            with contextlib.suppress(OSError):  # it was deleted meanwhile, or is a link that leads nowhere
                if stat.S_ISREG((status := entry.stat()).st_mode):
                    found.append((status.st_mtime_ns, entry.name))
        return [self.folder / name for _, name in sorted(found, reverse=True)]

    def _path_for(self, saved: SavedConversation, name: str) -> Path:
        """The file for this conversation: its own, or a new one."""
        began = saved.began or datetime.now().astimezone()
        made = f"{began:%Y-%m-%d-%H%M}-{_slug(saved.title or title_of(saved.messages))}"
        stem = _slug(name, LONGEST_NAME) if name else made
        as_given = [name] if name in self.names() else []
        for candidate in (*as_given, stem, *(f"{stem}-{number}" for number in range(2, 10_000))):
            path = self.folder / f"{candidate}.json"
            try:
                if _read(path).get("id") == saved.id:
                    return path
            except SaveError:
                if not os.path.lexists(path):
                    return path
        raise SaveError(f"there are too many conversations called {stem!r} in {self.folder}")

    def _tidy(self, newest: Path) -> None:
        """Delete conversations beyond the limit, and half-written files of killed processes."""
        for path in self._paths()[self._keep :]:
            if path != newest:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()


def title_of(messages: Sequence[Message]) -> str:
    """A title for a conversation that has none: the beginning of the first user message."""
    texts = (message.own_text.strip() for message in messages if message.role == "user")
    text = " ".join(next(filter(None, texts), "").split())
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1].rstrip()}…"


# -- JSON --------------------------------------------------------------------------------------------------------------

KINDS: Mapping[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "audio": Audio,
    "document": Document,
    "reasoning": Reasoning,
    "call": ToolCall,
    "bad_call": BadCall,
    "result": ToolResult,
    "opaque": Opaque,
}
"""The kinds of parts, by the value of `type`."""


def to_json(saved: SavedConversation) -> dict[str, Json]:
    """A conversation as plain values, without those that are a default."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": saved.id,
        "title": saved.title,
        "model": saved.model,
        "folder": saved.folder,
        "began": saved.began.isoformat() if saved.began else None,
        "system": saved.system,
        "is_cut": saved.is_cut,
        "untold": saved.unreported,
        "told": {str(at): n for at, n in saved.reported.items()},
        "quotes": {str(at): {"text": quote.text, "ids": list(quote.ids)} for at, quote in saved.quotes.items()},
        "messages": [message_to_json(message) for message in saved.messages],
        **({"branches": [_branch_to_json(each) for each in saved.branches]} if saved.branches else {}),
        **({"sampling": given_sampling(saved.sampling)} if saved.sampling else {}),
    }


def given_sampling(sampling: Sampling) -> dict[str, Json]:
    """The parameters that are set, by name."""
    return {name: value for name, value in asdict(sampling).items() if value is not None}


def _branch_to_json(branch: Branch) -> dict[str, Json]:
    return {
        "at": branch.at,
        "place": branch.place,
        "messages": [message_to_json(message) for message in branch.messages],
        "branches": [_branch_to_json(each) for each in branch.branches],
    }


def message_to_json(message: Message) -> dict[str, Json]:
    """A message as plain values; `read_message` reads them."""
    return {"role": message.role, "origin": message.origin, "parts": [_part_to_json(part) for part in message.parts]}


def _part_to_json(part: Part) -> dict[str, Json]:
    made: dict[str, Json] = {"type": next(name for name, kind in KINDS.items() if kind is type(part))}
    for each in fields(part):
        value = each.default if each.metadata.get("transient") else getattr(part, each.name)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, tuple):
            value = [_part_to_json(inner) for inner in value]
        if each.default is MISSING or value != each.default:
            made[each.name] = value
    return made


def from_json(read: Json) -> SavedConversation:
    """The conversation. Raises: `SaveError` that names the first wrong value."""
    try:
        return _decoded(Fields(read))
    except InvalidRequest as error:
        raise SaveError(error.message) from error
    except RecursionError as error:
        raise SaveError("the file is damaged: its parts or versions are nested too deeply") from error


def _decoded(top: Fields) -> SavedConversation:
    if top.find_any("format") != FORMAT:
        raise SaveError("this is no saved conversation")
    if (version := top.find_integer("version")) != VERSION:
        raise SaveError(f"it is of version {version} and this Shepherd reads version {VERSION}; use the newer one")
    if (id := top.find_string("id")) is None:
        raise SaveError("id is missing")
    messages = tuple(map(read_message, top.objects("messages", sys.maxsize)))
    return SavedConversation(
        id,
        messages=messages,
        system=top.find_string("system"),
        title=top.find_string("title") or "",
        model=top.find_string("model") or "",
        folder=top.find_string("folder") or "",
        began=_time(top.find_string("began")),
        is_cut=bool(top.find_boolean("is_cut")),
        unreported=top.find_integer("untold") or 0,
        reported=_numbered(top, "told", len(messages), lambda counts, at: counts.find_integer(at) or 0),
        quotes=_numbered(top, "quotes", len(messages), lambda quotes, at: _quote(quotes.get_object(at))),
        branches=_branches(top, messages),
        sampling=sampling_of(read_fields(top.get_object("sampling"), SAMPLING)) if top.has("sampling") else None,
    )


def _branches(read: Fields, messages: Sequence[Message], start: int = 0, first: int = 0) -> tuple[Branch, ...]:
    """Those of the questions among `messages`, whose indexes begin at `start`, from the index `first` on."""
    asked = {at for at, message in enumerate(messages, start) if message.is_input and at >= first}
    found = []
    for each in read.objects("branches", MOST_VERSIONS * len(messages)):
        at, place = each.find_integer("at"), each.find_integer("place", Range(0, MOST_VERSIONS))
        tail = tuple(map(read_message, each.objects("messages", sys.maxsize)))
        if at not in asked or place is None or not tail or not tail[0].is_input:
            raise SaveError(f"{each.path} is no version of a question")
        found.append(Branch(at, place, tail, _branches(each, tail, at, at + 1)))
    for at, n in Counter(each.at for each in found).items():
        if len({each.place for each in found if each.at == at} & {*range(n + 1)}) < n:
            raise SaveError(f"{read.at('branches')}: the versions of message {at} are not numbered from 0, once each")
    return tuple(found)


def _numbered(top: Fields, name: str, n: int, read: Callable[[Fields, str], T]) -> dict[int, T]:
    """An object whose keys are indexes below `n`."""
    held = top.find_object(name) or Fields({})
    for key in held.body:
        if not (key.isascii() and key.isdigit() and int(key) < n):
            raise SaveError(f"{name} names message {key}, which does not exist")
    return {int(key): read(held, key) for key in held.body}


def read_message(read: Fields) -> Message:
    """Raises: `InvalidRequest`, `SaveError`."""
    role: Any = read.find_string("role")
    if role not in get_args(Role):
        raise wrong(read.at("role"), f"one of {', '.join(get_args(Role))}", role)
    return Message(role, tuple(map(_part, read.objects("parts", sys.maxsize))), read.find_string("origin"))


def _part(read: Fields) -> Part:
    name = read.find_string("type")
    if (kind := KINDS.get(name or "")) is None:
        raise wrong(read.at("type"), f"one of {', '.join(KINDS)}", name)
    values = {each.name: READERS[str(each.type)](read, each.name) for each in fields(kind) if read.has(each.name)}
    for each in fields(kind):
        if each.default is MISSING and each.name not in values:
            raise SaveError(f"{read.at(each.name)} is missing")
    return kind(**values)


def _bytes(read: Fields, name: str) -> bytes:
    try:
        return base64.b64decode(read.find_string(name) or "", validate=True)
    except (ValueError, binascii.Error) as error:
        raise SaveError(f"{read.at(name)} must be base64") from error


def _parts_of(read: Fields, name: str, *kinds: type[Part]) -> tuple[Part, ...]:
    parts = tuple(map(_part, read.objects(name, sys.maxsize)))
    if not all(isinstance(part, kinds) for part in parts):
        allowed = ", ".join(name for name, kind in KINDS.items() if kind in kinds)
        raise SaveError(f"{read.at(name)} may hold parts of these types only: {allowed}")
    return parts


READERS: Mapping[str, Callable[[Fields, str], Json]] = {
    "str": Fields.find_string,
    "bool": Fields.find_boolean,
    "str | None": Fields.find_string,
    "bytes": _bytes,
    "bytes | None": _bytes,
    "tuple[Text | Image | Audio, ...]": lambda read, name: _parts_of(read, name, Text, Image, Audio),
    "tuple[Text | ToolCall | ToolResult, ...]": lambda read, name: _parts_of(read, name, Text, ToolCall, ToolResult),
}
"""How a field of a part is read, by its type."""


def _quote(read: Fields) -> Quote:
    ids = read.find_array("ids") or []
    if any(isinstance(id, bool) or not isinstance(id, int) for id in ids):
        raise wrong(read.at("ids"), "whole numbers", ids)
    return Quote(read.find_string("text") or "", tuple(ids))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        made = datetime.fromisoformat(text)
        return made if made.tzinfo else made.astimezone()
    except (ValueError, OverflowError) as error:
        raise SaveError("began must be a time such as 2026-11-22T15:30:00+01:00") from error


# -- files -------------------------------------------------------------------------------------------------------------


def _slug(text: str, limit: int = LONGEST_SLUG) -> str:
    words = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", text).lower()).strip("-")
    return words[:limit].rstrip("-") or "conversation"


def _listed(path: Path) -> SavedListing:
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    except (OSError, ValueError, OverflowError):  # it was deleted meanwhile, or its time is in no calendar
        changed = datetime.fromtimestamp(0).astimezone()
    try:
        saved = from_json(_read(path))
    except SaveError as error:
        return SavedListing(path.stem, "", 0, changed, error=error.message)
    asked = [text[:LONGEST_BEGINNING] for each in saved.messages if each.is_input and (text := each.own_text.strip())]
    return SavedListing(
        path.stem,
        saved.title or title_of(saved.messages),
        len(saved.messages),
        changed,
        saved.model,
        saved.folder,
        first=asked[0] if asked else "",
        last=asked[-1] if asked else "",
        id=saved.id,
    )


def _read(path: Path) -> Json:
    try:
        read = json.loads(read_within(path, MOST_DOCUMENT_BYTES))
    except OSError as error:
        raise SaveError(f"it cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SaveError("the file is damaged: it is not JSON") from error
    if not isinstance(read, dict):
        raise SaveError("this is no saved conversation")
    return read
