"""What can be typed instead of a message: the /commands of the conversation, one table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shepherd.cli import render, transcript

if TYPE_CHECKING:
    from shepherd.cli.repl import Repl


@dataclass(frozen=True, slots=True)
class Command:
    """One /command."""

    help: str
    run: Callable[[Repl, str], Awaitable[None]]
    argument: str = ""
    """What help shows after the name."""


async def _help(repl: Repl, argument: str) -> None:
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        repl.view.say(f"{f'{name} {command.argument}':<{width}}  {command.help}")
    repl.view.say("")
    repl.view.say("Enter sends. Alt+Enter, a backslash at the end, or an open ``` fence makes a new line.", style="dim")
    repl.view.say("Ctrl-C stops an answer, Ctrl-D leaves.", style="dim")


async def _clear(repl: Repl, argument: str) -> None:
    repl.session.clear()
    repl.view.say("The conversation starts anew; the system prompt stays.", style="dim")


async def _undo(repl: Repl, argument: str) -> None:
    text = repl.session.undo()
    repl.view.say("There is nothing to take back." if text is None else f"Taken back: {_excerpt(text)}", style="dim")


async def _retry(repl: Repl, argument: str) -> None:
    text = repl.session.undo()
    if text is None:
        repl.view.say("There is nothing to ask again.", style="dim")
    else:
        repl.view.say(f"Again: {_excerpt(text)}", style="dim")
        await repl.turn(text)


async def _system(repl: Repl, argument: str) -> None:
    if argument:
        repl.session.system = "" if argument == '""' else argument
    current = repl.session.system
    repl.view.say(f"System prompt: {current}" if current else "There is no system prompt.", style="dim")


async def _model(repl: Repl, argument: str) -> None:
    facts = repl.facts
    rows = {
        "Model": facts.model,
        "File": str(facts.path),
        "Backend": facts.backend,
        "Context": f"{facts.n_ctx} tokens",
        "Dialect": facts.dialect,
        "Cache": facts.cache,
    }
    for name, value in rows.items():
        repl.view.say(f"{name + ':':<9} {value}")


async def _context(repl: Repl, argument: str) -> None:
    session = repl.session
    usage = session.usage
    repl.view.say(
        f"Context: {render.context_line(repl.n_held(), session.n_ctx)} tokens, {len(session.messages)} messages"
    )
    repl.view.say(f"Last prompt: {usage.prompt - usage.cache_read} tokens computed, {usage.cache_read} from the cache")


async def _save(repl: Repl, argument: str) -> None:
    if not argument:
        repl.view.say("Say where: /save FILE, with .json for JSON and anything else for Markdown.", style="red")
        return
    system, messages = repl.session.system, repl.session.messages
    try:
        path = transcript.save(argument, messages, system=system, model=repl.facts.model)
    except OSError as error:
        repl.view.say(f"{argument} cannot be written: {error.strerror or error}", style="red")
    else:
        repl.view.say(f"Saved {len(messages)} messages to {path}", style="dim")


async def _memory(repl: Repl, argument: str) -> None:
    if repl.memory is None:
        repl.view.say("This conversation has no memory.", style="dim")
    elif argument in {"on", "off"}:
        repl.session.recall = argument == "on"
        told = "are offered to the model" if repl.session.recall else "come only when the model searches for them"
        repl.view.say(f"Memories {told}.", style="dim")
    elif argument:
        from shepherd.memory.retrieval.search import as_text

        repl.view.say(as_text(await asyncio.to_thread(repl.memory.search, argument), argument))
    else:
        stats = await asyncio.to_thread(repl.memory.stats)
        repl.view.say(f"{stats.messages} messages of {stats.conversations} conversations in {repl.memory.path}")
        repl.view.say(f"Recall is {'on' if repl.session.recall else 'off'}; /memory TEXT searches.", style="dim")


async def _facts(repl: Repl, argument: str) -> None:
    facts = await asyncio.to_thread(repl.memory.facts) if repl.memory else []
    for fact in facts:
        repl.view.say(f"{fact.key} = {fact.value}")
    if not facts:
        repl.view.say("No facts are stored.", style="dim")


async def _profile(repl: Repl, argument: str) -> None:
    if repl.memory is None:
        repl.view.say("This conversation has no memory.", style="dim")
        return
    verb, _, number = argument.partition(" ")
    if not argument:
        kept = await asyncio.to_thread(repl.memory.profile)
        waiting = await asyncio.to_thread(repl.memory.candidates)
        for mark, facts in (("", kept), ("? ", waiting)):
            for fact in facts:
                repl.view.say(f"{mark}{fact.id}  {fact.value}")
        hint = "/profile keep N keeps what has a question mark, /profile drop N drops it." if waiting else ""
        repl.view.say(hint or ("" if kept else "The profile is empty."), style="dim")
    elif verb in {"keep", "drop"} and number.isdecimal():
        settle = repl.memory.confirm if verb == "keep" else repl.memory.reject
        await asyncio.to_thread(settle, int(number))
        repl.view.say(
            "Kept: it stands in the system prompt from now on." if verb == "keep" else "Dropped.", style="dim"
        )
    else:
        repl.view.say("Say /profile, /profile keep N or /profile drop N.", style="red")


async def _quit(repl: Repl, argument: str) -> None:
    repl.is_over = True


COMMANDS: dict[str, Command] = {
    "/help": Command("Show this.", _help),
    "/clear": Command("Forget the conversation.", _clear),
    "/undo": Command("Take back the last exchange.", _undo),
    "/retry": Command("Take back the last answer and ask again.", _retry),
    "/system": Command('Set or show the system prompt; "" removes it.', _system, "[TEXT]"),
    "/model": Command("Show what is running.", _model),
    "/context": Command("Show how full the context is.", _context),
    "/memory": Command("Search what was ever said, or switch recall on or off.", _memory, "[on|off|TEXT]"),
    "/facts": Command("Show the facts that are stored.", _facts),
    "/profile": Command("Show standing instructions; keep or drop one.", _profile, "[keep|drop N]"),
    "/save": Command("Save the conversation as Markdown, or as JSON.", _save, "FILE"),
    "/quit": Command("Leave; so does Ctrl-D.", _quit),
}


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"
