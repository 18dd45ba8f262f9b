"""The table of /commands that every chat has, and the commands about the conversation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shepherd.agent import modes
from shepherd.app.commands import memory, rewind, tools
from shepherd.app.commands.command import C_contra, Command, Surface, Words, get, number_of, take_back
from shepherd.core import InvalidRequest
from shepherd.core.status import WAYS
from shepherd.tools.permission import MODES

_NEXT = ("next", "the next one in the list")


def help_of(all_of_them: Callable[[], Mapping[str, Command[C_contra]]]) -> Command[Surface]:
    """/help over a table, which has itself."""

    async def show(chat: Surface, argument: str) -> None:
        if argument:
            name = f"/{argument.removeprefix('/').partition(' ')[0]}"
            command = get(all_of_them(), name)
            chat.say(f"{name} {command.argument}".rstrip(), "bold")
            chat.say(command.help)
            for line in command.details.splitlines():
                chat.say(line)
            return
        commands = all_of_them()
        width = max(len(f"{name} {command.argument}") for name, command in commands.items())
        for name, command in commands.items():
            chat.draw([(f"{f'{name} {command.argument}':<{width}}", "cyan"), (f"  {command.help}", "")])
        for line in chat.hints:
            chat.note(line)

    def names(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
        return [] if words else [(name.removeprefix("/"), command.help) for name, command in all_of_them().items()]

    return Command("Show this list, or more about one command.", show, "[NAME]", words=names, runs_in_turn=True)


async def _undo(chat: Surface, argument: str) -> None:
    text = chat.session.undo()
    chat.note("There is nothing to take back." if text is None else f"Taken back: {chat.short(text)}")
    if text is not None:
        await take_back(chat)


async def _system(chat: Surface, argument: str) -> None:
    if argument:
        chat.session.system = "" if argument == '""' else argument
        await chat.changed("system")
    current = chat.session.system
    chat.say(f"System prompt: {current}" if current else "There is no system prompt.")


async def _mode(chat: Surface, argument: str) -> None:
    if argument:
        chat.set_mode(modes.read(argument))
        await chat.changed("mode")
    chat.say(f"Mode: {modes.LABELS[chat.mode]}. It {MODES[chat.mode]}.")
    if not argument:
        chat.note(f"{' and '.join(f'/mode {name}' for name in chat.modes if name != chat.mode)} change it.")


async def _model(chat: Surface, argument: str) -> None:
    if argument:
        await _move(chat, argument)
        return
    facts = chat.facts
    context = f"{facts.n_ctx} tokens" if facts.n_ctx else "not known"
    rows = {"Model": facts.model, "Backend": facts.backend, "Context": context}
    if facts.is_provider:
        rows["Provider"] = f"{facts.cache}, {WAYS[facts.is_away]}"
    else:
        rows |= {} if chat.is_guest else {"File": f"{facts.path}"}
        rows |= {"Dialect": facts.dialect, "Cache": facts.cache}
    chat.say_fields(rows.items())
    if len(names := [*(choice.name for choice in chat.choices()), *chat.app.conversations.adapted]) > 1:
        chat.note("/model NAME changes to another one: " + ", ".join(names))
    else:
        chat.note("/model NAME changes to another one; 'shepherd models list' shows those of this machine.")


async def _provider(chat: Surface, argument: str) -> None:
    choices = chat.choices()
    if argument == "next":
        if len(choices) < 2:
            raise InvalidRequest("there is no other model; add models to shepherd.toml", field="name")
        at = next((n for n, choice in enumerate(choices) if choice.current), -1)
        argument = choices[(at + 1) % len(choices)].name
    if argument:
        await _move(chat, argument)
        return
    width = max((len(choice.name) for choice in choices), default=0)
    for choice in choices:
        mark, style = ("*", "green") if choice.current else (" ", "")
        chat.draw([(f"{mark} {choice.name:<{width}}", style), (f"  {choice.kind}  {choice.detail}", "dim")])
    if more := chat.app.conversations.other_providers():
        chat.note(f"Name a model for: {', '.join(f'{name}/MODEL' for name in more)}")


async def _move(chat: Surface, name: str) -> None:
    """Continue with another model. Raises: as `Surface.move`."""
    is_new = await chat.move(name)
    facts = chat.facts
    if not is_new:
        chat.note(f"{facts.model} is the current model already.")
        return
    where = f" of {facts.cache}, {WAYS[facts.is_away]}" if facts.is_provider else ""
    room = f"{facts.n_ctx:,} tokens of context" if facts.n_ctx else "context not known"
    chat.note(f"The conversation continues with {facts.model}{where}, {room}.")


def _models(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if words:
        return []
    here = chat.app.conversations
    return [
        *((choice.name, f"{choice.kind} {choice.detail}") for choice in here.choices()),
        *((name, f"{model} with an adapter") for name, model in here.adapted.items()),
        *((name, f"alias of {to}") for name, to in here.aliases.items()),
        *((f"{name}/", "provider") for name in here.other_providers()),
    ]


def _first(*of_them: str) -> Words[Surface]:
    """Words of which one may follow the name."""
    return lambda chat, words, last: [] if words else [(each, "") for each in of_them]


async def _evict(chat: Surface, argument: str) -> None:
    n_turns = number_of(argument or "1")
    if not n_turns:
        raise InvalidRequest(f"{argument[:40]!r} is not a number of turns; write /evict or /evict 3", field="turns")
    evicted = await chat.session.evict(n_turns)
    if evicted.tokens or evicted.messages:
        chat.say_evicted(evicted)
        await chat.changed("window")
    else:
        chat.note("Nothing can leave the context: the system prompt and the last exchange stay.")


COMMANDS: dict[str, Command[Surface]] = {
    "/undo": Command("Remove the last question and its answer.", _undo),
    "/rewind": Command(
        "Go back to before a question, and put back the files that tools have changed since.",
        rewind.rewind,
        "[N [files|conversation]]",
        "Without a number, a terminal shows the questions to choose from; elsewhere they are listed.\n"
        "N: go back to before this question, after showing what changes; 'files' puts back also what other programs\n"
        "have changed since, 'conversation' leaves all files as they are.\n"
        "What commands, MCP servers and other tools did is named and stays.",
        rewind.numbers,
    ),
    "/system": Command('Set or show the system prompt; "" removes it.', _system, "[TEXT]"),
    "/model": Command(
        "Show the current model, or change to another.",
        _model,
        "[NAME|PATH]",
        "Any model that 'shepherd models list' shows, the path of one, or PROVIDER/MODEL.\n"
        "The conversation continues with the other one; a terminal unloads the current model first.",
        _models,
    ),
    "/provider": Command(
        "List the models that can answer, or change to one.",
        _provider,
        "[NAME|PATH|next]",
        "A name or a path as for /model. 'next' takes the next one in the list, and the first after the last.",
        lambda chat, words, last: [] if words else [*_models(chat, words, last), _NEXT],
    ),
    "/mode": Command(
        "Show or change what runs without a question.",
        _mode,
        f"[{'|'.join(MODES)}]",
        "\n".join(f"{name}: {what}." for name, what in MODES.items()) + "\nIn a terminal, Shift+Tab changes it, too.",
        lambda chat, words, last: [] if words else chat.modes.items(),
        runs_in_turn=True,
    ),
    "/tools": Command(
        "List the tools, show one, or switch it on or off.",
        tools.tools,
        "[NAME | on NAME | off NAME]",
        "A name may be a category, or a glob such as http_*. Only this conversation changes.",
        tools.tool_words,
        runs_in_turn=True,
    ),
    "/permissions": Command(
        "List the permissions that you gave or refused for good, or forget one.",
        tools.permissions,
        "[forget PATTERN|all]",
        words=tools.permission_words,
        is_shared=True,
        runs_in_turn=True,
    ),
    "/mcp": Command(
        "Show the MCP servers, or restart one.",
        tools.mcp,
        "[restart NAME]",
        words=tools.server_words,
        is_shared=True,
        runs_in_turn=True,
    ),
    "/prompts": Command("List the prompts of the MCP servers.", tools.prompts, is_shared=True, runs_in_turn=True),
    "/prompt": Command(
        "Ask with a prompt of an MCP server.",
        tools.prompt,
        "NAME [ARGUMENT=VALUE ...]",
        "If two servers have a prompt of the same name, write SERVER/NAME. Quote values with spaces.",
        tools.prompt_words,
        is_shared=True,
    ),
    "/resource": Command(
        "List the resources of the MCP servers, or attach one to the next message.",
        tools.resource,
        "[URI]",
        words=tools.resource_words,
        is_shared=True,
        runs_in_turn=True,
    ),
    "/memory": Command(
        "Search all earlier messages, or switch recall on or off.",
        memory.memory,
        "[on|off|TEXT]",
        words=_first("on", "off"),
        runs_in_turn=True,
    ),
    "/facts": Command("Show the stored facts.", memory.facts, runs_in_turn=True),
    "/profile": Command(
        "Show standing instructions; keep or drop a proposal.",
        memory.profile,
        "[keep|drop N]",
        words=_first("keep", "drop"),
        runs_in_turn=True,
    ),
    "/evict": Command("Remove the oldest turns from the context now.", _evict, "[N]"),
}
