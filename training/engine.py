"""A model file in Shepherd's own engine, as the terminal's chat runs it: the real tools in a scratch folder.

    Engine.opened(model) ─ play(sentence) ─▶ Outcome        a conversation, with tools, memory and consent
                         ─ complete(prompt, ids) ─▶ tokens  one prompt, greedily (`evaluate.py`)

The person at the terminal consents to every change in the scratch folder, and only to the commands that a sentence
expects.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd import config as configuration
from shepherd.agent.session import Session
from shepherd.agent.turn import CallReturned
from shepherd.app.app import App
from shepherd.app.toolset import TINY_TOOLS
from shepherd.core import CallStarted, Finished, TextDelta, ToolCall
from shepherd.tools.base import Form, Question, Verdict
from training.first_hour import Call, Outcome, Sentence

TOOLS = (*TINY_TOOLS, "execute_command")
"""What the first hour's sentences are asked with."""

MOST_TOKENS = 200
"""Of an answer; one that has more has lost its way."""
SETTINGS = """
max_tokens = {most}
[models.lamb]
path = {model}
temperature = 0.0
[caches.lamb]
model = "lamb"
{cache}
[tools]
enabled = {tools}
roots = [{folder}]
max_rounds = 6
"""


class Consent:
    """The person: consents to changes in the scratch folder, and to the expected commands."""

    def __init__(self) -> None:
        self.commands: frozenset[str] = frozenset()

    async def allow(self, question: Question) -> Verdict:
        is_fine = question.effect != "run" or question.arguments.get("command") in self.commands
        return "once" if is_fine else "no"

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        return None


@dataclass(slots=True)
class Engine:
    app: App
    folder: Path
    """Where the tools work."""
    person: Consent = field(default_factory=Consent)
    n_users: int = 0

    @classmethod
    @asynccontextmanager
    async def opened(cls, model: Path, *, tools: Sequence[str] = TOOLS, cache: str = "") -> AsyncIterator[Engine]:
        """`cache`: further lines of its table in the configuration, such as `n_ctx = 1024`."""
        with tempfile.TemporaryDirectory() as scratch:
            home, folder, file = _laid(Path(scratch), model, tools, cache)
            config = configuration.load(flags={"threads": 1}, env={}, cwd=folder, user_dir=home / "none", file=file)
            env = {"RAG_DB_PATH": str(home / "memory.db")}
            app = App(config, cache_folder=home / "cache", env=env, user_folder=home / "user", counts_use=False)
            try:
                await app.load()
                yield cls(app, folder)
            finally:
                await app.aclose()

    def session(self, *, recall: bool = False) -> Session:
        """A conversation of a user that there was not before: with an empty memory."""
        self.n_users += 1
        return self.app.conversations.session(user=f"user-{self.n_users}", recall=recall, person=self.person)

    async def play(self, sentence: Sentence, folder: Mapping[str, str]) -> Outcome:
        """What comes of a sentence, in a folder with these files."""
        self._lay(folder)
        session = self.session()
        memory = self.app.memory(session.user)
        for key, value in sentence.known.items():
            assert memory is not None
            memory.set_fact(key, value)
        calls = [call for each in sentence.calls for call in each]
        self.person.commands = frozenset(arguments["command"] for _, arguments in calls if "command" in arguments)
        for text in sentence.say[:-1]:
            await said(session, text)
        answer, came, has_ended = await said(session, sentence.say[-1])
        return Outcome(answer, came, self._files(), has_ended)

    def _files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.folder)): path.read_text("utf-8", "replace")
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def defaults(self) -> dict[str, dict[str, Any]]:
        """By tool and argument, the values that need not be given."""
        return {
            spec.name: {
                name: schema["default"]
                for name, schema in spec.parameters.get("properties", {}).items()
                if "default" in schema
            }
            for spec in self.session().tools
        }

    def _lay(self, files: Mapping[str, str]) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def _laid(scratch: Path, model: Path, tools: Sequence[str], cache: str) -> tuple[Path, Path, Path]:
    """The folder of the program's own files, that of the tools, and the configuration."""
    home, folder = scratch / "home", scratch / "folder"
    home.mkdir()
    folder.mkdir()
    file = home / "shepherd.toml"
    quoted = {
        "model": json.dumps(str(model.resolve())),
        "tools": json.dumps([*tools]),
        "folder": json.dumps(str(folder)),
    }
    file.write_text(SETTINGS.format(most=MOST_TOKENS, cache=cache, **quoted))
    return home, folder, file


async def said(session: Session, text: str) -> tuple[str, tuple[Call, ...], bool]:
    """One turn: the text behind its last call, all calls, and whether the answer ended by itself."""
    answer, calls, has_ended = "", list[Call](), False
    async with aclosing(session.chat(text)) as events:
        async for event in events:
            match event:
                case TextDelta():
                    answer += event.text
                case CallStarted():
                    answer = ""
                case CallReturned(call=ToolCall() as call):
                    calls.append((call.name, json.loads(call.arguments or "{}")))
                case CallReturned(call=call):
                    calls.append((f"unreadable {call.name}", {}))
                case Finished():
                    has_ended = event.reason != "length"
    return answer.strip(), tuple(calls), has_ended
