"""Conversations over real models: moved from one to another, with tools, and for HTTP callers."""

import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import own_app
from tests.own_app import app_of
from tests.unit.engine import tiny_gguf

from shepherd import config as configuration
from shepherd.agent.session import Session
from shepherd.agent.turn import CallReturned
from shepherd.app.app import App
from shepherd.core import (
    ConfigError,
    EngineError,
    InvalidRequest,
    Message,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolSpec,
    fold,
)
from shepherd.memory.users import LOCAL
from shepherd.models import catalog
from shepherd.tools.toolbox import ConversationToolbox

pytestmark = pytest.mark.model

TWO = """
[models.ann]
path = "embedded"
[models.bob]
path = "embedded"
load = "demand"
[models.gone]
path = "./gone.gguf"
load = "demand"
[chat]
folder = "./chats"
"""


@asynccontextmanager
async def running(folder: Path, text: str = "", **flags: Any) -> AsyncIterator[App]:
    async with own_app.loaded(app_of(folder, text, roots=(str(folder),), **flags)) as app:
        yield app


async def say(session: Session, text: str) -> tuple[str, list[CallReturned]]:
    said, returned = "", []
    async with aclosing(session.chat(text)) as events:
        async for event in events:
            match event:
                case TextDelta(text=piece):
                    said += piece
                case CallReturned():
                    returned.append(event)
                case _:
                    pass
    return said, returned


def loaded(app: App) -> list[str]:
    return [card.id for card in app.catalogue.models() if card.loaded]


async def test_a_conversation_moves_to_another_model_and_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shepherd")
    async with running(tmp_path, TWO) as app:
        session = app.conversations.session(user=LOCAL)
        await say(session, "My name is Bob.")
        assert [(choice.name, choice.current) for choice in app.conversations.choices()] == [
            ("ann", True), ("bob", False), ("gone", False)
        ]  # fmt: skip
        caplog.clear()
        facts = await app.conversations.switch(session, "BOB")
        assert loaded(app) == ["bob"]
        lines = [record.getMessage() for record in caplog.records]
        gone, come = (
            next(n for n, line in enumerate(lines) if line.startswith(start))
            for start in ("unloading model 'ann'", "loading model 'bob'")
        )
        assert gone < come, "what was there leaves before the next one comes (C31)"
        assert sum(line == "Loading provider: bob" for line in lines) == 1
        assert facts == app.conversations.active
        assert facts.cache == next(choice.cache for choice in app.conversations.choices() if choice.current)
        assert "Bob" in (await say(session, "What is my name?"))[0], "it goes on where it was"
        assert await app.conversations.switch(session, "bob") == facts, "nothing happens twice"
        assert app.totals().n_loads == {"ann": 1, "bob": 1}
        await app.conversations.switch(session, "ann")
        assert loaded(app) == ["ann"]


async def test_what_cannot_be_moved_to_leaves_the_conversation_where_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, f"isolate = false\n{TWO}") as app:
        session = app.conversations.session(user=LOCAL)
        with pytest.raises(InvalidRequest, match=r"no model is called 'nope'.*ann, bob, gone"):
            await app.conversations.switch(session, "nope")
        (tmp_path / "gone.gguf").write_bytes(b"GGUF no more")
        before = app.conversations.active
        with pytest.raises((ConfigError, EngineError), match=r"gone\.gguf"):
            await app.conversations.switch(session, "gone")
        assert app.conversations.active == before
        assert loaded(app) == ["ann"]
        assert (await say(session, "Hello!"))[0]


async def test_any_model_of_this_machine_takes_the_place_of_the_current_one(tmp_path: Path) -> None:
    other = tmp_path / "models" / "other.gguf"
    other.parent.mkdir()
    shutil.copy(catalog.embedded(), other)
    async with running(tmp_path, context_size=1024) as app:
        conversations = app.conversations
        session = conversations.session(user=LOCAL)
        await say(session, "My name is Bob.")
        first = conversations.active
        assert await conversations.switch(session, str(catalog.embedded())) == first, "it is the current one"
        facts = await conversations.switch(session, str(other))
        assert (facts.path, facts.n_ctx, loaded(app)) == (other, 1024, ["other"])
        settings = app.dispatcher.catalogue.registry.entries["other"].model
        assert (settings.n_threads, settings.sampling.temperature) == (1, None), "only the embedded model is greedy"
        assert [(each.name, each.current) for each in conversations.choices()] == [
            (first.model, False),
            ("other", True),
        ]
        assert "Bob" in (await say(session, "What is my name?"))[0], "the conversation continues"
        for damage in (b"GGUF no more", other.read_bytes()[:400_000]):
            (tmp_path / "broken.gguf").write_bytes(damage)
            with pytest.raises((InvalidRequest, EngineError), match=r"broken\.gguf"):
                await conversations.switch(session, str(tmp_path / "broken.gguf"))
            assert (conversations.active, loaded(app), len(conversations.choices())) == (facts, ["other"], 2)
        with pytest.raises(InvalidRequest, match=r"none\.gguf: this model file does not exist"):
            await conversations.switch(session, str(tmp_path / "none.gguf"))
        assert await conversations.switch(session, "embedded") == first
        assert (await conversations.switch(session, str(other))).cache == facts.cache, "it is known from before"
        assert app.totals().n_loads["other"] == 2


