"""Conversations with providers: moved there and back, with another model, without a key, with a fallback, stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command_line import logging_as_before
from tests.in_process import client_of
from tests.own_app import app_of, loaded
from tests.providers_replay import Answer, ReplayServer, Way, replaying
from tests.unit.backends.cloud.providing import CHAT, WORDS, chunk, refusal, spoken, sse
from tests.unit.cli.playing import Script

from shepherd.agent.digest import OPENING
from shepherd.agent.session import Session
from shepherd.app.app import App
from shepherd.app.providers import limits_of
from shepherd.app.toolset import AGENT_CTX
from shepherd.backends.cloud.backend import Timeouts
from shepherd.backends.cloud.transport import Deadlines
from shepherd.cli import logs
from shepherd.cli.chat.repl import Repl
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal.view import PipeView
from shepherd.config import NetworkConfig
from shepherd.core import (
    BudgetExceeded,
    ConfigError,
    InvalidRequest,
    Message,
    Opaque,
    Request,
    ShepherdError,
    Started,
    Text,
    TextDelta,
    TimedOut,
    Unavailable,
    Unreachable,
    fold,
)
from shepherd.core.edits import Edit
from shepherd.core.status import Spent

SAID = "".join(WORDS)
SECRET = "sk-test-abcdefghijklmnop-4242"


@asynccontextmanager
async def running(
    folder: Path, text: str, env: dict[str, str] | None = None, *, tools: tuple[str, ...] = ()
) -> AsyncIterator[App]:
    async with loaded(app_of(folder, text, env, enable_tools=tools)) as app:
        yield app


def mine(server: ReplayServer, name: str = "mine", more: str = "") -> str:
    return f'[providers.{name}]\ntype = "openai_compat"\nbase_url = "{server.url}"\nmodel = "m"\n{more}\n'


@asynccontextmanager
async def _terminal() -> AsyncIterator[None]:
    with logging_as_before():
        logs.set_up({})
        yield


async def say(session: Session, text: str) -> tuple[str, Started]:
    said, started = "", Started("")
    async with aclosing(session.chat(text)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                said += event.text
            elif isinstance(event, Started):
                started = event
    return said, started


async def test_what_cannot_answer_is_refused_in_words_and_the_conversation_stays(tmp_path: Path) -> None:
    async with replaying(spoken()) as server:
        env = {"ANTHROPIC_API_KEY": SECRET}
        async with running(tmp_path, mine(server), env) as app:
            session = app.conversations.session()
            with pytest.raises(InvalidRequest, match=r"no model is called 'nope'.*known: mine, anthropic/MODEL"):
                await app.conversations.switch(session, "nope")
            with pytest.raises(InvalidRequest, match="'anthropic' names no model; write anthropic/MODEL"):
                await app.conversations.switch(session, "anthropic")
            with pytest.raises(InvalidRequest, match="OPENROUTER_API_KEY, or run 'shepherd keys set openrouter'"):
                await app.conversations.switch(session, "openrouter/qwen/qwen3")
            assert (app.conversations.active.cache, app.conversations.other_providers()) == ("mine", ("anthropic",))
            assert (await say(session, "Hello"))[0] == SAID
            facts = await app.conversations.switch(session, "claude-sonnet-4-5")
            assert (facts.cache, facts.model, facts.is_away) == ("anthropic", "claude-sonnet-4-5", True)


async def test_our_own_conversation_falls_back_where_the_default_route_says_so(tmp_path: Path) -> None:
    busy = refusal(400, {"error": {"message": "no money left", "code": "insufficient_quota"}})
    async with replaying(busy) as first, replaying(spoken()) as second:
        text = mine(first) + mine(second, "spare")
        text += '[[routes]]\nmatch = "*"\nprovider = "mine"\nfallback = ["spare"]\n'
        async with running(tmp_path, text) as app:
            said, started = await say(app.conversations.session(), "Hello")
            assert (said, started.cache, started.instead_of) == (SAID, "spare", ("mine",))


OWN_FIRST = """
max_tokens = 16
[models.ann]
path = "{path}"
[caches.main]
model = "ann"
n_ctx = 512
[[routes]]
match = "*"
cache = "main"
fallback = ["mine"]
"""


async def test_a_private_conversation_has_no_fallback_elsewhere(tmp_path: Path) -> None:
    text = OWN_FIRST.format(path="embedded").replace('["mine"]', '["far"]\nprivacy = "local"')
    with pytest.raises(ConfigError, match="'far' is not on this machine"):
        async with running(tmp_path, f'{text}[providers.far]\ntype = "groq"\n', {"GROQ_API_KEY": SECRET}):
            pass


async def test_the_terminal_says_when_a_fallback_has_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = refusal(400, {"error": {"message": "no money left", "code": "insufficient_quota"}})
    async with _terminal(), replaying(busy) as first, replaying(spoken()) as second:
        text = mine(first) + mine(second, "spare")
        text += '[[routes]]\nmatch = "*"\nprovider = "mine"\nfallback = ["spare"]\n'
        async with running(tmp_path, text) as app:
            chat = Chat(app, app.conversations.session(), PipeView(), Script())  # type: ignore[arg-type]  # as below
            assert await chat.play(chat.session.chat("Hello"))
        assert capsys.readouterr().out.count("[spare answers instead of mine]") == 1


async def test_over_http_a_spent_budget_is_429_until_midnight(tmp_path: Path) -> None:
    row = '[providers.mine]\ntype = "vllm"\nmodel = "m"\nbudget_tokens = 0\n'
    async with running(tmp_path, row) as app, client_of(app) as client:
        body = {"model": "mine", "messages": [{"role": "user", "content": "Hello"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "budget_exceeded")
        assert 0 < int(answer.headers["retry-after"]) <= 25 * 3600
        listed = (await client.get("/v1/caches")).json()
        assert listed["providers"]["mine"]["budget_tokens"] == 0


async def test_a_group_of_replicas_holds_our_conversation(tmp_path: Path) -> None:
    async with replaying(spoken(), spoken()) as server:
        text = (
            mine(server, "a") + mine(server, "b") + '[providers.both]\ntype = "openai_compat"\nreplicas = ["a", "b"]\n'
        )
        text += '[[routes]]\nmatch = "*"\nprovider = "both"\n'
        async with running(tmp_path, text) as app:
            session = app.conversations.session()
            asked = {(await say(session, text))[1].cache for text in ("Hello", "Again")}
            assert len(asked) == 1
            assert asked < {"a", "b"}


async def test_the_window_of_a_group_is_the_smallest_that_is_known(tmp_path: Path) -> None:
    async with replaying() as server:
        text = mine(server, "a", "n_ctx = 4096") + mine(server, "b", "n_ctx = 2048") + mine(server, "down")
        text += '[providers.all]\ntype = "openai_compat"\nmodel = "m"\nreplicas = ["a", "b", "down"]\n'
        async with running(tmp_path, text) as app, client_of(app) as client:
            listed = (await client.get("/v1/models")).json()["data"]
            assert [each["max_model_len"] for each in listed if each["id"] == "all"] == [2048]


async def test_a_call_that_a_provider_leaves_in_the_text_is_one_on_every_surface(tmp_path: Path) -> None:
    written = '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>'
    left = spoken(body=sse(chunk({"content": written}), chunk({}, "stop")))
    async with replaying(left) as server, running(tmp_path, mine(server, more='dialect = "hermes"')) as app:
        async with client_of(app) as client:
            answer = (await client.post("/v1/chat/completions", json={**BODY, "model": "mine", "tools": [TOOL]})).json()
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "x"}'}


async def test_a_dialect_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    row = '[providers.mine]\ntype = "vllm"\ndialect = "hermet"\n'
    with pytest.raises(
        ConfigError, match=r"providers\.mine\.dialect: there is no dialect 'hermet'; there are .*hermes"
    ):
        async with running(tmp_path, row):
            pass


async def test_a_budget_holds_for_conversations_and_requests_and_is_reported(tmp_path: Path) -> None:
    async with replaying(spoken()) as server:
        more = "budget_tokens = 900\nprices = {input = 10.0, cached = 1.0, output = 100.0}"
        async with running(tmp_path, mine(server, "spent-in-a-test", more)) as app:
            session = app.conversations.session()
            await say(session, "Hello")
            with pytest.raises(BudgetExceeded, match="906 of 900 tokens"):
                await say(session, "Hello")
            (spending,) = app.totals().spending.values()
            assert spending.today == spending.total == Spent(900, 0, 6, 0.0096)
            assert (spending.budget_tokens, len(server.requests)) == (900, 1)


BODY = {"model": "x", "messages": [{"role": "user", "content": "Hello"}]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("more", "refused", "is_next"),
    [
        ({"tools": [TOOL]}, (400, "'q' does not support tools"), True),
        ({}, (400, "Invalid value: 'x' is not available for this model."), True),
        ({}, (404, "model 'q' not found"), True),
        ({}, (400, {"code": "context_length_exceeded", "message": "too long"}), True),
        ({"grammar": 'root ::= "a"'}, None, True),  # nothing is sent: Ollama has no word for it
        ({}, (400, "messages: at least one message is required"), False),
        ({}, (422, "temperature: must be a number"), False),
    ],
)
async def test_what_one_provider_cannot_the_next_may_and_what_is_wrong_is_not_repeated(
    tmp_path: Path, more: dict[str, object], refused: tuple[int, object] | None, is_next: bool
) -> None:
    answers = [replace(refusal(refused[0], {"error": refused[1]}), path="/api/chat")] if refused else []
    async with replaying(*answers) as first, replaying(spoken()) as second:
        text = f'[providers.mine]\ntype = "ollama"\nbase_url = "{first.url}"\nmodel = "q"\nn_ctx = 4096\n'
        text += f'[providers.spare]\ntype = "vllm"\nbase_url = "{second.url}"\nmodel = "m"\n'
        text += '[[routes]]\nmatch = "*"\nprovider = "mine"\nfallback = ["spare"]\n'
        async with running(tmp_path, text) as app:
            async with client_of(app) as client:
                answer = await client.post("/v1/chat/completions", json={**BODY, **more})
            assert answer.status_code == (200 if is_next else 400)
            assert answer.headers.get("x-shepherd-instead-of") == ("mine" if is_next else None)
            assert len(second.requests) == is_next
            assert app.dispatcher.resting() == {"mine": 0.0, "spare": 0.0}, "it says nothing about its health"


async def test_a_window_that_nothing_names_is_learnt_from_the_first_refusal_and_kept(tmp_path: Path) -> None:
    words = "This model's maximum context length is 6000 tokens. However, your messages resulted in 6800 tokens."
    full = refusal(400, {"error": {"message": words, "code": "context_length_exceeded"}})
    no_list = Answer("/v1/models", b'{"data": []}', 200, {"content-type": "application/json"}, "GET")
    answers = (no_list, *(spoken() for _ in range(6)), full, spoken(), spoken(), spoken())
    async with replaying(*answers) as server, running(tmp_path, mine(server)) as app:
        session = app.conversations.session()
        assert (session.n_ctx, app.conversations.active.n_ctx) == (AGENT_CTX, 0)
        for n in range(7):
            await say(session, f"{n} " + "some words " * 370)
        assert (session.n_ctx, app.conversations.active.n_ctx) == (6_000, 6_000)
        sent = [len(each.json["messages"]) for each in server.requests if each.method == "POST"]
        assert sent[6] == 13, "all of them, and it was refused"
        assert sent[7] < 13, "shorter, at once"
        for n in range(2):
            await say(session, f"And {n}?")
        posts = [each for each in server.requests if each.method == "POST"]
        assert len(posts) == 10, "no other one is refused: what does not fit leaves before"
        assert len(session.messages) == 18, "the transcript keeps all"


# -- the way there ----------------------------------------------------------------------------------------------------


async def test_attempts_and_deadlines_are_those_of_the_configuration(tmp_path: Path) -> None:
    down = [refusal(500, b"") for _ in range(3)]
    async with replaying(*down, spoken(Way(hang_at=0))) as server:
        more = "network = {attempts = 2, idle_s = 0.2}\n[network]\nattempts = 7\nconnect_s = 1\npatience_s = 1.0"
        async with running(tmp_path, mine(server, more=more)) as app:
            session = app.conversations.session()
            with pytest.raises(Unavailable):
                await say(session, "Hello")
            assert len(server.requests) == 2, "the provider's own number"
            with pytest.raises(TimedOut, match=r"has sent nothing for 0\.2 s"):
                await say(session, "Hello")
            assert len(server.requests) == 4


async def test_a_proxy_is_used_for_what_is_elsewhere_and_its_password_is_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = "http://api.invalid/v1/chat/completions"
    refused = Answer(path, b"proxy says hunter22", 407, {"proxy-authenticate": 'Basic realm="hunter22"'})
    async with replaying(replace(spoken(), path=path), refused, spoken()) as server:
        proxy = server.url.replace("://", "://me:hunter22@")
        text = f'[network]\nproxy = "{proxy}"\nattempts = 1\n' + mine(server, "here")
        text += '[providers.far]\ntype = "openai_compat"\nbase_url = "http://api.invalid"\nmodel = "m"\n'
        async with running(tmp_path, text) as app:
            session = app.conversations.session()
            await app.conversations.switch(session, "far")
            assert (await say(session, "Hello"))[0] == SAID
            assert server.requests[0].headers["host"] == "api.invalid"
            assert server.requests[0].headers["proxy-authorization"].startswith("Basic ")
            with pytest.raises(ShepherdError) as caught:
                await say(session, "Hello")
            await app.conversations.switch(session, "here")
            assert (await say(session, "Hello"))[0] == SAID
            assert "proxy-authorization" not in server.requests[2].headers, "this machine is reached without it"
    text = text.replace(f":{server.port}", ":1")
    async with running(tmp_path, text) as app:
        session = app.conversations.session()
        await app.conversations.switch(session, "far")
        with pytest.raises(Unreachable, match=r"api\.invalid through the proxy http://127\.0\.0\.1:1: ") as closed:
            await say(session, "Hello")
    words = f"{caught.value.message}{closed.value.message}{caplog.text}"
    assert "proxy says ***" in words
    assert "hunter22" not in words


async def test_a_proxy_of_its_own_for_a_provider_on_this_machine_is_a_mistake(tmp_path: Path) -> None:
    text = '[providers.mine]\ntype = "vllm"\nmodel = "m"\nnetwork = {proxy = "http://proxy.lan"}\n'
    with pytest.raises(ConfigError, match=r"providers\.mine\.network\.proxy: http://127.* is reached without a proxy"):
        async with running(tmp_path, text):
            pass


# -- the terminal -----------------------------------------------------------------------------------------------------


async def test_the_terminal_says_who_answers_and_ctrl_c_stops_a_cloud_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with _terminal(), replaying(spoken(Way(hang_at=700)), spoken()) as server:
        async with running(tmp_path, mine(server), {"OPENAI_API_KEY": SECRET}) as app:
            session = app.conversations.session()
            repls: list[Repl] = []

            async def stop() -> None:
                while not server.requests:  # noqa: ASYNC110 - the server has no event for this
                    await asyncio.sleep(0)
                repls[0]._stop()

            lines = ["Hi", "/provider", "/provider openai/gpt-5", "/provider nope", "/model mine/n", "Again", "/stats"]
            chat = Chat(app, session, PipeView(), Script(*lines))  # type: ignore[arg-type]  # a reader of lines
            repls.append(Repl(chat))
            stopper = asyncio.create_task(stop())
            await repls[0].run()
            await stopper
        out, err = capsys.readouterr()
        assert "[stopped]" in out
        await server.requests[0].has_left.wait()
        assert "* mine" in out
        assert "Name a model for: openai/MODEL" in out
        assert "The conversation continues with gpt-5 of openai, prompts leave this machine" in out
        assert "no model is called 'nope'" in out
        assert "The conversation continues with n of mine, prompts stay on this machine" in out
        assert SAID.partition(" ")[0] in out
        assert [line for line in err.splitlines() if "Loading" in line] == [
            "Loading provider: openai", "Loading provider: mine"
        ]  # fmt: skip
        assert "tokens today" in out
        assert server.requests[-1].path == CHAT


async def test_a_provider_without_compactions_gets_what_has_not_left(tmp_path: Path) -> None:
    turns = [
        each for n in range(4) for each in (Message.user(f"question {n} " * 40), Message.assistant(f"answer {n} " * 40))
    ]
    system, new = Message.system("Be brief."), Message.user("And now?")
    async with replaying(spoken(), spoken()) as server, running(tmp_path, mine(server)) as app:

        async def ask(*messages: Message, edits: tuple[Edit, ...] = ()) -> Message:
            request = Request("mine/m", messages, edits=edits)
            async with aclosing(app.conversations.stream(request)) as events:
                return fold([event async for event in events]).message

        def sent() -> list[str]:
            return [message["content"].split()[0] for message in server.requests[-1].json["messages"]]

        first = await ask(system, *turns, new, edits=(Edit("compact", trigger_tokens=200),))
        assert [type(part) for part in first.parts] == [Opaque, Text]
        left = sent()
        assert 3 <= len(left) < 2 + len(turns)
        assert left[:2] == ["Be", "question"]  # the task stays
        await ask(system, first, Message.user("more"))
        assert sent() == [*left, WORDS[0].split()[0], "more"]
        window = await ask(system, *turns, edits=(Edit("compact", trigger_tokens=0, pause=True),))
        assert [type(part) for part in window.parts] == [Opaque]
        assert len(server.requests) == 2


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_provider_writes_a_digest_where_its_table_asks_for_one(tmp_path: Path, *, is_on: bool) -> None:
    turns = [
        Message.user("question " * 40),
        Message.assistant("answer " * 40),
        Message.user("b"),
        Message.assistant("c"),
    ]
    wish = Edit("compact", trigger_tokens=0, pause=True, instructions="Keep all ports.")
    more = "digest = true" if is_on else ""
    async with replaying(spoken(), spoken()) as server, running(tmp_path, mine(server, more=more)) as app:
        async with aclosing(app.conversations.stream(Request("mine/m", tuple(turns), edits=(wish,)))) as events:
            window = fold([event async for event in events]).message
        await app.dispatcher.digests.idle()
        assert len(server.requests) == (1 if is_on else 0)
        async with aclosing(app.conversations.stream(Request("mine/m", (window, Message.user("more"))))) as events:
            assert [event async for event in events]
        sent = server.requests[-1].json["messages"][-1]["content"]
        assert sent.endswith("more")
        assert (OPENING in sent) == is_on
        if is_on:
            asked = server.requests[0].json["messages"]
            assert len(asked) == len(turns) + 1
            assert "Keep all ports." in asked[-1]["content"]


def test_what_a_configuration_leaves_open_is_as_the_deadlines_and_attempts_have_it() -> None:
    assert limits_of(NetworkConfig()) == (Deadlines(), Timeouts())
    deadlines, timeouts = limits_of(NetworkConfig(connect_s=1, idle_s=400, read_s=3, attempts=4, patience_s=5))
    assert deadlines == Deadlines(connect=1, idle=400, record=800, whole=3)
    assert timeouts == Timeouts(attempts=4, stated_s=5, total_s=5)
