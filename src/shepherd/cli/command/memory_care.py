"""`shepherd memory`: maintains the file: forget, prune, stats, export, import, check, embed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from shepherd.cli import render
from shepherd.cli.command.memory import MemoryAccess, conversation_called, day, embedding, moment
from shepherd.cli.text import format_size, one_line
from shepherd.core import InvalidRequest, ShepherdError
from shepherd.memory.archive.forget import folded
from shepherd.memory.records import to_datetime
from shepherd.memory.transfer import as_json, importer
from shepherd.memory.transfer import export as transfer
from shepherd.memory.users import LOCAL

SAMPLE = 5
"""Messages that are shown before the question whether to delete them."""
ALWAYS = 2**62
"""A time later than all others."""


# -- forgetting and pruning -------------------------------------------------------------------------------------------


def forget(
    access: MemoryAccess,
    *,
    messages: Sequence[int],
    conversation: str | None,
    matching: str | None,
    before: str | None,
    everything: bool,
    yes: bool,
) -> int:
    """Show what would go, ask, and delete it from the file; the conversations that caches keep on disk go, too."""
    from shepherd.agent.compaction_store import CompactionStore
    from shepherd.app.files import compactions_file, drop_snapshots, snapshot_folder

    chosen = (messages, conversation, matching, before)
    if everything and any(chosen):
        raise click.UsageError("--everything takes no other filter; leave the others out.")
    if not everything and not any(each not in (None, ()) for each in chosen):
        if access.user is None:
            raise click.UsageError("Give --message, --conversation, --matching, --before, --user or --everything.")
        everything = True
    with access.stores() as stores:
        store = access.memory(stores)
        wanted: dict[str, Any] = {
            "messages": tuple(messages),
            "conversation": conversation_called(store, conversation).uuid if conversation else None,
            "matching": matching,
            "before_ms": ALWAYS if everything else moment("--before", before),
        }
        ids, phrase = store.find(**wanted), folded(matching) if matching else None
        facts = [
            fact
            for fact in store.facts(status=None)
            if everything or (phrase and phrase in folded(f"{fact.key} {fact.value}"))
        ]
        if not ids and not facts:
            access.show_result({"forgotten": {"messages": 0, "facts": 0}}, "No message or fact matches.")
            return 0
        amount = f"{len(ids)} message(s)" + (f" and {len(facts)} fact(s)" if facts else "")
        click.echo(f"This would be deleted: {amount}", err=True)
        for message in store.stored(ids[:SAMPLE]):
            click.echo(f"  {day(message.time)} {message.role}: {one_line(message.body)[:100]}", err=True)
        if len(ids) > SAMPLE:
            click.echo(f"  and {len(ids) - SAMPLE} more", err=True)
        if not render.agreed("Delete this for good?", "deleted", yes=yes):
            return 1
        if everything and access.user is not None:
            stores.forget_user(access.user)  # deletes the user's own file
            removed = None
        else:
            for fact in facts if everything else ():
                store.clear_fact(fact.key)
            removed = frozenset(store.forget(**wanted).shas)  # last, because it erases the free pages as well
    compactions = CompactionStore(compactions_file(access.config, os.environ))
    compactions.forget((access.user or LOCAL).strip(), removed)
    compactions.close()
    drop_snapshots(snapshot_folder(access.config))  # the conversations that caches keep on disk contain them, too
    says = f"Deleted: {amount}.\nA running server or chat keeps them in its caches until it ends."
    access.show_result({"forgotten": {"messages": len(ids), "facts": len(facts)}}, says)
    return 0


def prune(access: MemoryAccess, *, to: str | None) -> None:
    with access.store() as store:
        limit = store.max_size_bytes if to is None else _bytes(to)
        before = store.stats().size_bytes
        pruned = store.prune(limit)
        after = store.stats().size_bytes
        document = {"messages": pruned.n_messages, "before_bytes": before, "after_bytes": after, "limit_bytes": limit}
        sizes = f"{format_size(before)} before, {format_size(after)} now"
        access.show_result(document, f"{pruned.n_messages} messages were shortened or deleted; {sizes}.")


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def _bytes(text: str) -> int:
    """A size such as 500MB, 1.5 GiB or 1048576."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"--to: {text!r:.80} is not a size; write 500MB or 2GiB.")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit.lower() or " "))


# -- the file ---------------------------------------------------------------------------------------------------------


