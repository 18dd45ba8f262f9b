"""Saved conversations: /save, /load and /continue, and what `--continue` and `--resume NAME` begin with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.chat import transcript
from shepherd.core import InvalidRequest

if TYPE_CHECKING:
    from shepherd.agent.storage import ConversationStore, SavedConversation, SavedListing
    from shepherd.cli.chat.repl import Repl

NEWEST = ""
"""In place of a name: the conversation that was saved last."""
_AGES = ((60, "s"), (60, "min"), (24, "h"), (30, "days"))


def find(saves: ConversationStore | None, name: str) -> tuple[str, SavedConversation]:
    """A saved conversation by its name, or by a beginning that no other name has; and its whole name.

    Raises: `InvalidRequest` when there is none; `SaveError`.
    """
    if saves is None:
        raise InvalidRequest("conversations are not saved here (--no-save, or [chat] save = false)", field="name")
    if name == NEWEST:
        newest = saves.newest()
        if newest is None:
            raise InvalidRequest("there is no saved conversation yet to go on with", field="name")
        name = newest
    saved = saves.load(name)
    known = saves.names()
    stem = name.removesuffix(".json")
    return next((one for one in known if one == stem or (stem not in known and one.startswith(stem))), ""), saved


async def load(repl: Repl, argument: str) -> None:
    """List what is saved, or go on with one."""
    if argument:
        await resume(repl, argument)
        return
    listed = await asyncio.to_thread(_saves(repl).list)
    if not listed:
        repl.note("No conversation is saved yet.")
        return
    now = datetime.now().astimezone()
    rows = [(each.name, age(each.changed, now), _length(each), each.error or each.title) for each in listed]
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    for each, row in zip(listed, rows, strict=True):
        name, old, length = (f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=True))
        repl.draw([(name, "red" if each.error else "cyan"), (f"  {old}  {length}", "dim"), (f"  {row[3]}", "")])
    repl.note("/load NAME goes on with one.")


async def resume(repl: Repl, name: str) -> None:
    """Go on with a saved conversation in place of this one. Raises: as `find`."""
    take_up(repl, *await asyncio.to_thread(find, repl.saves, name))


def take_up(repl: Repl, name: str, saved: SavedConversation) -> None:
    """Make the conversation go on with what was saved under `name`."""
    repl.session.restore(saved)
    repl.begin_anew()
    repl.name = name
    repl.note(f"Going on with {name or repl.session.title}: {len(saved.messages)} messages.")
    if question := repl.last_question():
        from shepherd.cli.chat.commands import excerpt

        repl.note(f"Last asked: {excerpt(question)}")


async def go_on(repl: Repl, argument: str) -> None:
    """Go on with the answer that was cut off, or with the newest conversation."""
    if repl.session.can_resume:
        await repl.play(repl.session.resume())
    elif repl.session.messages:
        repl.note("There is nothing to go on with: the last answer is complete.")
    else:
        await resume(repl, NEWEST)


async def save(repl: Repl, argument: str) -> None:
    """Save under a name, or write a file."""
    if is_file(argument):
        write(repl, argument, "")
        return
    saves = _saves(repl)
    if not repl.session.messages:
        raise InvalidRequest("there is nothing to save yet", field="name")
    before = repl.name
    repl.name = await asyncio.to_thread(saves.save, repl.session.to_saved(), argument or before)
    if before and before != repl.name:  # it has another name now, it is no other conversation
        await asyncio.to_thread(saves.remove, before)
    repl.note(f"Saved as {repl.name}; 'shepherd --resume {repl.name}' goes on with it.")


def write(repl: Repl, name: str, form: str) -> None:
    """Write a transcript. Raises: `InvalidRequest`."""
    system, messages = repl.session.system, repl.session.messages
    path = transcript.save(name, messages, system=system, model=repl.host.facts().model, form=form)
    repl.note(f"Saved {len(messages)} messages to {path}")


def is_file(name: str) -> bool:
    """Whether `/save NAME` means a file of the user's."""
    return os.sep in name or Path(name).suffix.lower().removeprefix(".") in transcript.FORMS


def names(repl: Repl, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    """What `/load` can be completed to; reads the folder."""
    if repl.saves is None or words:
        return []
    now = datetime.now().astimezone()
    return [(each.name, f"{age(each.changed, now)}  {_length(each)}  {each.title}") for each in repl.saves.list()]


def age(then: datetime, now: datetime) -> str:
    """How long ago, in one number; a date when that is a month."""
    amount = max(0.0, (now - then).total_seconds())
    for factor, unit in _AGES:
        if amount < factor:
            return f"{int(amount)} {'day' if unit == 'days' and int(amount) == 1 else unit}"
        amount /= factor
    return f"{then:%Y-%m-%d}"


def two_words(argument: str) -> tuple[str, str]:
    """A name, which may have blanks, and a form of transcripts behind it, if there is one."""
    name, _, form = argument.rpartition(" ")
    return (name.strip(), form) if name and form in transcript.FORMS else (argument, "")


def _length(listed: SavedListing) -> str:
    return f"{listed.n_messages} messages"


def _saves(repl: Repl) -> ConversationStore:
    """Raises: `InvalidRequest` when nothing is saved."""
    if repl.saves is None:
        raise InvalidRequest("conversations are not saved here (--no-save, or [chat] save = false)", field="name")
    return repl.saves
