"""/rewind: back to before a question, with the files that tools have changed since then put back.

    questions ─ choose ─▶ one ─▶ FileJournal.plan: shown ─ yes ─▶ put_back ─▶ Session.rewind

The files go first: where one cannot be written the conversation stays, and the command may be tried again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.app.commands.command import Surface, number_of, take_back
from shepherd.core import InvalidRequest, Message, ShepherdError, ToolCall
from shepherd.process.files import working_folder
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.toolbox import ConversationToolbox

if TYPE_CHECKING:
    from shepherd.tools.sandbox.journal import FileJournal, Step

ALL, CONVERSATION = "files", "conversation"
"""Words behind the number: put back files that others have changed, too; leave all files."""
_SHOWN = 12
"""Files, and calls, that are named."""


async def rewind(chat: Surface, argument: str) -> None:
    questions = chat.files.questions()
    if not questions:
        chat.note("There is nothing to go back to.")
        return
    number, _, word = argument.partition(" ")
    word = word.strip()
    if not number:
        rows = _rows(chat, questions)
        if chat.choose is None:
            for row in rows:
                chat.say(row)
            chat.note("/rewind N goes back to before question N.")
            return
        picked = await chat.choose("Go back to before which question?", rows)
        if picked is None:
            chat.note("Nothing has changed.")
            return
        chosen = picked
    else:
        chosen = (number_of(number) or 0) - 1
        if not 0 <= chosen < len(questions) or word not in {"", ALL, CONVERSATION}:
            raise InvalidRequest(
                f"write /rewind N with a number from 1 to {len(questions)}, and 'files' or 'conversation' behind it "
                f"if you like; /rewind alone shows the questions",
                field="number",
            )
    await _go_back(chat, questions[chosen][0], chosen + 1, word)


def numbers(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    """Completions of `/rewind`."""
    if words:
        return [(ALL, "also what others have changed"), (CONVERSATION, "leave all files")] if len(words) == 1 else []
    return [(f"{n}", chat.short(message.own_text)) for n, (_, message) in enumerate(chat.files.questions(), start=1)]


def _rows(chat: Surface, questions: Sequence[tuple[int, Message]]) -> list[str]:
    """A line for each question, with the number of files that its turn has changed."""
    ends = [at for at, _ in questions[1:]] + [len(chat.session.messages)]
    width = len(f"{len(questions)}")
    rows = []
    for n, ((at, message), end) in enumerate(zip(questions, ends, strict=True), start=1):
        n_files = 0 if chat.files.journal is None else chat.files.journal.n_changed(at, end)
        files = f"  ({n_files} file{'s' * (n_files != 1)})" if n_files else ""
        rows.append(f"{n:>{width}}  {chat.short(message.own_text)}{files}")
    return rows


async def _go_back(chat: Surface, at: int, number: int, word: str) -> None:
    """Go back to before question `number`, which is message `at`. Raises: `InvalidRequest` where a person must be asked
    and cannot, `ToolError` where a file cannot be put back."""
    journal = chat.files.journal if word != CONVERSATION else None
    steps = [] if journal is None else await in_pool("files", journal.plan, at)
    for line in _plan_lines(chat, steps):
        chat.say(line)
    foreign = [step for step in steps if step.is_foreign and not step.problem]
    confirm = chat.confirm
    if foreign and word != ALL and confirm is None:
        raise InvalidRequest(
            f"other programs have changed these files, too, and there is nobody to ask; write /rewind {number} "
            f"{ALL} to put them back, or /rewind {number} {CONVERSATION} to leave all files",
            field="number",
        )
    if steps and confirm is not None and word != ALL and not await confirm(
        "Put these files back, and lose what other programs changed in them?" if foreign
        else "Put these files back?" if any(not step.problem for step in steps)
        else "Go back, and leave these files as they are?"
    ):  # fmt: skip
        chat.note(f"Nothing has changed; /rewind {number} {CONVERSATION} goes back and leaves all files.")
        return
    going = asyncio.create_task(_put_back_and_cut(chat, at, journal, steps))
    try:
        await asyncio.shield(going)
    except asyncio.CancelledError:  # it comes before all of it, or behind
        await asyncio.wait((going,))
        raise
    except ToolError as error:
        raise ToolError(
            f"not all files could be put back: {error.message}. The conversation stays; try again, or write "
            f"/rewind {number} {CONVERSATION}"
        ) from error


async def _put_back_and_cut(chat: Surface, at: int, journal: FileJournal | None, steps: Sequence[Step]) -> None:
    if journal is not None and steps:
        done = await in_pool("files", journal.put_back, at, steps)
        n_files = sum(step.now.kind != "directory" for step in done)
        chat.note(f"Put back: {n_files} file{'s' * (n_files != 1)}.")
    calls = _other_calls(chat, chat.session.messages[at:])
    text = chat.session.rewind(at)
    chat.note(f"Back to before: {chat.short(text)}")
    for line in _cut(calls):
        chat.note(f"Not undone: {line}")
    await take_back(chat)


def _plan_lines(chat: Surface, steps: Sequence[Step]) -> list[str]:
    """What will happen to each file, and what cannot."""
    lines, here = [], working_folder()
    for step in steps:
        if step.now.kind == "directory" and step.wanted.kind == "nothing":
            continue
        name = os.path.relpath(step.path, here) if Path(step.path).is_relative_to(here) else step.path
        name = chat.short(name, 4096)  # a model may have chosen it
        if step.problem:
            lines.append(f"! {name}: stays as it is: {step.problem}")
            continue
        does = "is removed" if step.wanted.kind == "nothing" else "is put back"
        lines.append(f"  {name} {does}{'; another program has changed it, too' if step.is_foreign else ''}")
    return _cut(lines)


def _cut(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"  and {rest:,} more"] if rest > 0 else [])]


def _other_calls(chat: Surface, messages: Sequence[Message]) -> list[str]:
    """The calls in these messages that may have changed something other than files of ours."""
    return [chat.call_line(call) for message in messages for call in message.calls if _is_other(chat, call)]


def _is_other(chat: Surface, call: ToolCall) -> bool:
    box = chat.session.toolbox
    if not isinstance(box, ConversationToolbox):
        return False
    try:
        tool = box.get_known(call.name)
        effect = tool.effect_of(dict(json.loads(call.arguments)))
    except (ShepherdError, LookupError, ValueError, TypeError, RecursionError):  # the model has invented it
        return False
    return effect != "read" and tool.category != "filesystem"
