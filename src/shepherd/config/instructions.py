"""AGENTS.md: what a folder tells the models that work in it.

    working folder ─ up to the root of its git repository ─▶ AGENTS.md, else CLAUDE.md, of each folder
                                                              └─▶ InstructionFile, the nearest last ─▶ one text

A file that cannot be read is a sentence, and never ends a start. Not here: whether the user trusts a file
(`trust.py`), and how much of the context the text may take (`cli/chat/instructions.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shepherd.config.trust import FolderFile, Risk
from shepherd.process.files import read_within

NAMES = ("AGENTS.md", "CLAUDE.md")
"""Of one folder, the first that is there is read."""
MOST_BYTES = 64 * 1024
"""Of one file: about 16,000 tokens."""
EFFECT = "would be in every prompt of a chat: it tells the model what to do, also with your files and tools"


@dataclass(frozen=True, slots=True)
class InstructionFile:
    name: str
    """From the root of the repository, such as `docs/AGENTS.md`."""
    text: str
    file: FolderFile
    """For the question whether the user trusts it."""


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


def prompt(files: Sequence[InstructionFile]) -> str:
    """The text of the files for the system prompt; empty without files. No path of this machine is in it, so that the
    same repository gives the same prompt everywhere."""
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
