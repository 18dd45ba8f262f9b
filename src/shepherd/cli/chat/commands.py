"""The /commands of the terminal: those that every chat has, and those that need a terminal, or are only for one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from shepherd.agent import transcript
from shepherd.app.commands import table
from shepherd.app.commands.command import Command, get
from shepherd.cli.chat import completion, context_view, saved_commands, stats
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal import external_editor
from shepherd.cli.text import spending_text
from shepherd.core import InvalidRequest

_WORD = re.compile(r"/[a-z?]+")


def is_command(line: str) -> bool:
    """Whether a line is a command; a path such as /etc/hosts is a message."""
    return _WORD.fullmatch(line.partition(" ")[0].rstrip()) is not None


async def run(chat: Chat, line: str) -> None:
    """Run the command of a line. Raises: `ShepherdError`, for a person."""
    word, _, argument = line.rstrip().partition(" ")
    await get(COMMANDS, word).run(chat, argument.strip())


async def _clear(chat: Chat, argument: str) -> None:
    cleared = chat.session.id
    chat.session.clear()
    chat.reset()
    chat.note("The conversation is empty now; the system prompt stays.")
    if chat.memory is not None:
        await asyncio.to_thread(chat.memory.set_aside, cleared)
    await chat.read_instructions()


async def _retry(chat: Chat, argument: str) -> None:
    text = chat.last_question()
    if text is None:
        chat.note("There is nothing to ask again.")
    else:
        chat.note(f"Again: {chat.short(text)}")
        await chat.play(chat.session.retry())


async def _edit(chat: Chat, argument: str) -> None:
    before = chat.last_question()
    if before is None:
        chat.note("There is nothing to change.")
        return
    text = argument
    if not text:
        if chat.editor is None:
            raise InvalidRequest("there is no terminal to edit in; write /edit TEXT", field="text")
        with chat.editor.aside():
            text = (await external_editor.edited(before, chat.note)).strip()
    if not text or text == before.strip():
        chat.note("Nothing has changed.")
        return
    chat.note(f"Instead: {chat.short(text)}")
    await chat.play(chat.session.edit(chat.asked(await chat.read_parts(text), instead=True)))


async def _context(chat: Chat, argument: str) -> None:
    for line in context_view.draw(await chat.session.window(), width=chat.view.width, plain=chat.view.is_plain):
        chat.view.draw(line)
    usage = chat.session.usage
    if chat.instructions is not None and chat.instructions.line:
        chat.note(f"Of the system prompt, {chat.instructions.line}")
    chat.note(f"{len(chat.session.messages)} messages")
    chat.note(f"Last prompt: {usage.prompt - usage.cache_read} tokens computed, {usage.cache_read} from the cache")


async def _export(chat: Chat, argument: str) -> None:
    name, form = saved_commands.split_format(argument)
    if not name:
        raise InvalidRequest(
            f"write /export FILE with a name that ends in one of {', '.join(transcript.FORMATS)}", field="file"
        )
    await saved_commands.write(chat, name, form)


def _export_words(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if words:
        return [(form, "") for form in transcript.FORMATS] if len(words) == 1 else []
    return ((path, "") for path in completion.paths(last))


async def _stats(chat: Chat, argument: str) -> None:
    chat.say_fields(stats.stat_rows(chat.turns, width=chat.view.width, plain=chat.view.is_plain))
    chat.say_fields((name, spending_text(each)) for name, each in chat.app.totals().spending.items())


async def _exit(chat: Chat, argument: str) -> None:
    chat.is_over = True


COMMANDS: dict[str, Command[Chat]] = {
    "/help": table.help_of(lambda: COMMANDS),
    "/clear": Command(
        "Forget the conversation.",
        _clear,
        details="Its saved file stays; /load continues it. Only a search in the memory finds its messages.",
    ),
    **table.COMMANDS,
    "/retry": Command("Remove the last answer and ask again.", _retry),
    "/edit": Command(
        "Change the last question and ask again.",
        _edit,
        "[TEXT]",
        "Without a text, $VISUAL or $EDITOR opens the question.",
    ),
    "/continue": Command(
        "Continue an answer that was cut off; in an empty chat, the newest conversation.", saved_commands.continue_
    ),
    "/save": Command(
        "Save the conversation under a name, or into a file.",
        saved_commands.save,
        "[NAME|FILE]",
        "A name that ends in .md, .html, .json or .jsonl, or contains a slash, is a file as /export writes it.\n"
        "Any other name is the one for /load and 'shepherd --resume NAME'.",
    ),
    "/load": Command(
        "List the saved conversations, or continue one.", saved_commands.load, "[NAME]", words=saved_commands.names
    ),
    "/resume": Command(
        "Choose a saved conversation from a list, and continue it.",
        saved_commands.choose,
        "[NAME]",
        "Arrows move, typing filters by title, first words, folder and date, Enter opens, Esc leaves.",
        saved_commands.names,
    ),
    "/export": Command(
        "Write the conversation into a file.",
        _export,
        "FILE [md|json|jsonl|html]",
        "The end of the name selects the format; the default is Markdown. It asks before it overwrites a file.",
        _export_words,
    ),
    "/context": Command(
        "Show the content of the context, turn by turn.",
        _context,
        details="cached: the next prompt reuses it. new: not computed yet. pinned: never leaves the context.\n"
        "evicted: removed to make room; the model may search for it in the memory.",
    ),
    "/stats": Command("Show the tokens and times of the answers, and what providers cost.", _stats),
    "/exit": Command("Leave the chat; Ctrl-D does the same.", _exit),
    "/quit": Command("The same as /exit.", _exit),
}
