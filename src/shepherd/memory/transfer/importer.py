"""Imports files into a memory: exports of ChatGPT and Claude, JSON Lines, and our own export.

file, folder, zip ─▶ `readers` ─▶ conversations, export lines ─▶ batches ─▶ `merge`, one transaction each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from shepherd.memory.transfer import readers
from shepherd.memory.transfer.items import ExportLine, ImportedConversation, ImportProblem, Items
from shepherd.memory.transfer.merge import ImportResult, ImportState, merge

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore

BATCH = 500
"""Messages that one transaction stores, so that other writers do not wait for long."""

Progress = Callable[[int, int], None]
"""Gets how many bytes have been read, and how many there are."""


def import_file(store: MemoryStore, path: Path | str, *, on_progress: Progress | None = None) -> ImportResult:
    """Store what a file, a folder or a zip holds.

    An import that breaks off keeps what it has stored; the next import of the same file continues there.
    Raises: `InvalidRequest` when nothing can be opened; `MemoryFailure`.
    """
    result = ImportResult()
    with readers.members(Path(path)) as found:
        total, before = sum(member.size_bytes for member in found), 0
        for member in found:
            on_bytes = partial(_report, on_progress, before, total) if on_progress else None
            name = member.name if len(found) > 1 else ""
            with member.open() as stream:
                result.add(import_stream(store, stream, name=name, on_bytes=on_bytes))
            before += member.size_bytes
    return result


def _report(on_progress: Progress, before: int, total: int, n_bytes: int) -> None:
    on_progress(before + n_bytes, total)


def import_stream(
    store: MemoryStore, stream: IO[bytes], *, name: str = "", on_bytes: Callable[[int], None] | None = None
) -> ImportResult:
    """`import_file` for one stream, read from start to end. Problems are reported with its `name`."""
    result, state = ImportResult(), ImportState()
    for batch in _batches(readers.read(stream, name, on_bytes), result):
        done, state = store.write(partial(merge, items=batch, earlier=state))
        result.add(done)
    return result


def _batches(items: Items, result: ImportResult) -> Iterator[list[ImportedConversation | ExportLine]]:
    """What one transaction stores. Problems go to `result`."""
    batch: list[ImportedConversation | ExportLine] = []
    weight = 0
    for item in items:
        if isinstance(item, ImportProblem):
            result.add_problem(item)
            continue
        for part in _parts(item) if isinstance(item, ImportedConversation) else (item,):
            batch.append(part)
            weight += len(part.entries) if isinstance(part, ImportedConversation) else 1
            if weight >= BATCH:
                yield batch
                batch, weight = [], 0
    yield batch


def _parts(whole: ImportedConversation) -> Iterator[ImportedConversation]:
    for at in range(0, len(whole.entries), BATCH):
        is_continued, n_left_out = whole.is_continued or at > 0, 0 if at else whole.n_left_out
        yield replace(whole, entries=whole.entries[at : at + BATCH], is_continued=is_continued, n_left_out=n_left_out)
