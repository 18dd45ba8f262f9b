"""The /commands of a chat over HTTP: those of the terminal that make sense on a page, and what may be typed.

    "/evict 3" ─ run ─▶ ["[2 messages (80 tokens) left the context]"], whether the chat has changed

What has a path of its own (a turn, the model, the list of chats) is none. Not here: the commands of the terminal
(`cli/chat/commands.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from shepherd.agent import modes
from shepherd.agent.attachment import senses
from shepherd.agent.fitting import fitting
from shepherd.app.chats import attached
from shepherd.core import Audio, Image, InvalidRequest
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.permission import MODES
from shepherd.tools.toolbox import ConversationToolbox

if TYPE_CHECKING:
    from shepherd.app.chats.chats import Chat


@dataclass(frozen=True, slots=True)
class Command:
    does: str
    run: Callable[[Chat, str], Awaitable[list[str]]]
    """Gets the text behind the name. Raises: `ShepherdError`, for a person."""
    argument: str = ""
    words: Callable[[Chat], Iterable[tuple[str, str]]] = lambda chat: ()
    """The arguments that there are, with a note each."""


async def run(chat: Chat, line: str) -> list[str]:
    """The lines that a command says. Raises: `InvalidRequest` for an unknown one; what the command raises."""
    name, _, argument = line.strip().partition(" ")
    if (command := COMMANDS.get(name)) is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        known = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        raise InvalidRequest(f"there is no command {name[:40]}; {known}", field="line")
    return await command.run(chat, argument.strip())


async def suggestions(chat: Chat, text: str) -> list[dict[str, str]]:
    """What may stand in place of the end of the typed text: a command, its argument, a file behind an `@`."""
    head, mark, path = text.rpartition("@")
    if mark and " " not in path and (not head or head[-1].isspace() or head[-1] in "([{"):
        found = await in_pool("texts", lambda: [*attached.paths(chat, path)])
        return [_suggestion(f'@"{each}"' if " " in each else f"@{each}", each, "") for each in found]
    name, blank, argument = text.partition(" ")
    if not text.startswith("/") or "\n" in text:
        return []
    if not blank:
        return [
            _suggestion(each, each, does) for each, does in fitting(name, ((n, c.does) for n, c in COMMANDS.items()))
        ]
    words = COMMANDS[name].words(chat) if name in COMMANDS else ()
    most = attached.MOST_SUGGESTIONS
    return [_suggestion(f"{name} {each}", each, note) for each, note in islice(fitting(argument, words), most)]


def options(chat: Chat) -> dict[str, Any]:
    """What a chat can be switched to, and what it takes."""
    chats, target, model = chat.shelf.chats, chat.target, chat.session.model
    able = senses(chats.models(), model)
    return {
        "models": [
            {
                "name": each.name,
                "kind": each.kind,
                "detail": each.detail,
                "current": each.cache == target.cache and not target.adapted,
            }
            for each in chats.conversations.choices()
        ],
        "modes": [{"name": name, "label": modes.LABELS[name], "does": does} for name, does in chat.modes.items()],
        "commands": [{"name": name, "argument": each.argument, "help": each.does} for name, each in COMMANDS.items()],
        "takes": {"images": Image in able, "audio": Audio in able},
        "tools": [spec.name for spec in chat.session.tools],
    }


def _suggestion(text: str, label: str, note: str) -> dict[str, str]:
    return {"text": text, "label": label, "note": note}


async def _undo(chat: Chat, argument: str) -> list[str]:
    text = await chat.undo()
    return ["There is nothing to take back." if text is None else f"Taken back: {text[:80]}"]


async def _system(chat: Chat, argument: str) -> list[str]:
    if argument:
        chat.refuse_if_running("change the system prompt")
        chat.session.system = "" if argument == '""' else argument
        await chat.changed("system")
    current = chat.session.system
    return [f"System prompt: {current}" if current else "There is no system prompt."]


async def _mode(chat: Chat, argument: str) -> list[str]:
    if argument:
        chat.set_mode(modes.read(argument))
        await chat.changed("mode")
    return [f"Mode: {modes.LABELS[chat.mode]}. It {MODES[chat.mode]}."]


async def _model(chat: Chat, argument: str) -> list[str]:
    if argument:
        await chat.move(argument)
    return [f"Model: {chat.session.model}"]


async def _evict(chat: Chat, argument: str) -> list[str]:
    chat.refuse_if_running("evict turns")
    if not (argument or "1").isdecimal():
        raise InvalidRequest(f"{argument[:40]!r} is not a number of turns; write /evict or /evict 3", field="line")
    gone = await chat.session.evict(int((argument or "1")[:9]))
    if not (gone.tokens or gone.messages):
        return ["Nothing can leave the context: the system prompt and the last exchange stay."]
    await chat.changed("window")
    return [f"{gone.messages} messages ({gone.tokens:,} tokens) left the context."]


async def _memory(chat: Chat, argument: str) -> list[str]:
    if argument not in {"", "on", "off"}:
        raise InvalidRequest("write /memory, /memory on or /memory off", field="line")
    if argument:
        chat.session.recall = argument == "on"
    return [f"Recall is {'on' if chat.session.recall else 'off'}."]


async def _tools(chat: Chat, argument: str) -> list[str]:
    box = chat.session.toolbox
    if not isinstance(box, ConversationToolbox):
        return ["There are no tools."]
    verb, _, names = argument.partition(" ")
    if verb in {"on", "off"} and names.strip():
        enables = not chat.shelf.owner.is_guest
        try:
            changed = [name for each in names.split() for name in box.turn(each, verb == "on", enables=enables)]
        except ToolError as error:
            raise InvalidRequest(error.message, field="line") from error
        return [f"{', '.join(changed)}: {verb}."]
    if argument:
        raise InvalidRequest("write /tools, /tools on NAME or /tools off NAME", field="line")
    return [f"{'off' if row.why_off else 'on '} {row.name}  {row.why_off}".rstrip() for row in box.status()]


async def _help(chat: Chat, argument: str) -> list[str]:
    return [f"{f'{name} {each.argument}'.rstrip()}: {each.does}" for name, each in COMMANDS.items()]


COMMANDS: dict[str, Command] = {
    "/help": Command("List the commands.", _help),
    "/undo": Command("Remove the last question and its answer.", _undo),
    "/system": Command('Set or show the system prompt; "" removes it.', _system, "[TEXT]"),
    "/model": Command(
        "Show the model, or change to another.",
        _model,
        "[NAME]",
        lambda chat: [(each.name, f"{each.kind} {each.detail}") for each in chat.shelf.chats.conversations.choices()],
    ),
    "/mode": Command(
        "Show or change what runs without a question.", _mode, f"[{'|'.join(MODES)}]", lambda chat: chat.modes.items()
    ),
    "/tools": Command(
        "List the tools, or switch one on or off.",
        _tools,
        "[on|off NAME]",
        lambda chat: [(f"{how} {spec.name}", "") for spec in chat.session.tools for how in ("off", "on")],
    ),
    "/memory": Command("Show or switch recall.", _memory, "[on|off]", lambda chat: [("on", ""), ("off", "")]),
    "/evict": Command("Remove the oldest turns from the context now.", _evict, "[N]"),
}
