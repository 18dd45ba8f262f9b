"""A conversation that comes back in another process finds what the disk has of it, and computes nothing of it again.

What is remembered of it besides its messages has gone with the first process: how the model wrote its answers, what was
recalled for each message, the day on which it began. The embedded model writes some answers in other tokens than its
tokeniser would, and calls in another spelling than its template.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.in_time import until
from tests.own_app import loaded
from tests.proven import proven

from shepherd import config as configuration
from shepherd.agent.session import QuotingBackend, Session
from shepherd.agent.storage import ConversationStore
from shepherd.agent.turn import CallReturned
from shepherd.app.app import App
from shepherd.core import Evicted, Finished, Sampling, Started, Text, ToolCall, ToolResult, ToolSpec, Usage
from shepherd.engine.decision_log import TRAILER
from shepherd.tools.base import CallOutcome

pytestmark = pytest.mark.model

NEW_TOKENS = 60
"""What a short message costs with its markup."""
LINES = (
    "What is the weather in Paris?",
    "My name is Ada.",
    "What is my favourite colour?",
    "Hello!",
    "What is my name?",
)


class Weather:
    """A toolbox of one tool; the embedded model calls it."""

    session: str | None = None
    specs = (
        ToolSpec(
            "get_weather",
            "Get the weather for a city",
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        ),
    )

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        return CallOutcome(ToolResult(call.id, (Text('{"temperature": 21}'),), call.name))


@asynccontextmanager
async def process(tmp_path: Path, n_ctx: int = 4096) -> AsyncIterator[App]:
    """Shepherd from its start to its end; conversations and memory are in files."""
    file = tmp_path / "shepherd.toml"
    memory = f'[memory]\ndatabase_path = "{tmp_path / "memory.db"}"\n'
    file.write_text(f'[kv]\ndisk = true\nfolder = "{tmp_path / "kv"}"\n{memory}')
    flags = {"threads": 1, "model": "embedded", "context_size": n_ctx}
    config = configuration.load(flags=flags, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    app = App(config, cache_folder=proven(tmp_path / "cache"), env={})
    async with loaded(app):
        yield app


def session(app: App, *, user: str | None = "ada") -> Session:
    """A conversation with memory and one tool."""
    chat = app.conversations.session(system="You are Lamb.", user=user, recall=True, tools=False)
    chat.move(chat._backend, model=chat.model, n_ctx=chat.n_ctx, toolbox=Weather())
    chat._template = replace(chat._template, sampling=Sampling(temperature=0))
    return chat


async def say(chat: Session, text: str) -> tuple[Usage, int]:
    """What the first answer of the turn found and computed, and how many calls were carried out."""
    usage, n_calls = None, 0
    async with aclosing(chat.chat(text)) as happenings:
        async for happening in happenings:
            if isinstance(happening, Started) and usage is None:
                usage = happening.usage
            n_calls += isinstance(happening, CallReturned)
    assert usage is not None
    return usage, n_calls


async def had(tmp_path: Path, *, lines: tuple[str, ...] = LINES, n_ctx: int = 4096) -> tuple[str, int]:
    """A conversation in a process of its own, saved at its end: its name, and how many calls there were in it."""
    async with process(tmp_path, n_ctx=n_ctx) as app:
        await say(session(app), "My favourite colour is green, and I live in a small town by the sea.")
        chat = session(app)
        n_calls = 0
        for line in lines:
            n_calls += (await say(chat, line))[1]
        return ConversationStore(tmp_path / "saves").save(chat.to_saved()), n_calls


async def test_answers_that_no_tokeniser_would_spell_so_are_found_again(tmp_path: Path) -> None:
    wild = Sampling(temperature=3.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
    async with process(tmp_path) as app:
        chat = session(app)
        chat._template = replace(chat._template, sampling=wild, max_tokens=20)
        for line in LINES[1:]:
            await say(chat, line)
        saved = chat.to_saved()
    async with process(tmp_path) as app:
        again = session(app)
        again.restore(saved)
        assert (await say(again, "Thank you. And now?"))[0].input < NEW_TOKENS
    async with process(tmp_path) as app:  # nothing restores it: the request itself is recognised
        stranger = session(app)
        stranger.restore(saved)
        backend = stranger._backend
        assert isinstance(backend, QuotingBackend)
        backend.quote(stranger._request(*saved.messages), {at + 1: quote for at, quote in saved.quotes.items()})
        stranger._quotes = None
        assert (await say(stranger, "Thank you. And now?"))[0].input < NEW_TOKENS


async def test_what_is_not_said_of_it_is_what_it_takes(tmp_path: Path) -> None:
    """The test above could fail: without what the file says besides the messages, it is computed again."""
    name, _ = await had(tmp_path)
    saved = ConversationStore(tmp_path / "saves").load(name)
    async with process(tmp_path) as app:
        chat = session(app)
        chat.restore(replace(saved, quotes={}))
        usage, _ = await say(chat, "Thank you. And now?")
    assert usage.input > NEW_TOKENS


async def test_what_had_left_the_context_stays_away_and_is_not_computed_for_that(tmp_path: Path) -> None:
    lines = LINES * 6
    name, _ = await had(tmp_path, lines=lines, n_ctx=768)
    async with process(tmp_path, n_ctx=768) as app:
        chat = session(app)
        chat.restore(ConversationStore(tmp_path / "saves").load(name))
        window = await chat.window()
        assert window.n_evicted > 3
        assert window.n_held <= 768 < window.n_tokens
        usage, _ = await say(chat, "Thank you. And now?")
        assert usage.input < NEW_TOKENS


async def test_turns_are_sent_away_by_hand_and_the_model_is_told(tmp_path: Path) -> None:
    async with process(tmp_path) as app:
        chat = session(app)
        for line in LINES:
            await say(chat, line)
        before = await chat.window()
        asked = [at for at, message in enumerate(chat.messages, 1) if message.role == "user"]
        n_gone = asked[2] - asked[0]
        evicted = await chat.evict(2)
        assert n_gone > 4, "there is a call in the first two turns"
        assert (evicted.messages, evicted.gone) == (n_gone, tuple(range(1, n_gone + 1)))
        window = await chat.window()
        assert [row.state for row in window.rows if row.kind == "turn"] == ["evicted"] * 2 + ["cached"] * 3
        assert 0 <= window.n_held - (before.n_held - evicted.tokens) <= TRAILER, "an answer's end may come later"
        usage, _ = await say(chat, "Go on.")
        assert usage.input < NEW_TOKENS
        assert any(f"[NOTICE: {n_gone} messages" in message.text for message in chat.messages)


async def test_an_answer_that_was_stopped_is_gone_on_with_and_nothing_of_it_is_computed_again(tmp_path: Path) -> None:
    async with process(tmp_path) as app:
        whole = session(app, user=None)
        await say(whole, "How are you?")
        chat = session(app, user=None)
        chat._template = replace(whole._template, max_tokens=2)
        await say(chat, "How are you?")
        assert chat.can_resume
        chat._template = whole._template
        async with aclosing(chat.resume()) as happenings:
            events = [happening async for happening in happenings]
        assert chat.messages == whole.messages
        assert next(event.usage.input for event in events if isinstance(event, Started)) <= 2
        assert not any(isinstance(event, Evicted) for event in events)
        usage, _ = await say(chat, "Thank you.")
        assert usage.input < NEW_TOKENS
        assert isinstance(events[-1], Finished)


async def test_the_file_is_plain_json(tmp_path: Path) -> None:
    name, _ = await had(tmp_path, lines=LINES[:1])
    read = json.loads((tmp_path / "saves" / f"{name}.json").read_text())
    assert (read["format"], read["version"], read["messages"][0]["role"]) == ("shepherd conversation", 1, "user")


async def test_what_was_sent_away_does_not_come_back_from_the_disk(tmp_path: Path) -> None:
    """Longer turns than a restart is worth: what was saved before they left would bring them back."""
    long = "I have a long story about a sheep that went up the hill and down again, and so it went on. " * 4
    async with process(tmp_path) as app:
        chat = session(app)
        for line in (long, *LINES[1:]):
            await say(chat, line)
        backend = chat._backend._backend  # type: ignore[attr-defined]  # within its memory
        await until(lambda: bool(backend.engine.stats().saved) and backend.engine.wait_for_disk())  # all of it
        evicted = await chat.evict(1)
        assert evicted.tokens > 60
        usage, _ = await say(chat, "Go on.")
        assert usage.input < NEW_TOKENS
        assert (await chat.window()).rows[2].state == "evicted"
        await chat.evict(1)
        saved = chat.to_saved()
    async with process(tmp_path) as app:
        again = session(app)
        again.restore(saved)
        states = [row.state for row in (await again.window()).rows if row.kind == "turn"]
        assert states[:2] == ["evicted"] * 2
        usage, _ = await say(again, "Thank you.")
        assert usage.input < NEW_TOKENS
        assert [row.state for row in (await again.window()).rows if row.kind == "turn"][:2] == ["evicted"] * 2
