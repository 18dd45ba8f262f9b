"""What the reader of a file yields: conversations, lines of our own export, and problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shepherd.core.dataclasses import dataclass
from shepherd.memory.records import Entry, digest

PART = 256
"""Messages in one part of a conversation that is read from single lines."""


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """A conversation of a file, or the next part of one."""

    source: str
    """`chatgpt`, `claude` or `jsonl`."""
    name: str
    """The name in the file; without one, a digest of the first messages."""
    entries: tuple[Entry, ...]
    is_continued: bool = False
    """It follows an earlier part with the same name."""
    title: str = ""
    created_ms: int | None = None
    model: str = ""
    n_left_out: int = 0
    """Messages of the file on branches that its user has abandoned."""
    is_loose: bool = False
    """A message on a line of its own; `name` "" = the conversation of all that name none."""


@dataclass(frozen=True, slots=True)
class ExportLine:
    where: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """Something that cannot be read."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class UnreadableError(Exception):
    """Says what is wrong with one object."""


Items = Iterator[ImportedConversation | ExportLine | ImportProblem]
"""What a file holds, or an object of a file."""


def digest_name(entries: Sequence[Entry]) -> str:
    """A name for a conversation without one: the same for the same file, also when the file has grown."""
    n = next((n for n, entry in enumerate(entries[:PART], 1) if entry.role == "assistant"), PART)
    return digest(b"".join(entry.sha for entry in entries[:n])).hex()
