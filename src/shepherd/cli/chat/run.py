"""`shepherd` and `shepherd chat`: loads the model, then answers one prompt or holds a conversation.

One answer: with `-p`, with `--json`, and for `shepherd chat` with a pipe. `shepherd` alone with a pipe plays one turn
per line, with banner and prompts. On a terminal it is the REPL (`repl.py`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import aclosing, closing
from pathlib import Path
from types import FrameType
from typing import Any, cast

import click

import shepherd
from shepherd.agent import attachment, modes
from shepherd.app.app import App
from shepherd.cli import configure, logs, render, signals
from shepherd.cli.chat import attach, repl, saved_commands, state
from shepherd.cli.chat.instructions import FolderInstructions
from shepherd.cli.command import pull
from shepherd.cli.loading import progress_shown
from shepherd.cli.signals import INTERRUPTED, handling
from shepherd.cli.terminal.answer import fallback_line
from shepherd.cli.terminal.bell import Notify
from shepherd.cli.terminal.reader import PipeReader, piped_text
from shepherd.cli.terminal.view import PipeView, TerminalView, View
from shepherd.cli.text import json_text
from shepherd.config import Config
from shepherd.core import Audio, Image, ShepherdError, Text
from shepherd.memory.users import LOCAL
from shepherd.process.files import MOST_DOCUMENT_BYTES
from shepherd.tools.permission import Mode


def run(
    options: Mapping[str, Any], *, prompt: str | None, as_json: bool, go_on: bool, resume: str | None, mode: Mode | None
) -> int | None:
    """Chat, or list the tools or serve where the options or the configuration say so; the exit status. Raises:
    `ShepherdError` when the model cannot be loaded or the one prompt cannot be answered."""
    if options.get("list_tools"):
        from shepherd.cli.command import tools

        tools.show_list(options, as_json=as_json)
        return None
    if go_on and resume is not None:
        click.get_current_context().fail("--continue and --resume name two conversations; give one.")
    piped = not sys.stdin.isatty()
    one_shot = prompt is not None or as_json or (piped and not options.get("bare"))
    picks = resume == ""
    if resume is not None and not resume.strip() and (one_shot or not picks):
        click.get_current_context().fail("--resume needs the name of a conversation; --continue takes the newest.")
    config, bare = configure.load_config(options), bool(options.get("bare"))
    asked_to_chat = prompt is not None or as_json or resume is not None or not bare
    if options.get("server") or (config.server.enabled and not asked_to_chat):
        from shepherd.cli.command import serve

        logs.set_up({**options, "server": True, "log_json": config.server.log_json})
        serve.serve(config)
        return None
    if picks:
        resume = _pick(config)
        if resume is None:
            return None
    resume = saved_commands.NEWEST if go_on else resume
    if not one_shot and resume is None:
        from shepherd.cli.chat import first_start

        if first_start.is_due(config, os.environ, is_terminal=_on_terminal() and render.is_terminal(sys.stderr)):
            config = first_start.ask(options, config)
    pull.offer(config)
    if one_shot:
        typed, given = _prompt(prompt, piped=piped)
        return signals.run(_answer_once(config, typed, given, as_json=as_json, resume=resume, mode=mode))
    return signals.run(_converse(config, resume, mode or "ask"))


def _pick(config: Config) -> str | None:
    """The conversation that a person chooses; where there is no terminal, a list of all. None = the program ends."""
    listed = saved_commands.given(App(config).tools.saves()).list()
    if not listed or not _on_terminal():
        saved_commands.show(PipeView(), listed)
        return None
    return signals.run(saved_commands.pick(listed))


def _on_terminal() -> bool:
    return sys.stdin.isatty() and render.is_terminal(sys.stdout) and render.is_terminal(sys.stdin)


def _prompt(prompt: str | None, *, piped: bool) -> tuple[str, Text | Image | Audio]:
    """`-p`, and the text, the image or the recording of the pipe; one of the texts may be empty. Raises: `UsageError`
    without any."""
    # An argument has surrogates for invalid bytes; they become U+FFFD.
    typed = (prompt or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    raw = sys.stdin.buffer.read(MOST_DOCUMENT_BYTES + 1) if piped else b""
    if len(raw) > MOST_DOCUMENT_BYTES:
        raise click.UsageError(f"The pipe has more than {MOST_DOCUMENT_BYTES:,} bytes; give a shorter text.")
    media = attachment.media_of(raw, "the file in the pipe")
    if media is not None and typed.strip():
        return typed, media
    text = piped_text(raw).rstrip("\n")
    if media is not None or not (typed.strip() or text.strip()):
        raise click.UsageError("There is no prompt: give one with -p TEXT or through a pipe.")
    return typed, Text(text)


async def _answer_once(
    config: Config, typed: str, given: Text | Image | Audio, *, as_json: bool, resume: str | None, mode: Mode | None
) -> int:
    on_terminal = render.is_terminal(sys.stdout) and not as_json
    view: View = TerminalView(show_thinking=config.show_thinking) if on_terminal else PipeView(as_json=as_json)
    app = App(config)
    try:
        saves = None if resume is None else app.tools.saves()
        found = None if resume is None else await asyncio.to_thread(saved_commands.find, saves, resume)
        with handling(signal.SIGINT, leave_at_once), progress_shown(view.screen) as show:
            await app.load(show, patient=True, tools=found is not None or app.tools.names_tools)
        # A script gets the same answer in every run, unless the configuration asks for recall.
        is_new = found is None
        recall = config.memory.recall is True if is_new else None
        session = app.conversations.session(user=LOCAL, recall=recall, tools=not is_new)
        if found is not None:
            session.restore(found.saved)
        notices: tuple[Text, ...] = ()
        if mode is not None:
            modes.apply(mode, session)
            notices = modes.notices(mode, session.messages)
        missing: list[str] = []
        *files, words = await asyncio.to_thread(
            attach.parts, typed, app, session.n_ctx, lambda line, part: missing.append(line) if part is None else None
        )
        assert isinstance(words, Text)
        for line in missing:
            render.show_note(line)
        # The prompt, an empty line, then the text of the pipe: an `@` in that names no file.
        files += [given] if not isinstance(given, Text) else []
        text = given.text if isinstance(given, Text) else ""
        whole = Text("\n\n".join(each for each in (words.text, text) if each.strip()))
        try:
            with closing(view.answer()) as answer:
                async with aclosing(session.chat((*notices, *files, whole))) as events:
                    async for event in events:
                        if instead := fallback_line(event):
                            render.show_note(instead)
                        answer.feed(event)
        finally:
            if found is not None and saves is not None:
                name = found.name
                if saves.is_changed(name, found.stamp):
                    session.detach()
                    name = ""
                name = await asyncio.to_thread(saves.save, session.to_saved(), name)
                if found.name not in ("", name):
                    render.show_note(f"Another program has changed {found.name} meanwhile; this answer is in {name}.")
    except ShepherdError as error:
        if as_json:
            document = {"event": "error", "code": error.code, "message": error.message}
            render.write(json_text(document) + "\n")
        raise
    finally:
        await app.aclose()
    return 0


async def _converse(config: Config, resume: str | None, mode: Mode) -> int:
    on_terminal = _on_terminal()
    view: View = PipeView()
    if on_terminal:
        view = TerminalView(
            show_thinking=config.show_thinking,
            can_unfold=True,
            notify=cast("Notify", config.chat.notify),  # the configuration knows these words only
            notify_after_s=config.chat.notify_after_s,
        )
    app, person = App(config), view.person()
    journal = app.tools.journal()
    try:
        saves = app.tools.saves()
        # Before the model is loaded, so that a wrong name fails at once.
        is_first = resume == saved_commands.NEWEST and saves is not None and saves.newest() is None
        found = None if resume is None or is_first else await asyncio.to_thread(saved_commands.find, saves, resume)
        instructions = FolderInstructions(Path.cwd(), view) if config.chat.instructions else None
        left_out = [] if instructions is None else await instructions.read()
        with handling(signal.SIGINT, leave_at_once), progress_shown(view.screen) as show:
            # MCP servers learn at their start whether they may ask a person.
            await app.load(show, person=person, patient=person is None)
        facts = app.conversations.active
        session = app.conversations.session(user=LOCAL, person=person, journal=journal)
        if instructions is not None:
            left_out += instructions.give(session, app.conversations.tokens_of_text)
        for line in left_out:
            render.show_warning(line)
        told = instructions.line if instructions else ""
        for line in render.banner(facts, shepherd.__version__, len(session.tools), app.unusual_memory, told):
            view.say(line, style="dim" if line == render.EMBEDDED_NOTE else "")
        reader: state.Reader
        if isinstance(view, TerminalView):
            from shepherd.cli.terminal.editor import TerminalReader

            reader = TerminalReader(view.unfold, view.touch)
        else:
            reader = PipeReader()
        max_rounds = config.tools.max_rounds
        chat = state.Chat(app, session, view, reader, max_rounds=max_rounds, instructions=instructions, journal=journal)
        chat.set_mode(mode)
        if found is not None:
            saved_commands.restore(chat, found)
        elif is_first:
            view.say("No conversation is saved yet; this one is the first.", style="dim")
        return await repl.Repl(chat).run()
    finally:
        journal.close()
        await app.aclose()


def leave_at_once(_number: int, _frame: FrameType | None) -> None:
    # The native library cannot be stopped while it reads weights; an orderly exit would wait for its thread.
    sys.stderr.write("\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
