"""/rewind: back to before a question, with the files that tools have changed since then put back.

    questions ─ choose ─▶ one ─▶ FileJournal.plan: shown ─ yes ─▶ put_back ─▶ Session.rewind

The files go first: where one cannot be written the conversation stays, and the command may be tried again. Not here:
what is kept of files (`tools/sandbox/journal.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.terminal.answer import arguments, call_line
from shepherd.cli.text import excerpt, format_count, one_line, whole_number
from shepherd.core import InvalidRequest, Message, ShepherdError, ToolCall
from shepherd.tools.base import ToolError

if TYPE_CHECKING:
    from shepherd.cli.chat.state import Chat
    from shepherd.tools.sandbox.journal import Step

ALL, CONVERSATION = "files", "conversation"
"""Words behind the number: put back files that others have changed, too; leave all files."""
_SHOWN = 12
"""Files, and calls, that are named."""


async def rewind(chat: Chat, argument: str) -> None:
    questions = chat.questions()
    if not questions:
        chat.note("There is nothing to go back to.")
        return
    number, _, word = argument.partition(" ")
    word = word.strip()
    if not number:
        rows = _rows(chat, questions)
        if chat.editor is None:
            for row in rows:
                chat.say(row)
            chat.note("/rewind N goes back to before question N.")
            return
        from shepherd.cli.terminal import picker

        newest_first = [picker.Row(f"{n}", row, "", "") for n, row in reversed([*enumerate(rows)])]
        with chat.editor.aside():
            name = await picker.pick("Go back to before which question?", newest_first)
        if name is None:
            chat.note("Nothing has changed.")
            return
        chosen = int(name)
    else:
        chosen = (whole_number(number) or 0) - 1
        if not 0 <= chosen < len(questions) or word not in {"", ALL, CONVERSATION}:
            raise InvalidRequest(
                f"write /rewind N with a number from 1 to {len(questions)}, and 'files' or 'conversation' behind it "
                f"if you like; /rewind alone shows the questions",
                field="number",
            )
    await _go_back(chat, questions[chosen][0], chosen + 1, word)


def numbers(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    """Completions of `/rewind`."""
    if words:
        return [(ALL, "also what others have changed"), (CONVERSATION, "leave all files")] if len(words) == 1 else []
    return [(f"{n}", excerpt(message.own_text)) for n, (_, message) in enumerate(chat.questions(), start=1)]


def _rows(chat: Chat, questions: Sequence[tuple[int, Message]]) -> list[str]:
    """A line for each question, with the number of files that its turn has changed."""
    ends = [at for at, _ in questions[1:]] + [len(chat.session.messages)]
    width = len(f"{len(questions)}")
    rows = []
    for n, ((at, message), end) in enumerate(zip(questions, ends, strict=True), start=1):
        n_files = 0 if chat.journal is None else chat.journal.n_changed(at, end)
        files = f"  ({format_count(n_files, 'file')})" if n_files else ""
        rows.append(f"{n:>{width}}  {excerpt(message.own_text)}{files}")
    return rows


async def _go_back(chat: Chat, at: int, number: int, word: str) -> None:
    """Go back to before question `number`, which is message `at`. Raises: `InvalidRequest` where a person must be asked
    and cannot, `ToolError` where a file cannot be put back."""
    journal = chat.journal if word != CONVERSATION else None
    steps = [] if journal is None else await asyncio.to_thread(journal.plan, at)
    for line in _plan_lines(steps):
        chat.say(line)
    foreign = [step for step in steps if step.is_foreign and not step.problem]
    if foreign and word != ALL and chat.view.person() is None:
        raise InvalidRequest(
            f"other programs have changed these files, too, and there is no terminal to ask; write /rewind {number} "
            f"{ALL} to put them back, or /rewind {number} {CONVERSATION} to leave all files",
            field="number",
        )
    person = chat.view.person()
    if steps and person is not None and word != ALL and not await person.confirm(
        "Put these files back, and lose what other programs changed in them?" if foreign
        else "Put these files back?" if any(not step.problem for step in steps)
        else "Go back, and leave these files as they are?"
    ):  # fmt: skip
        chat.note(f"Nothing has changed; /rewind {number} {CONVERSATION} goes back and leaves all files.")
        return
    if journal is not None and steps:
        try:
            done = journal.put_back(at, steps)  # here, so that Ctrl-C comes before it or behind the cut
        except ToolError as error:
            raise ToolError(
                f"not all files could be put back: {error.message}. The conversation stays; try again, or write "
                f"/rewind {number} {CONVERSATION}"
            ) from error
        n_files = sum(step.now.kind != "directory" for step in done)
        chat.note(f"Put back: {format_count(n_files, 'file')}.")
    calls = _other_calls(chat, chat.session.messages[at:])
    text = chat.session.rewind(at)
    chat.note(f"Back to before: {excerpt(text)}")
    for line in _cut(calls):
        chat.note(f"Not undone: {line}")
    await chat.take_back()


def _plan_lines(steps: Sequence[Step]) -> list[str]:
    """What will happen to each file, and what cannot."""
    lines = []
    for step in steps:
        if step.now.kind == "directory" and step.wanted.kind == "nothing":
            continue
        name = os.path.relpath(step.path, Path.cwd()) if Path(step.path).is_relative_to(Path.cwd()) else step.path
        name = one_line(name)  # a model may have chosen it
        if step.problem:
            lines.append(f"! {name}: stays as it is: {step.problem}")
            continue
        does = "is removed" if step.wanted.kind == "nothing" else "is put back"
        lines.append(f"  {name} {does}{'; another program has changed it, too' if step.is_foreign else ''}")
    return _cut(lines)


def _cut(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"  and {rest:,} more"] if rest > 0 else [])]


def _other_calls(chat: Chat, messages: Sequence[Message]) -> list[str]:
    """The calls in these messages that may have changed something other than files of ours."""
    return [call_line(call) for message in messages for call in message.calls if _is_other(chat, call)]


def _is_other(chat: Chat, call: ToolCall) -> bool:
    from shepherd.tools.toolbox import ConversationToolbox

    box = chat.session.toolbox
    if not isinstance(box, ConversationToolbox):
        return False
    try:
        tool = box.get_known(call.name)
        effect = tool.effect_of(arguments(call) or {})
    except (ShepherdError, LookupError, ValueError, TypeError):  # the model has invented it, or its arguments
        return False
    return effect != "read" and tool.category != "filesystem"
