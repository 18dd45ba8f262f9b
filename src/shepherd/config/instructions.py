"""AGENTS.md: what a folder tells the models that work in it.

    working folder ─ up to the root of its git repository ─▶ AGENTS.md, else CLAUDE.md, of each folder
                                                              └─▶ InstructionFile, the nearest last
    files ─ trusted already, or a person is asked ─ given: those that fit ─▶ one text

The chat of the terminal and the chats of the server read them alike. A file that cannot be read is a sentence, and
never ends a start. Not here: how a person is asked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

from shepherd.config.load import given_consent
from shepherd.config.trust import FolderFile, Risk, TrustStore
from shepherd.core.dataclasses import dataclass
from shepherd.process.files import read_within
from shepherd.process.pools import in_pool

Confirm = Callable[[str], Awaitable[bool]]
"""Asks a person a question."""

NAMES = ("AGENTS.md", "CLAUDE.md")
"""Of one folder, the first that is there is read."""
MOST_BYTES = 64 * 1024
"""Of one file: about 16,000 tokens."""
SHARE = 4
"""Of the context, the files may have this part at most."""
EFFECT = "would be in every prompt of a chat: it tells the model what to do, also with your files and tools"


@dataclass(frozen=True, slots=True)
class InstructionFile:
    name: str
    """From the root of the repository, such as `docs/AGENTS.md`."""
    text: str
    file: FolderFile
    """For the question whether the user trusts it."""


@dataclass(frozen=True, slots=True)
class Found:
    all: tuple[InstructionFile, ...] = ()
    files: tuple[InstructionFile, ...] = ()
    """Those that the user trusts."""
    left_out: tuple[str, ...] = ()
    """A sentence about each other file."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a model gets of the files."""

    text: str = ""
    """For the system prompt; empty without files."""
    line: str = ""
    """Such as `AGENTS.md: 412 tokens`."""
    left_out: tuple[str, ...] = ()
    """A sentence about each file that the model does not get."""


def find(folder: Path) -> tuple[tuple[InstructionFile, ...], tuple[str, ...]]:
    """The files for work in `folder`, those that are not empty, and a sentence about each that cannot be used."""
    folder = folder.resolve()
    root = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), folder)
    ways = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    found, wrong = [], []
    for each in reversed(ways):
        path = next((each / name for name in NAMES if os.path.lexists(each / name)), None)
        if path is None:
            continue
        try:
            content = _content(path)
            text = content.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            wrong.append(f"{path}: left out: it is not text in UTF-8 (byte {error.start}); save it as UTF-8")
        except OSError as error:
            wrong.append(f"{path}: left out: {_reason(path, error)}")
        else:
            if text:
                n_lines = text.count("\n") + 1
                risk = Risk("", EFFECT, f"{n_lines} line{'s' * (n_lines > 1)}")
                file = FolderFile(path.resolve(), hashlib.sha256(content).hexdigest(), (risk,))
                found.append(InstructionFile(path.relative_to(root).as_posix(), text, file))
    return tuple(found), tuple(wrong)


async def read(
    folder: Path, env: Mapping[str, str], confirm: Confirm | None, refused: Collection[FolderFile] = ()
) -> Found:
    """The files for work in `folder` that the user trusts. About one that is new or has changed `confirm` asks; None =
    it is left out, as those that were `refused` before. Raises: `ConfigError`."""
    found, wrong = await in_pool("files", find, folder)
    consent, trusted = given_consent(env), TrustStore.of_user()
    files = []
    for each in found:
        is_trusted = await in_pool("files", trusted.__contains__, each.file) if consent is None else consent(each.file)
        if not is_trusted and consent is None and confirm is not None and each.file not in refused:
            risk = each.file.risks[0]
            is_trusted = await confirm(
                f"{each.file.path} ({risk.value}) is new here, or has changed. It {risk.effect}. Trust it?"
            )
            if is_trusted:
                trusted.add(each.file)
        files += [each] if is_trusted else []
    return Found(found, tuple(files), (*wrong, *(each.file.left_out for each in found if each not in files)))


def given(files: Sequence[InstructionFile], n_ctx: int, count: Callable[[str], int]) -> Given:
    """The trusted files that fit into their share of the context; the farthest are left out first. `count`: tokens of a
    text."""
    files, left_out, room = [*files], [], n_ctx // SHARE
    while (n_tokens := count(prompt(files)) if files else 0) > room > 0:
        far = files.pop(0)
        left_out.append(
            f"{far.file.path}: left out: the instructions of this folder have {n_tokens:,} tokens, and may have "
            f"{room:,}, a quarter of the context; shorten the file, or start with a larger --context-size"
        )
    line = f"{', '.join(each.name for each in files)}: {n_tokens} token{'s' * (n_tokens != 1)}" if files else ""
    return Given(prompt(files), line, tuple(left_out))


def prompt(files: Sequence[InstructionFile]) -> str:
    """The text of files; empty without any. No path of this machine is in it: the same repository gives the same prompt
    everywhere."""
    return "\n\n".join(f"Instructions of the file {each.name}:\n\n{each.text}" for each in files)


def _content(path: Path) -> bytes:
    """Raises: `OSError`."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"it is {'a folder' if path.is_dir() else 'no regular file'}; remove or rename it")
    return read_within(path, MOST_BYTES)


def _reason(path: Path, error: OSError) -> str:
    if path.is_symlink() and isinstance(error, FileNotFoundError):
        return f"it is a link to {os.readlink(path)}, which does not exist; mend or remove it"
    return error.strerror or str(error)
