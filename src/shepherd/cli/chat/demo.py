"""`shepherd demo`: a conversation that plays by itself, and says what the window, the memory and the tools do.

Only the lines of the user are written here: the model, its window, the memory and the tools are the real ones. They
work in a temporary folder, with a memory in it, which is removed at the end. No configuration is read.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shepherd import config as configuration
from shepherd.agent.session import Session
from shepherd.app.app import App
from shepherd.backends.local.window import Window
from shepherd.cli import logs, render, signals
from shepherd.cli.chat import context_view
from shepherd.cli.chat.run import leave_at_once
from shepherd.cli.chat.state import ticking
from shepherd.cli.chat.stats import TurnStats
from shepherd.cli.loading import progress_shown
from shepherd.cli.options import config_flags
from shepherd.cli.terminal import mode
from shepherd.cli.terminal.reader import PROMPT
from shepherd.cli.terminal.view import PipeView, TerminalView, View
from shepherd.cli.text import cut, format_count, one_line
from shepherd.core import ConfigError, Evicted, Started
from shepherd.memory.users import LOCAL

FACT = "My cat is called Milo."
FIRST = (
    "Hello!", "My name is Ada.", FACT,
    "List the files", "Read README.md", "Write buy milk to notes.txt", "Read notes.txt",
)  # fmt: skip
UNTIL_IT_LEFT = (
    "I live in Berlin.", "My favourite colour is blue.", "How are you?", "The meeting is on Friday.", "Tell me a joke.",
    "The code is 4711.", "What is 2 + 2?", "My sister is called Nora.", "What can you do?",
    "My birthday is on 3 May.", "What is in todo.md?", "Who are you?", "My favourite food is pizza.", "Thanks",
)  # fmt: skip
"""Said until the fact has left the window."""
LAST = ("What is my cat called?", "What is my name?", "Bye")
FILES = {"README.md": "The garden has three roses.\n", "todo.md": "water the roses\n"}
"""Of the folder where the tools work."""
TOOLS = ("list_directory", "read_file", "write_file", "search_memory")
SETTINGS = {"context_size": 1024, "max_tokens": 160}
"""So small that it is full within a minute; options change them."""
LEAST_WIDTH = 40
TYPING_S, READING_S = 0.03, 1.2
"""Seconds for each character of the user, and behind each answer, for a person who watches."""

Pause = Callable[[float], Awaitable[None]]


def run(options: Mapping[str, Any], *, fast: bool) -> None:
    logs.set_up(options)
    if options.get("config"):
        raise click.UsageError("The demo reads no configuration; leave --config out.")
    on_terminal = render.is_terminal(sys.stdout)
    view: View = TerminalView() if on_terminal else PipeView()
    if view.width < LEAST_WIDTH:
        raise ConfigError(
            f"this terminal has {view.width} columns, and the demo needs {LEAST_WIDTH}; make it wider, or write the "
            "demo into a file: shepherd demo > demo.txt"
        )
    with tempfile.TemporaryDirectory(prefix="shepherd-demo-") as place:
        pause = asyncio.sleep if on_terminal and not fast else None
        stopped = "the demo was stopped; its folder and its memory are removed"
        signals.run(_play(options, Path(place), view, pause), stopped=stopped)


async def _play(options: Mapping[str, Any], place: Path, view: View, pause: Pause | None) -> None:
    folder = place / "folder"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    flags = {**SETTINGS, **config_flags(options), "enable_tools": TOOLS, "roots": (str(folder),), "save": False}
    config = configuration.load(flags=flags, env={}, cwd=Path.cwd(), user_dir=place, read_files=False)
    for warning in config.warnings:
        render.show_warning(warning)
    env = {**os.environ, "RAG_DB_PATH": str(place / "memory.db")}
    app = App(config, env=env, user_folder=place, counts_use=False)

    def leave(number: int, frame: Any) -> None:
        shutil.rmtree(place, ignore_errors=True)
        leave_at_once(number, frame)

    try:
        with signals.handling(signal.SIGINT, leave), progress_shown(view.screen) as show:
            await app.load(show)
        active = app.conversations.active
        if active.is_provider:
            raise ConfigError(
                f"the demo shows the window of a model on this machine, and {active.cache} is a provider; name a GGUF "
                "file or one of 'shepherd models list'"
            )
        view.say(
            f"A conversation with {active.model}, in a window of {active.n_ctx:,} tokens. Only the lines that begin "
            "with > were prepared. The folder, where tools may write, and the memory are temporary.",
            style="dim",
        )
        with mode.reading(keys=True):  # what is typed meanwhile is not shown
            await Demo(app, app.conversations.session(user=LOCAL), view, pause).play()
    finally:
        await app.aclose()


class Demo:
    def __init__(self, app: App, session: Session, view: View, pause: Pause | None = None) -> None:
        """`pause`: waits so many seconds; None = nobody watches."""
        self._app, self._session, self._view, self._pause = app, session, view, pause
        self._turns: list[TurnStats] = []
        self._left: dict[int, str] = {}
        """By the number of the turn, the beginnings of those that have left."""
        self._n_came_back = 0
        self._window: Window | None = None

    async def play(self) -> None:
        for line in FIRST:
            await self._ask(line)
        for line in UNTIL_IT_LEFT:
            if FACT in self._left.values():
                break
            await self._ask(line)
        for line in LAST:
            await self._ask(line)
        assert self._window is not None
        self._view.say("")
        for pieces in context_view.draw(self._window, width=self._view.width, plain=self._view.is_plain):
            self._view.draw(pieces)
        self._view.say("")
        self._view.say(summary(self._turns, len(self._left), self._eviction_ms(), self._n_came_back))
        self._view.say("Your turn: shepherd", style="bold")

    async def _ask(self, line: str) -> None:
        await self._type(line)
        turn, is_archived, before_ms = TurnStats(), True, self._eviction_ms()
        view, events = self._view, self._session.chat(line)
        with closing(view.answer()) as answer:
            async with aclosing(events), ticking(answer):
                async for event in events:
                    turn.feed(event)
                    if isinstance(event, Started):
                        is_archived = is_archived and event.archived
                        await self._show_recalled(event)
                        event = replace(event, recalled=None)
                    if not isinstance(event, Evicted):  # both are said here in other words
                        answer.feed(event)
        turn.end()
        self._turns.append(turn)
        self._window = window = await self._session.window()
        gone = {row.index: row.excerpt for row in window.rows if row.kind == "turn" and row.state == "evicted"}
        if new := [text for index, text in gone.items() if index not in self._left]:
            view.say(left_line(new, self._eviction_ms() - before_ms, is_archived=is_archived), style="yellow")
        self._left |= gone
        view.draw(window_line(window, plain=view.is_plain))
        if self._pause is not None:
            await self._pause(READING_S)

    async def _type(self, line: str) -> None:
        view = self._view
        view.say("")
        if self._pause is not None and view.screen is not None:
            for n in range(len(line)):
                view.screen.update([], [f"{PROMPT}{line[:n]}▌"])
                await self._pause(TYPING_S)
            view.screen.update([])
        view.say(PROMPT + line, style="bold")

    async def _show_recalled(self, started: Started) -> None:
        memory = self._app.memory(LOCAL)
        if started.recalled is None or memory is None:
            return
        self._n_came_back += 1
        for message in await asyncio.to_thread(memory.stored, started.recalled.ids):
            self._view.say(f"Came back from the memory: {quoted([message.body])}", style="green")

    def _eviction_ms(self) -> float:
        return 1000 * sum(stats.eviction_s.total for stats in self._app.stats().values())


# -- what is said between two turns -----------------------------------------------------------------------------------


def quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"“{cut(one_line(text), 40)}”" for text in texts)


def left_line(texts: Sequence[str], ms: float, *, is_archived: bool) -> str:
    """Which turns have left the window; `texts`: their beginnings."""
    where = "stayed in the memory" if is_archived else "could not be kept in the memory"
    return f"{format_count(len(texts), 'turn')} left the window in {ms:.1f} ms and {where}: {quoted(texts)}"


def window_line(window: Window, *, plain: bool) -> list[tuple[str, str]]:
    """How full the window is: a bar with a colour for each turn."""
    bar = context_view.draw(window, width=LEAST_WIDTH // 2, plain=plain)[1]
    return [*bar, (f" {window.n_held:,} of {window.n_ctx:,} tokens in the window", "dim")]


def summary(turns: Sequence[TurnStats], n_left: int, ms: float, n_came_back: int) -> str:
    prompts, cached = (
        sum(n) for n in zip(*((each.usage.prompt, each.usage.cache_read) for each in turns), strict=True)
    )
    left = (
        f"{format_count(n_left, 'turn')} left the window, in {ms:.1f} ms altogether; for "
        f"{format_count(n_came_back, 'question')} the memory brought something back."
        if n_left
        else "Nothing left the window: it is too large for so few lines; leave --context-size out."
    )
    return (
        f"{format_count(len(turns), 'turn')} and {format_count(sum(turn.n_results for turn in turns), 'tool call')}. "
        f"{left} {cached:,} of {prompts:,} prompt tokens came from the cache."
    )
