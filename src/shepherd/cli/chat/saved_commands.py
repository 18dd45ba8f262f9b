"""Saved conversations: /save, /load and /continue, and what `--continue` and `--resume NAME` begin with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.chat import transcript
from shepherd.cli.text import excerpt, format_age
from shepherd.core import InvalidRequest

if TYPE_CHECKING:
    from shepherd.agent.storage import ConversationStore, SavedConversation, SavedListing
    from shepherd.cli.chat.state import Chat

NEWEST = ""
"""In place of a name: the conversation that was saved last."""


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


async def load(chat: Chat, argument: str) -> None:
    """List what is saved, or go on with one."""
    if argument:
        await resume(chat, argument)
        return
    listed = await asyncio.to_thread(_saves(chat).list)
    if not listed:
        chat.note("No conversation is saved yet.")
        return
    now = datetime.now().astimezone()
    rows = [(each.name, age(each.changed, now), _length(each), each.error or each.title) for each in listed]
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    for each, row in zip(listed, rows, strict=True):
        name, old, length = (f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=True))
        chat.draw([(name, "red" if each.error else "cyan"), (f"  {old}  {length}", "dim"), (f"  {row[3]}", "")])
    chat.note("/load NAME goes on with one.")


async def resume(chat: Chat, name: str) -> None:
    """Go on with a saved conversation in place of this one. Raises: as `find`."""
    take_up(chat, *await asyncio.to_thread(find, chat.saves, name))


def take_up(chat: Chat, name: str, saved: SavedConversation) -> None:
    """Make the conversation go on with what was saved under `name`."""
    chat.session.restore(saved)
    chat.reset()
    chat.name = name
    chat.note(f"Going on with {name or chat.session.title}: {len(saved.messages)} messages.")
    if question := chat.last_question():
        chat.note(f"Last asked: {excerpt(question)}")


async def go_on(chat: Chat, argument: str) -> None:
    """Go on with the answer that was cut off, or with the newest conversation."""
    if chat.session.can_resume:
        await chat.play(chat.session.resume())
    elif chat.session.messages:
        chat.note("There is nothing to go on with: the last answer is complete.")
    else:
        await resume(chat, NEWEST)


async def save(chat: Chat, argument: str) -> None:
    """Save under a name, or write a file."""
    if is_file(argument):
        write(chat, argument, "")
        return
    saves = _saves(chat)
    if not chat.session.messages:
        raise InvalidRequest("there is nothing to save yet", field="name")
    before = chat.name
    chat.name = await asyncio.to_thread(saves.save, chat.session.to_saved(), argument or before)
    if before and before != chat.name:  # it has another name now, it is no other conversation
        await asyncio.to_thread(saves.remove, before)
    chat.note(f"Saved as {chat.name}; 'shepherd --resume {chat.name}' goes on with it.")


def write(chat: Chat, name: str, form: str) -> None:
    """Write a transcript. Raises: `InvalidRequest`."""
    system, messages = chat.session.system, chat.session.messages
    path = transcript.save(name, messages, system=system, model=chat.app.facts().model, form=form)
    chat.note(f"Saved {len(messages)} messages to {path}")


def is_file(name: str) -> bool:
    """Whether `/save NAME` means a file of the user's."""
    return os.sep in name or Path(name).suffix.lower().removeprefix(".") in transcript.FORMATS


def names(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    """What `/load` can be completed to; reads the folder."""
    if chat.saves is None or words:
        return []
    now = datetime.now().astimezone()
    return [(each.name, f"{age(each.changed, now)}  {_length(each)}  {each.title}") for each in chat.saves.list()]


def age(then: datetime, now: datetime) -> str:
    """How long ago `then` was; its date after 30 days."""
    seconds = (now - then).total_seconds()
    return format_age(seconds) if seconds < 30 * 86_400 else f"{then:%Y-%m-%d}"


def two_words(argument: str) -> tuple[str, str]:
    """A name, which may have blanks, and a form of transcripts behind it, if there is one."""
    name, _, form = argument.rpartition(" ")
    return (name.strip(), form) if name and form in transcript.FORMATS else (argument, "")


def _length(listed: SavedListing) -> str:
    return f"{listed.n_messages} messages"


def _saves(chat: Chat) -> ConversationStore:
    """Raises: `InvalidRequest` when nothing is saved."""
    if chat.saves is None:
        raise InvalidRequest("conversations are not saved here (--no-save, or [chat] save = false)", field="name")
    return chat.saves
