"""The table of /commands, and the commands about the conversation itself.

A command is a function that gets the chat and the text behind the name. Not here: the commands about saved
conversations (`saved_commands.py`), tools (`tool_commands.py`) and the memory (`memory_commands.py`).
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable

from shepherd.agent import modes, transcript
from shepherd.cli import render
from shepherd.cli.chat import (
    completion,
    memory_commands,
    rewind,
    saved_commands,
    stats,
    tool_commands,
)
from shepherd.cli.chat.state import Chat, Command
from shepherd.cli.loading import progress_shown
from shepherd.cli.terminal.answer import eviction_line
from shepherd.cli.text import excerpt, spending_text, whole_number
from shepherd.core import InvalidRequest
from shepherd.tools.permission import MODES

_WORD = re.compile(r"/[a-z?]+")


def is_command(line: str) -> bool:
    """Whether a line is a command; a path such as /etc/hosts is a message."""
    return _WORD.fullmatch(line.partition(" ")[0].rstrip()) is not None


async def run(chat: Chat, line: str) -> None:
    """Run the command of a line. Raises: `ShepherdError`, for a person."""
    word, _, argument = line.rstrip().partition(" ")
    if (command := COMMANDS.get(word)) is not None:
        await command.run(chat, argument.strip())
    else:
        chat.say(f"There is no command {word}; {_hint(word)}", "red")


def _hint(word: str) -> str:
    begun = [name for name in COMMANDS if name.startswith(word)]
    near = begun if len(begun) == 1 else difflib.get_close_matches(word, COMMANDS, n=1)
    return f"did you mean {near[0]}?" if near else "/help lists them."


# -- the conversation -------------------------------------------------------------------------------------------------


async def _help(chat: Chat, argument: str) -> None:
    if argument:
        name = f"/{argument.removeprefix('/').partition(' ')[0]}"
        if (command := COMMANDS.get(name)) is None:
            chat.say(f"There is no command {name}; {_hint(name)}", "red")
            return
        chat.say(f"{name} {command.argument}".rstrip(), "bold")
        chat.say(command.help)
        for line in command.details.splitlines():
            chat.say(line)
        return
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        chat.view.draw([(f"{f'{name} {command.argument}':<{width}}", "cyan"), (f"  {command.help}", "")])
    chat.say()
    chat.note("/help NAME shows more. @path in a message attaches a file. Tab completes commands, names and paths.")
    chat.note("!COMMAND runs a command in your shell; the model gets its output with your next message.")
    chat.note("Enter sends. Alt+Enter, a backslash at the end, or an open ``` fence starts a new line.")
    chat.note("Shift+Tab changes the mode. A line typed during an answer waits; Up takes it back.")
    chat.note("Esc or Ctrl-C stops an answer, Ctrl-D leaves.")


async def _clear(chat: Chat, argument: str) -> None:
    cleared = chat.session.id
    chat.session.clear()
    chat.reset()
    chat.note("The conversation is empty now; the system prompt stays.")
    if chat.memory is not None:
        await asyncio.to_thread(chat.memory.set_aside, cleared)
    await chat.read_instructions()


async def _undo(chat: Chat, argument: str) -> None:
    text = chat.session.undo()
    chat.note("There is nothing to take back." if text is None else f"Taken back: {excerpt(text)}")
    if text is not None:
        await chat.take_back()


async def _retry(chat: Chat, argument: str) -> None:
    text = chat.last_question()
    if text is None:
        chat.note("There is nothing to ask again.")
    else:
        chat.note(f"Again: {excerpt(text)}")
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
        from shepherd.cli.terminal import external_editor

        with chat.editor.aside():
            text = (await external_editor.edited(before, chat.note)).strip()
    if not text or text == before.strip():
        chat.note("Nothing has changed.")
        return
    chat.note(f"Instead: {excerpt(text)}")
    await chat.play(chat.session.edit(chat.asked(await chat.read_parts(text), instead=True)))


async def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.session.system = "" if argument == '""' else argument
        await chat.save()
    current = chat.session.system
    chat.say(f"System prompt: {current}" if current else "There is no system prompt.")


async def _mode(chat: Chat, argument: str) -> None:
    if argument:
        chat.set_mode(modes.read(argument))
    chat.say(f"Mode: {modes.LABELS[chat.mode]}. It {MODES[chat.mode]}.")
    if not argument:
        others = " and ".join(f"/mode {name}" for name in MODES if name != chat.mode)
        chat.note(f"{others} change it, and Shift+Tab.")


async def _model(chat: Chat, argument: str) -> None:
    if argument:
        await _switch(chat, argument)
        return
    facts = chat.app.conversations.active
    rows = {
        "Model": facts.model,
        "File": str(facts.path),
        "Backend": facts.backend,
        "Context": f"{facts.n_ctx} tokens" if facts.n_ctx else "not known",
        "Dialect": facts.dialect,
        "Cache": facts.cache,
    }
    if facts.is_provider:
        rows["Provider"] = f"{facts.cache}, {render.WAYS[facts.is_away]}"
        for word in ("File", "Dialect", "Cache"):
            del rows[word]
    chat.say_fields(rows.items())
    here = chat.app.conversations
    if len(names := [*(choice.name for choice in here.choices()), *here.adapted]) > 1:
        chat.note("/model NAME changes to another one: " + ", ".join(names))
    else:
        chat.note("/model NAME changes to another one; 'shepherd models list' shows those of this machine.")


async def _provider(chat: Chat, argument: str) -> None:
    choices = chat.app.conversations.choices()
    if argument == "next":
        if len(choices) < 2:
            raise InvalidRequest("there is no other model; add models to shepherd.toml", field="name")
        at = next((n for n, choice in enumerate(choices) if choice.current), -1)
        await _switch(chat, choices[(at + 1) % len(choices)].name)
    elif argument:
        await _switch(chat, argument)
    else:
        width = max((len(choice.name) for choice in choices), default=0)
        for choice in choices:
            mark = "*" if choice.current else " "
            style = "green" if choice.current else ""
            chat.view.draw([(f"{mark} {choice.name:<{width}}", style), (f"  {choice.kind}  {choice.detail}", "dim")])
        if more := chat.app.conversations.other_providers():
            chat.note(f"Name a model for: {', '.join(f'{name}/MODEL' for name in more)}")


async def _switch(chat: Chat, name: str) -> None:
    """Continue with another model. Raises: as `Conversations.switch`."""
    found = chat.app.conversations.find_choice(name)
    if found is not None and found.current:
        chat.note(f"{found.name} is the current model already.")
        return
    with progress_shown(chat.view.screen):
        try:
            facts = await chat.app.conversations.switch(chat.session, name)
        finally:
            tool_commands.restore_switches(chat)
    where = f" of {facts.cache}, {render.WAYS[facts.is_away]}" if facts.is_provider else ""
    room = f"{facts.n_ctx:,} tokens of context" if facts.n_ctx else "context not known"
    chat.note(f"The conversation continues with {facts.model}{where}, {room}.")
    await chat.read_instructions(again=False)
    await chat.save()


def _model_names(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    return (
        []
        if words
        else [
            *((choice.name, f"{choice.kind} {choice.detail}") for choice in chat.app.conversations.choices()),
            *((name, f"{model} with an adapter") for name, model in chat.app.conversations.adapted.items()),
            *((name, f"alias of {to}") for name, to in chat.app.conversations.aliases.items()),
            *((f"{name}/", "provider") for name in chat.app.conversations.other_providers()),
        ]
    )


async def _context(chat: Chat, argument: str) -> None:
    from shepherd.cli.chat import context_view

    for line in context_view.draw(await chat.session.window(), width=chat.view.width, plain=chat.view.is_plain):
        chat.view.draw(line)
    usage = chat.session.usage
    if chat.instructions is not None and chat.instructions.line:
        chat.note(f"Of the system prompt, {chat.instructions.line}")
    chat.note(f"{len(chat.session.messages)} messages")
    chat.note(f"Last prompt: {usage.prompt - usage.cache_read} tokens computed, {usage.cache_read} from the cache")


async def _evict(chat: Chat, argument: str) -> None:
    n_turns = whole_number(argument or "1")
    if not n_turns:
        raise InvalidRequest(f"{argument!r} is not a number of turns; write /evict or /evict 3", field="turns")
    evicted = await chat.session.evict(n_turns)
    if evicted.tokens or evicted.messages:
        chat.note(eviction_line(evicted))
        if chat.turns:
            chat.turns[-1].feed(evicted)
        await chat.save()
    else:
        chat.note("Nothing can leave the context: the system prompt and the last exchange stay.")


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


def _commands(chat: Chat, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    return [] if words else [(name.removeprefix("/"), command.help) for name, command in COMMANDS.items()]


COMMANDS: dict[str, Command] = {
    "/help": Command("Show this list, or more about one command.", _help, "[NAME]", complete=_commands),
    "/clear": Command(
        "Forget the conversation.",
        _clear,
        details="Its saved file stays; /load continues it. Only a search in the memory finds its messages.",
    ),
    "/undo": Command("Remove the last question and its answer.", _undo),
    "/rewind": Command(
        "Go back to before a question, and put back the files that tools have changed since.",
        rewind.rewind,
        "[N [files|conversation]]",
        "Without a number, a terminal shows the questions to choose from, a pipe lists them.\n"
        "N: go back to before this question, after showing what changes; 'files' puts back also what other programs\n"
        "have changed since, 'conversation' leaves all files as they are.\n"
        "What commands, MCP servers and other tools did is named and stays.",
        rewind.numbers,
    ),
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
        "List the saved conversations, or continue one.", saved_commands.load, "[NAME]", complete=saved_commands.names
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
    "/system": Command('Set or show the system prompt; "" removes it.', _system, "[TEXT]"),
    "/model": Command(
        "Show the current model, or change to another.",
        _model,
        "[NAME|PATH]",
        "Any model that 'shepherd models list' shows, the path of one, or PROVIDER/MODEL.\n"
        "The current model is unloaded first; the conversation continues with the other one.",
        _model_names,
    ),
    "/provider": Command(
        "List the models that can answer, or change to one.",
        _provider,
        "[NAME|PATH|next]",
        "A name or a path as for /model. 'next' takes the next one in the list, and the first after the last.",
        lambda chat, words, last: (
            [] if words else [*_model_names(chat, words, last), ("next", "the next one in the list")]
        ),
    ),
    "/mode": Command(
        "Show or change what runs without a question.",
        _mode,
        "[ask|edits|plan]",
        "\n".join(f"{name}: {what}." for name, what in MODES.items()) + "\nShift+Tab changes it, too.",
        lambda chat, words, last: [] if words else MODES.items(),
    ),
    "/tools": Command(
        "List the tools, show one, or switch it on or off.",
        tool_commands.tools,
        "[NAME | on NAME | off NAME]",
        "A name may be a category, or a glob such as http_*. Only this conversation changes.",
        tool_commands.tool_words,
    ),
    "/permissions": Command(
        "List the permissions that you gave or refused for good, or forget one.",
        tool_commands.permissions,
        "[forget PATTERN|all]",
        complete=tool_commands.permission_words,
    ),
    "/mcp": Command(
        "Show the MCP servers, or restart one.",
        tool_commands.mcp,
        "[restart NAME]",
        complete=tool_commands.server_words,
    ),
    "/prompts": Command("List the prompts of the MCP servers.", tool_commands.prompts),
    "/prompt": Command(
        "Ask with a prompt of an MCP server.",
        tool_commands.prompt,
        "NAME [ARGUMENT=VALUE ...]",
        "If two servers have a prompt of the same name, write SERVER/NAME. Quote values with spaces.",
        tool_commands.prompt_words,
    ),
    "/resource": Command(
        "List the resources of the MCP servers, or attach one to the next message.",
        tool_commands.resource,
        "[URI]",
        complete=tool_commands.resource_words,
    ),
    "/memory": Command(
        "Search all earlier messages, or switch recall on or off.",
        memory_commands.memory,
        "[on|off|TEXT]",
        complete=lambda chat, words, last: [] if words else [("on", ""), ("off", "")],
    ),
    "/facts": Command("Show the stored facts.", memory_commands.facts),
    "/profile": Command(
        "Show standing instructions; keep or drop a proposal.",
        memory_commands.profile,
        "[keep|drop N]",
        complete=lambda chat, words, last: [] if words else [("keep", ""), ("drop", "")],
    ),
    "/context": Command(
        "Show the content of the context, turn by turn.",
        _context,
        details="cached: the next prompt reuses it. new: not computed yet. pinned: never leaves the context.\n"
        "evicted: removed to make room; the model may search for it in the memory.",
    ),
    "/evict": Command("Remove the oldest turns from the context now.", _evict, "[N]"),
    "/stats": Command("Show the tokens and times of the answers, and what providers cost.", _stats),
    "/exit": Command("Leave the chat; Ctrl-D does the same.", _exit),
    "/quit": Command("The same as /exit.", _exit),
}