async def test_the_model_uses_our_tools_and_answers_with_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("The meeting is on Friday.\n")
    async with running(tmp_path) as app:
        session = app.conversations.session(user=LOCAL)
        assert {"list_directory", "read_file", "search_memory"} <= {spec.name for spec in session.tools}
        said, returned = await say(session, "Read the file plan.txt")
        assert [each.call.name for each in returned] == ["read_file"]
        part = returned[0].result.parts[0]
        assert isinstance(part, Text)
        assert "The meeting is on Friday." in part.text
        assert "Friday" in said
        again, more = await say(session, "Read the file missing.txt")
        assert [each.result.is_error for each in more[:1]] == [True]
        assert again


async def test_another_model_can_be_asked_when_somebody_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, f"isolate = false\n{TWO}") as app:
        assert not any(spec.name.startswith("ask_") for spec in app.conversations.session(user=LOCAL).tools)
        assert {"ask_ann", "ask_bob"} <= {tool.name for tool in app.tools.registry.tools()}
    async with running(tmp_path, f'isolate = false\n{TWO}[tools]\nenabled = ["ask_bob"]\n') as app:
        session = app.conversations.session(user=LOCAL)
        assert session.toolbox is not None
        ran = await session.toolbox.run(ToolCall("c1", "ask_bob", '{"prompt": "Hello!"}'))
        part = ran.result.parts[0]
        assert isinstance(part, Text)
        assert not ran.result.is_error
        assert part.text
        assert loaded(app) == ["ann", "bob"]
        missing = await session.toolbox.run(ToolCall("c2", "ask_bob", "{}"))
        assert missing.result.is_error


async def answer(app: App, text: str, **fields: Any) -> Message:
    request = Request("lamb", (Message.user(text),), **fields)
    async with aclosing(app.conversations.stream(request, endpoint="/v1/chat/completions")) as events:
        return fold([event async for event in events]).message


async def test_http_callers_have_our_tools_only_if_the_operator_says_so(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("The meeting is on Friday.\n")
    async with running(tmp_path) as app:
        assert "Friday" not in (await answer(app, "Read the file plan.txt")).text
    async with running(tmp_path, use_tools=True) as app:
        told = await answer(app, "Read the file plan.txt")
        assert "Friday" in told.text
        assert told.calls == ()
        theirs = await answer(app, "Read the file plan.txt", tools=(READ,))
        assert [call.name for call in theirs.calls] == ["read_file"], "calls of a client's own tools are the client's"
    async with running(tmp_path, use_tools=True, enable_tools=()) as app:
        assert "Friday" not in (await answer(app, "Read the file plan.txt")).text


async def test_the_model_can_search_what_has_left_its_own_conversation(tmp_path: Path) -> None:
    window = '[models.lamb]\npath = "embedded"\n[caches.main]\nmodel = "lamb"\nn_ctx = 1024\nwindow = "8x"\n'
    told = [Message.user("The code word is Bluebird."), Message.assistant("I see.")]
    for n in range(40):
        told += [Message.user(f"The sheep {named(n)} stands on a hill and eats."), Message.assistant(f"Yes, {n}.")]
    asked = Request("lamb", (*told, Message.user("Go on.")), owner="me")
    async with running(tmp_path, window, use_tools=True, enable_tools=("memory",)) as app:
        for end in range(2, len(told), 20):  # a session, whose beginning leaves
            events = app.conversations.stream(
                Request("lamb", tuple(told[: end + 1]), max_tokens=1, owner="me"), endpoint=""
            )
            assert [event async for event in events]
        box = await app.conversations.box_for(asked, "")
        assert [spec.name for spec in box.specs] == ["search_memory"], "the others need a memory"
        assert "Bluebird" in await searched(box, "code word")
        assert "Bluebird" in await searched(box, "bluebird")
        assert "Nothing" in await searched(box, named(39)), "the context holds it"
        assert named(3) in await searched(box, f"Where is {named(3)}?")
        assert "Nothing" in await searched(box, "giraffe")
        other = await app.conversations.box_for(Request("lamb", (Message.user("Hello"),), owner="me"), "")
        assert "Nothing" in await searched(other, "code word"), "it is of another conversation"
        with_memory = await app.conversations.box_for(replace(asked, user=LOCAL), "")
        assert {"search_memory", "get_fact"} <= {spec.name for spec in with_memory.specs}
        both = await searched(with_memory, "code word")
        assert "Bluebird" in both
        assert "archived conversation" in both
    async with running(tmp_path, window.replace('window = "8x"', ""), use_tools=True, enable_tools=("memory",)) as app:
        assert not (await app.conversations.box_for(asked, "")).specs


@pytest.mark.model
async def test_a_window_over_a_memory_without_holes_says_what_it_costs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_gguf.write(tiny_gguf.RECIPES["recurrent"], tmp_path / "mamba.gguf")
    window = '[models.mamba]\npath = "mamba.gguf"\n[caches.main]\nmodel = "mamba"\nn_ctx = 512\nwindow = "8x"\n'
    async with running(tmp_path, window):
        (warning,) = (record.getMessage() for record in caplog.records if "window" in record.getMessage())
    assert "cannot have holes" in warning


@pytest.mark.model
@pytest.mark.parametrize(("n_ctx", "warns"), [(4096, False), (4352, True)])
async def test_a_context_larger_than_the_model_was_trained_for_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n_ctx: int, warns: bool
) -> None:
    async with running(tmp_path, f'[models.lamb]\npath = "embedded"\n[caches.main]\nmodel = "lamb"\nn_ctx = {n_ctx}\n'):
        said = [record.getMessage() for record in caplog.records if "trained" in record.getMessage()]
    assert said == warns * [
        "cache 'main' has a context of 4352 tokens, and lamb.gguf was trained for 4096: behind them answers get worse; "
        "set n_ctx of [caches.main] (--context-size) to 4096 or less"
    ]