def stats(access: MemoryAccess) -> None:
    with access.store() as store:
        found, path = store.stats(), store.path

        def people() -> None:
            part = found.size_bytes / found.limit_bytes if found.limit_bytes else 0.0
            rows = {
                "File": str(path),
                "Conversations": str(found.conversations),
                "Messages": f"{found.messages} ({found.evicted} have left their context, {found.pruned} shortened)",
                "Facts": str(found.facts),
                "Vectors": str(found.vectors),
                "Size": f"{format_size(found.size_bytes)} of {format_size(found.limit_bytes)} ({part:.0%})",
            }
            if found.oldest_ms is not None and found.newest_ms is not None:
                rows["From"], rows["Until"] = day(to_datetime(found.oldest_ms)), day(to_datetime(found.newest_ms))
            render.show_fields(rows)

        access.show_result({"path": str(path), **as_json.stats(found)}, people)


def export(access: MemoryAccess, *, file: str, conversation: str | None) -> None:
    """Write the archive as JSON Lines to standard output, or to a new file that only its owner can read."""
    with access.store() as store:
        if file == "-":
            for line in transfer.lines(store, conversation):
                render.write(line)
            return
        n_lines = 0
        try:
            lines = transfer.lines(store, conversation)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
                for line in lines:
                    stream.write(line)
                    n_lines += 1
        except FileExistsError:
            raise InvalidRequest(f"{file} already exists; choose another name or remove it", field="file") from None
        except OSError as error:
            raise InvalidRequest(f"{file} cannot be written: {error.strerror or error}", field="file") from error
        access.show_result({"file": file, "lines": n_lines}, f"{n_lines} lines written to {file}")


def import_files(access: MemoryAccess, *, files: Sequence[str]) -> int:
    status = 0
    with access.store() as store:
        documents: list[dict[str, Any]] = []
        for file in files:
            try:
                with _progress(f"Importing {file}", in_bytes=True) as on_progress:
                    if file == "-":
                        done = importer.import_stream(store, sys.stdin.buffer)
                    else:
                        done = importer.import_file(store, file, on_progress=on_progress)
            except InvalidRequest as error:
                render.show_error(error.message)
                documents.append({"file": file, "error": error.message})
                status = 1
                continue
            for problem in done.problems:
                render.show_warning(f"{file}: {problem}")
            if done.n_problems > len(done.problems):
                render.show_warning(f"{file}: {done.n_problems - len(done.problems)} more problems")
            if done.n_problems and not (done.messages or done.facts or done.known):
                status = 1
            problems = {"problems": [str(problem) for problem in done.problems]}
            documents.append({"file": file, **asdict(done), **problems})
            if not access.as_json:
                parts = [f"{done.messages} new message(s) in {done.conversations} new conversation(s)"]
                others = {"new fact(s)": done.facts, "known already": done.known, "forgotten before": done.forgotten}
                others |= {"on abandoned branches left out": done.left_out, "problem(s)": done.n_problems}
                parts += [f"{number} {what}" for what, number in others.items() if number]
                render.show(f"{file}: {', '.join(parts)}")
        if access.as_json:
            render.show_json({"files": documents})
    return status


def check(access: MemoryAccess, *, repair: bool, deep: bool) -> int:
    with access.store() as store:
        problems = store.repair() if repair else store.check(deep=deep)

        def people() -> None:
            for problem in problems:
                render.show_marked("✗", "red", problem.text)
            if not problems:
                render.show_marked("✓", "green", f"{store.path} is sound")
            elif not repair and any(problem.can_repair for problem in problems):
                render.show("'shepherd memory check --repair' repairs what can be repaired.")

        access.show_result({"path": str(store.path), "problems": [asdict(problem) for problem in problems]}, people)
        return 1 if problems else 0


def embed(access: MemoryAccess) -> None:
    model = access.options.get("model") or access.config.memory.embedding_model
    if not model:
        raise click.UsageError("Give an embedding GGUF or PROVIDER/MODEL with --model, or set memory.embedding_model.")
    n_done = 0
    with embedding(model, access.config, patient=True) as embedder, access.store(embedder) as store:
        assert embedder is not None
        with _progress("Embedding") as on_progress:

            def see(done: int, total: int) -> None:
                nonlocal n_done
                n_done = done
                if on_progress is not None:
                    on_progress(done, total)

            try:
                made = store.embed(on_progress=see)
            except ShepherdError:
                render.show_note(f"{n_done} new vector(s) are kept; the next run continues behind them")
                raise
        document = {"vectors": made, "embedder": embedder.name, "dimensions": embedder.dim}
        access.show_result(document, f"{made} new vector(s) of {embedder.dim} dimensions")


def evaluate(access: MemoryAccess, **_: Any) -> None:
    """Name what has replaced the command. Raises: `InvalidRequest`."""
    raise InvalidRequest(
        "'shepherd memory eval' is a script of Shepherd's repository now, with the same result: "
        "python bench/memory_quality.py FILE"
    )


@contextmanager
def _progress(what: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A function that draws a progress bar from the amount done and the total; None without a terminal."""
    if not render.is_terminal(sys.stderr):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    counts = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), counts, TimeRemainingColumn())
    with Progress(*columns, console=render.console(sys.stderr), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
