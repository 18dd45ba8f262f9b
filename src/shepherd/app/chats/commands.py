"""The /commands of a chat over HTTP, and what may be typed.

A chat of the server is a `Surface` here: what a command says are the lines of its answer. Not here: the commands
(`app/commands/table.py`). What has a path of its own (a turn, the list of chats) is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from shepherd.agent import modes
from shepherd.agent.attachment import Attached, senses
from shepherd.agent.fitting import fitting
from shepherd.app.chats import attached
from shepherd.app.chats.chats import Chat, Count
from shepherd.app.commands import command as commanding
from shepherd.app.commands import table
from shepherd.app.commands.command import Command, Surface
from shepherd.core import Audio, BadCall, Evicted, Image, InvalidRequest, ToolCall
from shepherd.core.status import ActiveModel, ModelChoice
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.permission import Mode

T = TypeVar("T")

COMMANDS: dict[str, Command[Surface]] = {"/help": table.help_of(lambda: COMMANDS), **table.COMMANDS}
OF_GUESTS: dict[str, Command[Surface]] = {
    "/help": table.help_of(lambda: OF_GUESTS),
    **{name: command for name, command in table.COMMANDS.items() if not command.is_shared},
}


class ServedChat:
    hints = ("/help NAME shows more. @path in a message attaches a file.",)

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._loop = asyncio.get_running_loop()
        self.lines: list[str] = []
        self.asked: Sequence[Attached] = ()
        """A message that the command sends."""
        self.app, self.session, self.files = chat.shelf.chats, chat.session, chat.files
        self.attached, self.switched_tools = chat.attached, chat.switched_tools
        self.is_guest, self.modes = chat.shelf.owner.is_guest, chat.modes
        self.set_mode, self.changed, self.store = chat.set_mode, chat.changed, chat.shelf.store

    @property
    def facts(self) -> ActiveModel:
        return replace(self.app.conversations.describe(self._chat.target.cache), model=self.session.model)

    def choices(self) -> Sequence[ModelChoice]:
        target = self._chat.target
        return [
            replace(each, current=each.cache == target.cache and not target.adapted)
            for each in self.app.conversations.choices()
        ]

    @property
    def mode(self) -> Mode:
        return self._chat.mode

    def senses(self) -> frozenset[type[Image | Audio]]:
        return senses(self.app.models(), self.session.model)

    async def ask(self, parts: Sequence[Attached]) -> None:
        self.asked = parts

    async def move(self, name: str) -> bool:
        before = self.facts
        await self._chat.take_model(name)
        return self.facts != before

    @property
    def confirm(self) -> Callable[[str], Awaitable[bool]] | None:
        if self._chat.confirm is None:
            return None
        return partial(self._chat.person.confirm, in_command=True)

    choose = None

    def say(self, text: str = "", style: str = "") -> None:
        self.lines.append(text)

    note = say

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        self.say("".join(text for text, _ in line).rstrip())

    def say_fields(self, fields: Iterable[tuple[str, str]]) -> None:
        self.lines += [f"{name}: {value}" for name, value in fields]

    def say_evicted(self, evicted: Evicted) -> None:
        self.say(f"{evicted.messages} messages ({evicted.tokens:,} tokens) left the context.")

    def short(self, text: str, width: int = 60) -> str:
        return " ".join(text.split())[:width]

    def call_line(self, call: ToolCall | BadCall) -> str:
        return self.short(f"{call.name}({call.arguments if isinstance(call, ToolCall) else '…'})", 100)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T | None:
        return commanding.wait_for(work, self._loop)


async def run(chat: Chat, line: str, count: Count) -> list[str]:
    """The lines that a command says. `count`: of a turn that it begins. Raises: `InvalidRequest` for an unknown one,
    and for what a person mends; what the command raises."""
    name, _, argument = line.strip().partition(" ")
    command, surface = commanding.get(_commands(chat), name), ServedChat(chat)
    try:
        with nullcontext() if command.runs_in_turn else chat.held(f"use {name}"):
            if not chat.is_running:
                await chat.open_files()
            await command.run(surface, argument.strip())
    except (InvalidRequest, ToolError) as error:
        status = error.status if isinstance(error, InvalidRequest) else 400
        raise InvalidRequest(error.message, field="line", status=status) from error
    if surface.asked:
        chat.send(surface.asked, count)
    return surface.lines


async def suggestions(chat: Chat, text: str) -> list[dict[str, str]]:
    """What may stand in place of the end of the typed text: a command, its argument, a file behind an `@`."""
    head, mark, path = text.rpartition("@")
    if mark and " " not in path and (not head or head[-1].isspace() or head[-1] in "([{"):
        found = await in_pool("texts", lambda: [*attached.paths(chat, path)])
        return [_suggestion(f'@"{each}"' if " " in each else f"@{each}", each, "") for each in found]
    surface = ServedChat(chat)

    def offered() -> list[dict[str, str]]:
        typed, words = commanding.words(_commands(chat), surface, text)
        before = text[: len(text) - len(typed)]
        fit = islice(fitting(typed, words), attached.MOST_SUGGESTIONS)
        return [_suggestion(f"{before}{each}", each, note) for each, note in fit]

    return await in_pool("texts", offered)


def options(chat: Chat) -> dict[str, Any]:
    """What a chat can be switched to, and what it takes."""
    surface = ServedChat(chat)
    able = surface.senses()
    return {
        "models": [
            {"name": each.name, "kind": each.kind, "detail": each.detail, "current": each.current}
            for each in surface.choices()
        ],
        "modes": [{"name": name, "label": modes.LABELS[name], "does": does} for name, does in chat.modes.items()],
        "commands": [
            {"name": name, "argument": each.argument, "help": each.help} for name, each in _commands(chat).items()
        ],
        "takes": {"images": Image in able, "audio": Audio in able},
        "tools": [spec.name for spec in chat.session.tools],
    }


def _commands(chat: Chat) -> Mapping[str, Command[Surface]]:
    return OF_GUESTS if chat.shelf.owner.is_guest else COMMANDS


def _suggestion(text: str, label: str, note: str) -> dict[str, str]:
    return {"text": text, "label": label, "note": note}