def named(n: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in f"{n:05}")


async def searched(box: ConversationToolbox, query: str) -> str:
    ran = await box.run(ToolCall("c1", "search_memory", json.dumps({"query": query})))
    (part,) = ran.result.parts
    assert isinstance(part, Text)
    assert not ran.result.is_error, part.text
    return part.text


async def test_with_notools_the_model_sees_no_tool_of_a_client(tmp_path: Path) -> None:
    asked = Request("lamb", (Message.system("Write <call>NAME</call>."), Message.user("Read the file plan.txt")))
    given = replace(asked, tools=(READ,))
    async with running(tmp_path, enable_tools=()) as app:
        assert await app.conversations.count(given) > await app.conversations.count(asked), (
            "without tools of ours, a client's own ones stay"
        )
    async with running(tmp_path, enable_tools=(), client_tools=False) as app:
        assert await app.conversations.count(given) == await app.conversations.count(asked)
        for choice in ("required", ("named", "read_file")):
            with pytest.raises(InvalidRequest, match="--notools") as error:
                await answer(app, "Read it", tools=(READ,), tool_choice=choice)
            assert error.value.field == "tool_choice"


@pytest.mark.parametrize(("share", "n_changed"), [(0.25, 2), (0, 0)])
async def test_a_changed_line_of_the_system_prompt_is_said_unless_that_is_switched_off(
    tmp_path: Path, share: float, n_changed: int
) -> None:
    rules = "\n".join(f"Rule {n}: be kind to every sheep." for n in range(9))
    asked = Request(
        "lamb", (Message.system(f"Status: clean\n{rules}"), Message.user("Hello")), session="s", max_tokens=2
    )
    async with running(tmp_path, f"[kv]\nsystem_changes = {share}", enable_tools=()) as app:
        reply = fold([event async for event in app.conversations.stream(asked, endpoint="")])
        changed = Message.system(f"Status: one file\n{rules}")
        later = replace(asked, messages=(changed, *asked.messages[1:], reply.message, Message.user("So?")))
        first = await anext(aiter(app.conversations.stream(later, endpoint="")))
        assert isinstance(first, Started)
        assert first.n_changed == n_changed
        assert (first.usage.cache_read > 90) == bool(n_changed)


READ = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@pytest.mark.parametrize("key", ["enabled", "disabled", "allow", "ask", "deny"])
def test_a_name_that_no_tool_has_is_an_error_and_not_ignored(tmp_path: Path, key: str) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(f'[tools]\n{key} = ["filesystem", "comand_execution"]\n')
    config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    with pytest.raises(ConfigError, match=r"comand_execution.*command_execution"):
        App(config)


async def test_one_answer_for_a_script_has_the_tools_that_somebody_has_spoken_of(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        assert app.conversations.session(tools=False).toolbox is None
    for flag in ("enable_tools", "allow_tools"):
        flags: dict[str, Any] = {flag: ("write_file",)}
        async with running(tmp_path, **flags) as app:
            assert "write_file" in {spec.name for spec in app.conversations.session(tools=False).tools}
