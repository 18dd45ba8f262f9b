"""Saved conversations: /save, /load, /resume and /continue, and the start of `--continue` and `--resume [NAME]`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from shepherd.agent import transcript
from shepherd.agent.storage import ConversationStore, Found, SavedListing, SaveError
from shepherd.cli.chat.state import Chat
from shepherd.cli.chat.status_line import shortened
from shepherd.cli.terminal.view import View
from shepherd.cli.text import cut, format_age
from shepherd.core import InvalidRequest

NEWEST = ""
"""Instead of a name: the newest saved conversation."""
NONE_SAVED = "No conversation is saved yet."


def find(saves: ConversationStore | None, name: str) -> Found:
    """The conversation called `name ...`. Raises: `InvalidRequest`, `SaveError`."""
    saves = given(saves)
    if name == NEWEST:
        newest = saves.newest()
        if newest is None:
            raise InvalidRequest("no conversation is saved yet", field="name")
        name = newest
    return saves.find(name)


async def load(chat: Chat, argument: str) -> None:
    if argument:
        await resume(chat, argument)
        return
    listed = await asyncio.to_thread(given(chat.saves).list)
    show(chat.view, listed)
    if listed:
        chat.note("/load NAME continues one.")


def show(view: View, listed: Sequence[SavedListing]) -> None:
    if not listed:
        view.say(NONE_SAVED, style="dim")
        return
    now = datetime.now().astimezone()
    rows = [(each.name, age(each.changed, now), _length(each), each.error or each.title) for each in listed]
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    for each, row in zip(listed, rows, strict=True):
        name, old, length = (f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=True))
        view.draw([(name, "red" if each.error else "cyan"), (f"  {old}  {length}", "dim"), (f"  {row[3]}", "")])


async def choose(chat: Chat, argument: str) -> None:
    if argument or chat.editor is None:
        await load(chat, argument)
        return
    listed = await asyncio.to_thread(given(chat.saves).list)
    if not listed:
        chat.note(NONE_SAVED)
        return
    with chat.editor.aside():
        name = await pick(listed)
    if name is not None:
        await resume(chat, name)


async def pick(listed: Sequence[SavedListing]) -> str | None:
    """The name of the conversation that a person at the terminal chooses; None = none."""
    from shepherd.cli.terminal import picker

    now = datetime.now().astimezone()
    rows = []
    for each in listed:
        folder = shortened(Path(each.folder)) if each.folder else ""
        note = " · ".join(filter(None, (age(each.changed, now), folder, _length(each))))
        words = f"{each.first} {each.folder} {each.changed:%Y-%m-%d}"
        rows.append(picker.Row(each.name, each.error or each.title or each.name, note, words, each.last))
    return await picker.pick("Continue which conversation?", rows)


async def resume(chat: Chat, name: str) -> None:
    """Continue a saved conversation instead of this one. Raises: as `find`."""
    restore(chat, await asyncio.to_thread(find, chat.saves, name))


def restore(chat: Chat, found: Found) -> None:
    """Replace the conversation with a saved one, and show the last exchange."""
    chat.session.restore(found.saved)
    chat.reset()
    chat.name, chat.stamp = found.name, found.stamp
    chat.note(f"Continuing {found.name or chat.session.title}: {len(found.saved.messages)} messages.")
    for label, text in (("question", chat.last_question()), ("answer", chat.last_answer())):
        if text:
            chat.note(f"Last {label}: {_beginning(text)}")


async def read_again(chat: Chat) -> None:
    """Read the conversation again, if another program has continued it."""
    saves, name, attached = chat.saves, chat.name, chat.attached
    if saves is None or not saves.is_changed(name, chat.stamp):
        return
    stamp = saves.stamp(name)
    with contextlib.suppress(SaveError):  # what is here is saved as a copy
        saved = await asyncio.to_thread(saves.load, name)
        chat.note("Another program has continued this conversation.")
        restore(chat, Found(name, saved, stamp))
        chat.attached = attached


def _beginning(text: str) -> str:
    lines = text.strip().splitlines()
    return cut("\n".join(lines[:8]) + " …" * (len(lines) > 8), 600)


async def continue_(chat: Chat, argument: str) -> None:
    if chat.session.can_resume:
        await chat.play(chat.session.resume())
    elif chat.session.messages:
        chat.note("There is nothing to continue: the last answer is complete.")
    else:
        await resume(chat, NEWEST)


async def save(chat: Chat, argument: str) -> None:
    if is_file(argument):
        await write(chat, argument, "")
        return
    saves = given(chat.saves)
    if not chat.session.messages:
        raise InvalidRequest("there is nothing to save yet", field="name")
    before = await chat.keep(saves, argument)
    if before and before != chat.name:  # the same conversation under a new name
        await asyncio.to_thread(saves.remove, before)
    chat.note(f"Saved as {chat.name}; 'shepherd --resume {chat.name}' continues it.")


async def write(chat: Chat, name: str, form: str) -> None:
    """Write a transcript; asks before it overwrites a file. Raises: `InvalidRequest`."""
    messages = chat.session.messages
    model = chat.app.conversations.active.model
    save = partial(transcript.save, name, messages, system=chat.session.system, model=model, form=form)
    try:
        path = save()
    except FileExistsError as error:
        if (person := chat.view.person()) is None:
            raise InvalidRequest(
                f"{name} exists; there is no terminal to ask whether to overwrite it, so choose another name",
                field="file",
            ) from error
        if not await person.confirm(f"{name} exists. Overwrite it?"):
            return
        path = save(overwrite=True)
    chat.note(f"Saved {len(messages)} messages to {path}")


def is_file(name: str) -> bool:
    return os.sep in name or Path(name).suffix.lower().removeprefix(".") in transcript.FORMATS


def names(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    """Completions of `/load`; reads the folder."""
    if chat.saves is None or words:
        return []
    now = datetime.now().astimezone()
    return [(each.name, f"{age(each.changed, now)}  {_length(each)}  {each.title}") for each in chat.saves.list()]


def age(then: datetime, now: datetime) -> str:
    """How long ago `then` was; its date after 30 days."""
    seconds = (now - then).total_seconds()
    return format_age(seconds) if seconds < 30 * 86_400 else f"{then:%Y-%m-%d}"


def split_format(argument: str) -> tuple[str, str]:
    """A name, which may contain spaces, and the word behind it that is to be a format, or an empty text: a word with
    an ending, or with a folder before it, belongs to the name."""
    name, _, form = argument.rpartition(" ")
    return (name.strip(), form.lower()) if name and not {".", os.sep} & {*form} else (argument, "")


def _length(listed: SavedListing) -> str:
    return f"{listed.n_messages} messages"


def given(saves: ConversationStore | None) -> ConversationStore:
    """Raises: `InvalidRequest` when conversations are not saved."""
    if saves is None:
        raise InvalidRequest("conversations are not saved here (--no-save, or [chat] save = false)", field="name")
    return saves
