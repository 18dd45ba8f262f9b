"""A conversation for tests: a scripted model behind a real session, typed lines, a pipe for a screen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from shepherd.agent.session import Session
from shepherd.agent.storage import ConversationStore
from shepherd.app.app import App
from shepherd.app.usage import Totals
from shepherd.backends.base import Backend
from shepherd.backends.local.window import Window, WindowRow
from shepherd.cli import logs
from shepherd.cli.chat.instructions import FolderInstructions
from shepherd.cli.chat.repl import Repl
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal.reader import PipeReader
from shepherd.cli.terminal.view import PipeView
from shepherd.config import Config
from shepherd.core import (
    Audio,
    EngineError,
    Event,
    Evicted,
    Finished,
    Image,
    Message,
    Request,
    Started,
    TextDelta,
    UnknownModel,
    Usage,
    replay,
)
from shepherd.core.status import ActiveModel, CacheUsage, Health, ModelCard, ModelChoice
from shepherd.memory.store import MemoryStore
from shepherd.tools.sandbox.journal import FileJournal
from shepherd.tools.toolbox import ConversationToolbox


class Scripted:
    """A back end that answers in order, and remembers the requests. An answer may never end."""

    def __init__(self, *answers: Message | str | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.waiting = asyncio.Event()

    n_ctx = 2000

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def count(self, request: Request) -> int:
        return sum(self.count_tokens(message.text) for message in request.messages)

    async def render(self, request: Request) -> str:
        return "\n".join(message.text for message in request.messages)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else "Yes."
        if isinstance(answer, Exception):
            raise answer
        message = Message.assistant(answer) if isinstance(answer, str) else answer
        for event in replay(message, model="m"):
            match event:
                case Started():
                    yield Started("m", usage=Usage(input=7, cache_read=3))
                case Finished():
                    yield Finished(event.reason, Usage(input=7, cache_read=3, output=5))
                case TextDelta(text="..."):
                    yield event
                    self.waiting.set()
                    await asyncio.Event().wait()
                case _:
                    yield event

    async def window(self, request: Request) -> Window:
        rows = (WindowRow("system", 0, ("system",), "Be kind.", 10, 10, "cached", True),)
        return Window(100, 10, rows)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        return Evicted(2 * n_turns, 40 * n_turns)

    async def recognise(self, *conversation: Any) -> None:
        pass

    def quotes(self, request: Request) -> Mapping[int, Any]:
        return {}


@dataclass
class Stage:
    """What `App` is for a conversation."""

    kept: ConversationStore | None
    names: list[str] = field(default_factory=lambda: ["lamb"])
    at: str = "lamb"
    broken: frozenset[str] = frozenset()
    servers: Any = None
    wants_tools: bool = True
    sees: bool = False
    hears: bool = False
    archive: MemoryStore | None = None
    config: Config = field(default_factory=Config)

    @property
    def conversations(self) -> Stage:
        return self

    @property
    def catalogue(self) -> Stage:
        return self

    @property
    def tools(self) -> Stage:
        return self

    @property
    def active(self) -> ActiveModel:
        return ActiveModel("llama.cpp (CPU)", self.at, Path(f"{self.at}.gguf"), 100, False, "hermes", "main")

    def health(self) -> Health:
        return Health("ok", "llamacpp", self.at, {"main": CacheUsage(100, 10)})

    def models(self) -> Sequence[ModelCard]:
        return [
            ModelCard(
                self.at,
                100,
                0,
                capabilities=tuple(word for word, able in (("vision", self.sees), ("audio", self.hears)) if able),
            )
        ]

    def tokens_of_text(self, text: str) -> int:
        return len(text.split())

    async def tokens_of(self, part: Image | Audio) -> int | None:
        return len(part.data or b"") if self.sees or self.hears else None

    def choices(self) -> Sequence[Any]:
        return [ModelChoice(name, f"cache-{name}", "model", "100 tokens", name == self.at) for name in self.names]

    def find_choice(self, name: str) -> ModelChoice | None:
        return next((each for each in self.choices() if each.name.casefold() == name.casefold()), None)

    @property
    def aliases(self) -> dict[str, str]:
        return {}

    @property
    def adapted(self) -> dict[str, str]:
        return {}

    def other_providers(self) -> tuple[str, ...]:
        return ()

    def totals(self) -> Totals:
        return Totals()

    async def switch(self, session: Session, name: str) -> ActiveModel:
        found = next((known for known in self.names if known.casefold() == name.casefold()), None)
        if found is None:
            raise UnknownModel(name, known=tuple(self.names))
        logging.getLogger(logs.LOADING).info("Loading provider: %s", found)
        if found in self.broken:
            raise EngineError(f"model {found!r} cannot be loaded: the file is damaged")
        self.at = found
        return self.active

    def saves(self) -> ConversationStore | None:
        return self.kept

    def memory(self, user: str | None) -> MemoryStore | None:
        return self.archive


class Script:
    """Lines that are typed one after the other; a function does something in between."""

    is_person = False
    has_editor = False

    def __init__(self, *lines: str | Callable[[], Awaitable[None]]) -> None:
        self.lines = list(lines)
        self.n_read = 0

    async def read(self, offers: object) -> str | None:
        self.n_read += 1
        while self.lines:
            line = self.lines.pop(0)
            if isinstance(line, str):
                return line
            await line()
        return None


@dataclass
class Played:
    out: str
    err: str
    status: int
    chat: Chat


Play = Callable[..., Awaitable[Played]]


def player(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Play:
    """`await play("line", "/command", stage=..., backend=...)`."""
    monkeypatch.chdir(tmp_path)
    logs.set_up({})

    async def run(
        *lines: str,
        stage: Stage | None = None,
        backend: Backend | None = None,
        box: ConversationToolbox | None = None,
        is_person: bool = False,
        user: str | None = None,
        instructions: FolderInstructions | None = None,
        journal: FileJournal | None = None,
    ) -> Played:
        stage = stage or Stage(ConversationStore(tmp_path / "saved"))
        session = Session(backend or Scripted(), model="m", n_ctx=100, toolbox=box, user=user, recall=True)
        reader = Script(*lines)
        reader.is_person = is_person
        chat = Chat(
            cast("App", stage),
            session,
            PipeView(),
            cast("PipeReader", reader),
            instructions=instructions,
            journal=journal,
        )
        status = await Repl(chat).run()
        said = capsys.readouterr()
        return Played(said.out, said.err, status, chat)

    return run
