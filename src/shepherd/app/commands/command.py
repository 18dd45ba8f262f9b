"""What a /command is, and what a chat is for it.

    "/evict 3" ─ run ─▶ Command.run(surface, "3") ─▶ say, note, draw: lines, as the surface shows them
    "/mode p"  ─ words ─▶ ("p", [("plan", "only reads")])

A command says what it has done; the terminal prints it, a chat of the server answers it.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from shepherd.agent.attachment import Attached
from shepherd.agent.session import Session
from shepherd.agent.with_memory import entry_of
from shepherd.app.commands.turn_files import TurnFiles
from shepherd.app.conversations import Conversations
from shepherd.app.toolset import Toolset
from shepherd.core import Audio, BadCall, Evicted, Image, InvalidRequest, ShepherdError, Text, ToolCall
from shepherd.core.dataclasses import dataclass
from shepherd.core.status import ActiveModel, ModelChoice
from shepherd.memory.store import MemoryStore
from shepherd.process.pools import in_pool
from shepherd.tools.permission import Mode

PATIENCE_S = 2.0
"""How long a completion waits for an MCP server."""

ELSEWHERE = {
    "/approvals": ("/mode", "/mode changes what runs without a question"),
    "/bye": ("/exit", "/exit leaves"),
    "/compact": (
        "/evict",
        "when the context is full, the oldest turns leave it, and the memory keeps them; /evict removes some now",
    ),
    "/cost": ("/stats", "/stats shows the tokens, and what providers cost"),
    "/history": ("/context", "/context shows the turns"),
    "/new": ("/clear", "/clear begins a new conversation"),
    "/sessions": ("/resume", "/resume lists the saved conversations"),
}
"""What other agents call it -> the command that does it here, and a sentence."""

T = TypeVar("T")


class Program(Protocol):
    """What holds the chats: `App`, and `Chats` of a server."""

    @property
    def conversations(self) -> Conversations: ...

    @property
    def tools(self) -> Toolset: ...


class Surface(Protocol):
    """A chat, and how it shows what a command says."""

    @property
    def app(self) -> Program: ...

    @property
    def session(self) -> Session: ...

    @property
    def facts(self) -> ActiveModel:
        """Of the model that answers."""

    @property
    def mode(self) -> Mode: ...

    @property
    def is_guest(self) -> bool:
        """One user among others: nothing that all share is shown or changed."""

    @property
    def files(self) -> TurnFiles: ...

    @property
    def attached(self) -> list[Text]:
        """Resources to send with the next message."""

    @property
    def switched_tools(self) -> dict[str, bool]:
        """By name, whether the user has switched a tool on or off."""

    @property
    def hints(self) -> Sequence[str]:
        """What /help shows below its list."""

    def choices(self) -> Sequence[ModelChoice]:
        """What it can switch to."""

    def say(self, text: str = "", style: str = "") -> None: ...

    def note(self, text: str) -> None:
        """A line that matters less."""

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        """A line of pieces, each with its style."""

    def say_fields(self, fields: Iterable[tuple[str, str]]) -> None: ...

    def say_evicted(self, evicted: Evicted) -> None: ...

    def short(self, text: str, width: int = 60) -> str:
        """The beginning of a text, in one line of at most so many columns."""

    def call_line(self, call: ToolCall | BadCall) -> str: ...

    @property
    def confirm(self) -> Callable[[str], Awaitable[bool]] | None:
        """Asks a person a question; None = no person can be asked."""

    @property
    def choose(self) -> Callable[[str, Sequence[str]], Awaitable[int | None]] | None:
        """Lets a person choose one of some lines; None = they are listed."""

    def senses(self) -> frozenset[type[Image | Audio]]:
        """What the model that answers takes besides text."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, for a thread that completes the typed text; None when it fails or takes too long."""

    @property
    def modes(self) -> Mapping[Mode, str]:
        """Those that its user may choose, with what each does."""

    def set_mode(self, mode: Mode) -> None: ...

    async def store(self) -> MemoryStore | None:
        """The memory of its user."""

    async def ask(self, parts: Sequence[Attached]) -> None:
        """Send a message."""

    async def move(self, name: str) -> bool:
        """Let another model answer; False where it does so already. Raises: `InvalidRequest` for an unknown one; what
        loading raises."""

    async def changed(self, what: str) -> None:
        """Save the conversation after a change between two turns."""


C_contra = TypeVar("C_contra", contravariant=True)
Words = Callable[[C_contra, tuple[str, ...], str], Iterable[tuple[str, str]]]
"""The words before the cursor and the one being typed -> its completions, with a note each. Called from a thread."""


@dataclass(frozen=True, slots=True)
class Command(Generic[C_contra]):
    help: str
    run: Callable[[C_contra, str], Awaitable[None]]
    """Gets the text behind the name. Raises: `ShepherdError`, for a person."""
    argument: str = ""
    """The argument as /help shows it."""
    details: str = ""
    """More lines for `/help NAME`."""
    words: Words[C_contra] | None = None
    """Its completions."""
    is_shared: bool = False
    """It shows or changes what all users share: none for a guest."""
    runs_in_turn: bool = False
    """It may run while a turn does."""


def get(commands: Mapping[str, Command[C_contra]], name: str) -> Command[C_contra]:
    """Raises: `InvalidRequest` with the name that is near."""
    if (command := commands.get(name)) is not None:
        return command
    own, sentence = ELSEWHERE.get(name, ("", ""))
    if own in commands:
        raise InvalidRequest(f"there is no command {name}; {sentence}", field="line")
    begun = [each for each in commands if each.startswith(name)]
    near = begun if len(begun) == 1 else difflib.get_close_matches(name, commands, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else "/help lists them"
    raise InvalidRequest(f"there is no command {name[:40]}; {hint}", field="line")


def words(
    commands: Mapping[str, Command[C_contra]], chat: C_contra, text: str
) -> tuple[str, Iterable[tuple[str, str]]]:
    """The end of a typed line that is completed, and what may stand there, with a note each. Not on the event loop."""
    name, blank, argument = text.partition(" ")
    if not text.startswith("/") or "\n" in text:
        return "", ()
    if not blank:
        return name, ((each, command.help) for each, command in commands.items())
    if (found := commands.get(name)) is None or found.words is None:
        return "", ()
    *before, last = argument.split(" ")
    return last, found.words(chat, tuple(filter(None, before)), last)


async def take_back(chat: Surface) -> None:
    """The conversation has lost its last turns: save it, and let the memory quote nothing of them any more."""
    await chat.changed("messages")
    if (store := await chat.store()) is not None:
        kept = [entry_of(message) for message in chat.session.messages]
        await in_pool("memory", store.take_back, chat.session.id, kept)


def wait_for(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T | None:
    """As `Surface.wait_for`, in a thread beside the loop."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result(PATIENCE_S)
    except (ShepherdError, TimeoutError):
        future.cancel()
        return None


def number_of(text: str) -> int | None:
    """The number that a person has typed, of at most 18 digits; None = it is none."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None
