"""`shepherd` and `shepherd chat`: load the model, then answer one prompt or hold a conversation.

With `-p`, with `--json`, and for `shepherd chat` with a pipe, that is one answer. `shepherd` alone with a pipe plays
one turn per line, with banner and prompts. On a terminal it is the REPL (`repl.py`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from shepherd.cli import logs, render
from shepherd.cli.signals import INTERRUPTED, handling
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.app import App
    from shepherd.config import Config


def run(config: Config, *, prompt: str | None, as_json: bool, bare: bool) -> int:
    """Chat as the command line says; the exit status.

    Raises: `ShepherdError` when the model cannot be loaded or the one prompt cannot be answered.
    """
    piped = not sys.stdin.isatty()
    one_shot = prompt is not None or as_json or (piped and not bare)
    text = _whole_prompt(prompt, piped=piped) if one_shot else ""
    try:
        with _dying_politely():
            if one_shot:
                return asyncio.run(_answer_once(config, text, as_json=as_json))
            return asyncio.run(_converse(config))
    except KeyboardInterrupt:
        return INTERRUPTED


def _whole_prompt(prompt: str | None, *, piped: bool) -> str:
    """`-p`, then an empty line, then what the pipe holds; either may be missing."""
    parts = [] if prompt is None else [_readable(prompt)]
    if piped:
        parts.append(sys.stdin.read().rstrip("\n"))
    text = "\n\n".join(part for part in parts if part.strip())
    if not text:
        raise click.UsageError("There is no prompt: give one with -p TEXT or through a pipe.")
    return text


def _readable(argument: str) -> str:
    """An argument of the command line without the marks that Python puts for bytes that are no UTF-8."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _answer_once(config: Config, text: str, *, as_json: bool) -> int:
    from shepherd.app import App
    from shepherd.memory.scope import LOCAL

    on_terminal = render.is_terminal(sys.stdout) and not as_json
    view: render.View = (
        render.TerminalView(show_thinking=config.show_thinking) if on_terminal else render.PipeView(as_json=as_json)
    )
    app = App(config)
    try:
        with handling(signal.SIGINT, _leave_at_once):
            await load(app, view)
        answer = view.answer()
        try:
            # A script's prompt gets the same answer whatever was said before, unless it asks for more.
            session = app.session(user=LOCAL, recall=config.memory.recall is True, tools=False)
            async with aclosing(session.chat(text)) as events:
                async for event in events:
                    answer.feed(event)
        finally:
            answer.close()
    except ShepherdError as error:
        if as_json:
            render.write_error_event(error)
        raise
    finally:
        await app.aclose()
    return 0


async def _converse(config: Config) -> int:
    import shepherd
    from shepherd.app import App
    from shepherd.cli import repl
    from shepherd.memory.scope import LOCAL

    on_terminal = sys.stdin.isatty() and render.is_terminal(sys.stdout) and render.is_terminal(sys.stdin)
    view: render.View = render.TerminalView(show_thinking=config.show_thinking) if on_terminal else render.PipeView()
    app = App(config)
    try:
        with handling(signal.SIGINT, _leave_at_once):
            await load(app, view)
        facts = app.facts()
        session = app.session(user=LOCAL)
        for line in render.banner(facts, shepherd.__version__, len(session.tools)):
            view.say(line, style="dim" if line == render.EMBEDDED_NOTE else "")
        reader: repl.Reader = repl.TerminalReader() if on_terminal else repl.PipeReader()
        return await repl.Repl(
            facts,
            session,
            view,
            reader,
            n_held=lambda: app.health().caches[facts.cache].used,
            memory=app.memory(session.user),
        ).run()
    finally:
        await app.aclose()


async def load(app: App, view: render.View) -> None:
    """Load all models, with a progress bar where there is someone to see it.

    Raises: as `App.load`.
    """
    handler = logs.current()
    handler.screen = view.screen
    try:
        await app.load(view.load)
    finally:
        view.loaded()
        handler.screen = None


def _leave_at_once(_number: int, _frame: FrameType | None) -> None:
    # The native library cannot be stopped while it reads weights, and an orderly exit would wait for its thread.
    sys.stderr.write("\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextmanager
def _dying_politely() -> Iterator[None]:
    """SIGTERM ends the program as Ctrl-C does, so that the terminal is put back in order; status 128 + 15."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handling(signal.SIGTERM, leave):
        yield
