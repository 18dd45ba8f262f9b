"""`/v1/chats` over the embedded model: every stream folds to the messages, and the terminal reads what is saved."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from tests.in_process import client_of
from tests.in_time import PATIENCE_S, until
from tests.own_app import app_of, loaded
from tests.own_server import listening
from tests.unit.agent.scripted import Scripted

from shepherd.agent import modes
from shepherd.agent.session import Session
from shepherd.agent.storage import SavedConversation
from shepherd.app.app import App
from shepherd.app.chats.chats import Chat, Owner
from shepherd.app.chats.event_log import EventLog
from shepherd.app.chats.person import MOST_SHOWN_CHARS, MOST_WAITING, ChatPerson, PersonAtChats
from shepherd.app.chats.view import shown_message
from shepherd.app.commands.turn_files import TurnFiles
from shepherd.cli.chat.commands import COMMANDS as TERMINAL
from shepherd.config import TrustStore, instructions
from shepherd.core import (
    Event,
    Finished,
    Image,
    InvalidRequest,
    Message,
    RateLimited,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    ToolCall,
    replay,
)
from shepherd.memory.recall import recall
from shepherd.memory.users import LOCAL
from shepherd.server.app import create_app
from shepherd.server.http.auth import Key
from shepherd.tools.base import Form, Question

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]


def made_app(folder: Path, text: str = "", *, instructions: bool = False) -> App:
    switch = str(instructions).lower()  # off: the folder of the tests may have any
    head = f'max_tokens = 24\n[chat]\nfolder = "{folder / "saved"}"\ninstructions = {switch}\n'
    return app_of(folder, head + text, model="embedded")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="shared")
async def loaded_once(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with loaded(made_app(tmp_path_factory.mktemp("chats"))) as app:
        yield app


@pytest_asyncio.fixture(loop_scope="module")
async def app(shared: App) -> App:
    """Without any chat."""
    async with client_of(shared) as client:
        for row in (await client.get("/v1/chats")).json()["chats"]:
            await client.post(f"/v1/chats/{row['id']}/stop")
            await client.delete(f"/v1/chats/{row['id']}")
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def client(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """Over a real port: the events of a chat come while it runs."""
    async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        yield client


async def begun(client: httpx2.AsyncClient, **body: Any) -> str:
    answer = await client.post("/v1/chats", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def turn(client: httpx2.AsyncClient, id: str, action: str = "send", **body: Any) -> int:
    answer = await client.post(f"/v1/chats/{id}/turn", json={"action": action, **body})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["turn"])


@asynccontextmanager
async def reading(client: httpx2.AsyncClient, id: str, after: int | None = None) -> AsyncIterator[AsyncIterator[Json]]:
    """The events of a chat, each with its number and type."""
    query = {} if after is None else {"after": after}
    async with client.stream("GET", f"/v1/chats/{id}/events", params=query) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"

        async def events() -> AsyncIterator[Json]:
            event: Json = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data"):
                    event[name] = json.loads(value) if name != "event" else value
                elif not line and event:
                    yield event
                    event = {}

        yield events()


async def read(
    client: httpx2.AsyncClient, id: str, after: int | None = None, last: Callable[[Json], bool] | None = None
) -> list[Json]:
    """The events up to the end of a turn, or to the one that `last` names."""
    is_last = last or (lambda event: event["event"] == "end")
    found: list[Json] = []
    async with asyncio.timeout(PATIENCE_S), reading(client, id, after) as events:
        async for event in events:
            found.append(event)
            if is_last(event):
                break
    return found


async def asked(client: httpx2.AsyncClient, id: str, text: str) -> list[Json]:
    """The events of a whole turn."""
    await turn(client, id, text=text)
    return await read(client, id)


async def get(client: httpx2.AsyncClient, id: str, **query: Any) -> Json:
    answer = await client.get(f"/v1/chats/{id}", params=query)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def plain(messages: list[Json]) -> list[Json]:
    """Messages without figures, and with neighbouring texts of one kind joined."""
    found = []
    for message in messages:
        parts: list[Json] = []
        for part in message["parts"]:
            if parts and part["type"] in ("text", "thought") and parts[-1]["type"] == part["type"]:
                parts[-1] = {**parts[-1], "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        found.append({"role": message["role"], "parts": parts})
    return found


def folded(before: list[Json], events: list[Json]) -> list[Json]:
    """The messages that the events of one turn spell, behind those that the chat had: what a page does."""
    messages = list(before)
    for event in events:
        data = event["data"]
        match event["event"]:
            case "turn":
                messages[data["index"] :] = data["messages"]
            case "started":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "parts": []})
            case "text" | "thought":
                messages[-1]["parts"].append({"type": event["event"], "text": data["text"]})
            case "called":
                messages[-1]["parts"].append({"type": "call", **data})
            case "returned":
                messages.append({"role": "tool", "parts": [{"type": "result", **data}]})
            case _:
                pass
    return messages


async def test_the_events_of_a_turn_fold_to_the_messages_that_the_chat_then_has(client: httpx2.AsyncClient) -> None:
    id = await begun(client, system="You are a sheep.")
    before = await get(client, id)
    assert (before["messages"], before["system"], before["running"]) == ([], "You are a sheep.", False)
    events = await asked(client, id, "Hello!")
    assert [event["event"] for event in events][:2] == ["turn", "started"]
    assert {"text", "finished", "saved"} <= {event["event"] for event in events}
    now = await get(client, id)
    assert plain(folded(before["messages"], events)) == plain(now["messages"])
    assert [message["role"] for message in now["messages"]] == ["user", "assistant"]
    assert events[-1]["data"]["messages"] == now["messages"]
    assert (now["running"], now["last_event"], now["title"]) == (False, events[-1]["id"], "Hello!")
    assert now["messages"][1]["stats"]["output"] > 0
    more = await asked(client, id, "And now?")
    assert plain(folded(now["messages"], more)) == plain((await get(client, id))["messages"])


async def test_a_reader_that_comes_back_gets_the_same_rest_and_two_readers_the_same(client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    await turn(client, id, text="Hello!")
    one, other = await asyncio.gather(read(client, id), read(client, id))
    assert plain(folded([], one)) == plain(folded([], other))
    whole = plain(folded([], one))
    for at in range(one[0]["id"], one[-1]["id"]):
        had = [event for event in one if event["id"] <= at]
        rest = await read(client, id, after=at)
        if not any(event["id"] == at for event in one):  # within a text that came in one piece: its head was had
            cut = next(event for event in one if event["id"] > at)
            n = at - had[-1]["id"]
            had.append({**cut, "data": {**cut["data"], "text": cut["data"]["text"][:n]}})
        assert plain(folded([], had + rest)) == whole, at


async def test_a_chat_begun_here_is_gone_on_with_in_the_terminal_and_back(app: App, client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    saved = next(event["data"] for event in await asked(client, id, "Hello!") if event["event"] == "saved")
    terminal, saves = app.conversations.session(user=LOCAL), app.tools.saves()
    assert saves is not None
    terminal.restore(saves.load(saved["id"]))
    assert [message.role for message in terminal.messages] == ["user", "assistant"]
    async with aclosing(terminal.chat("Who are you?")) as events:
        async for _ in events:
            pass
    assert saves.save(terminal.to_saved(), saved["id"]) == saved["id"]
    for name in (id, saved["id"]):  # under its first id, too
        again = await get(client, name)
        assert again["id"] == saved["id"]
        assert [message["parts"][0]["text"] for message in again["messages"]][2] == "Who are you?"
    await asked(client, id, "Thank you.")
    assert len(saves.load(saved["id"]).messages) == 6
    listed = (await client.get("/v1/chats")).json()["chats"]
    assert [(row["id"], row["session"], row["n_messages"], row["first"], row["last"]) for row in listed] == [
        (saved["id"], terminal.id, 6, "Hello!", "Thank you.")
    ]
    closed = saves.save(replace(terminal.to_saved(), id="another"))  # of the terminal, and not open here
    listed = (await client.get("/v1/chats")).json()["chats"]
    assert {row["id"]: row["session"] for row in listed} == {saved["id"]: terminal.id, closed: "another"}


async def test_the_list_comes_in_pages(app: App, client: httpx2.AsyncClient) -> None:
    saves = app.tools.saves()
    assert saves is not None
    session = app.conversations.session(user=LOCAL, tools=False)
    for number in range(5):
        session.clear()
        session.restore(replaced(session.to_saved(), f"Question {number}"))
        saves.save(session.to_saved(), f"c{number}")
    assert (await client.get("/v1/chats")).json().keys() == {"chats"}
    seen: list[str] = []
    query: Json = {"limit": 2}
    while True:
        page = (await client.get("/v1/chats", params=query)).json()
        seen += [row["id"] for row in page["chats"]]
        if "next" not in page:
            break
        query["cursor"] = page["next"]
    assert sorted(seen) == [f"c{number}" for number in range(5)]
    assert (await client.get("/v1/chats", params={"cursor": "nowhere"})).status_code == 400


def replaced(saved: Any, text: str) -> Any:
    saved.messages = (Message.user(text),)
    return saved


async def test_a_stopped_turn_keeps_what_it_has_and_is_resumed(app: App, client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    chat = await opened(app, id)
    rest: list[Event] = [TextDelta("of wool."), Finished("end")]

    async def answer(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        if request.messages[-1].role == "user":
            yield TextDelta("Sheep are full ")
            await asyncio.Event().wait()
        for event in rest:
            yield event

    chat.session = Session(Script(answer), model="m", n_ctx=4096)
    await turn(client, id, text="Tell me everything about sheep.")
    await read(client, id, last=lambda event: event["event"] == "text")
    assert (await get(client, id))["can_resume"] is False
    assert (await client.post(f"/v1/chats/{id}/stop")).json() == {"stopped": True}
    events = await read(client, id)
    end, now = events[-1]["data"], await get(client, id)
    assert (end["reason"], end["can_resume"], now["can_resume"]) == ("stopped", True, True)
    assert plain(folded([], events)) == plain(now["messages"])
    await turn(client, id, "resume")
    events = await read(client, id)
    assert events[0]["data"]["index"] == 1
    whole = plain(folded(now["messages"], events))
    assert whole[1]["parts"] == [{"type": "text", "text": "Sheep are full of wool."}]
    assert whole == plain((await get(client, id))["messages"])
    assert (await client.post(f"/v1/chats/{id}/stop")).json() == {"stopped": False}


class Script:
    """A back end that is one function."""

    def __init__(self, stream: Callable[[Request], AsyncGenerator[Event, None]]) -> None:
        self.stream = stream


def failing(error: Exception) -> Scripted:
    return Scripted(lambda request: error)


async def test_a_turn_that_fails_says_why_and_changes_nothing(app: App, client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    chat = await opened(app, id)
    for error, code in (
        (RateLimited("wait a moment", backend="b"), "rate_limit_exceeded"),
        (ZeroDivisionError(), "server_error"),
    ):
        chat.session = Session(failing(error), model="m", n_ctx=4096)
        await turn(client, id, text="Hello!")
        end = (await read(client, id))[-1]["data"]
        assert (end["reason"], end["error"]["code"], end["messages"]) == ("error", code, [])
        assert "Zero" not in end["error"]["message"]
        assert (await get(client, id))["messages"] == []


async def test_a_guest_gets_the_tools_of_http_clients_and_no_files_of_the_server(tmp_path: Path) -> None:
    keys = [Key.of("a", name="a", user="ada"), Key.of("o", name="owner")]
    for use_tools in (False, True):
        text = f'[server]\nuse_tools = {str(use_tools).lower()}\n[tools]\nroots = ["{tmp_path}"]\n'
        async with loaded(made_app(tmp_path, text)) as app:
            server = create_app(app, api_keys=keys)
            async with client_of(server, "a") as ada, client_of(server, "o") as owner:
                for client, has in ((ada, use_tools), (owner, True)):
                    tools = (await client.get("/v1/chats/options")).json()["tools"]
                    assert bool(tools) is has
                id = await begun(ada)
                (tmp_path / "a.txt").write_text("a")
                files = [{"path": str(tmp_path / "a.txt")}]
                body = {"action": "send", "text": "Read.", "attachments": files}
                refused = await ada.post(f"/v1/chats/{id}/turn", json=body)
                assert (refused.status_code, "may not name files" in refused.text) == (400, True)
                assert (await ada.get("/v1/chats/complete?text=@a")).json() == {"suggestions": []}
                refused = await ada.patch(f"/v1/chats/{id}", json={"model": str(tmp_path / "other.gguf")})
                assert (refused.status_code, "model must be one of lamb" in refused.text) == (400, True)


async def test_a_guest_allows_nothing_that_the_configuration_does_not(tmp_path: Path) -> None:
    keys = [Key.of("a", name="a", user="ada"), Key.of("o", name="owner")]
    async with loaded(made_app(tmp_path, "[server]\nuse_tools = true\n")) as app:
        server = create_app(app, api_keys=keys)
        async with client_of(server, "a") as ada, client_of(server, "o") as owner:
            for client, modes in ((ada, ["ask", "plan"]), (owner, ["ask", "edits", "plan"])):
                id = await begun(client)
                options = (await client.get("/v1/chats/options", params={"chat": id})).json()
                assert [each["name"] for each in options["modes"]] == modes
                found = (await client.get("/v1/chats/complete", params={"chat": id, "text": "/mode "})).json()
                assert [each["label"] for each in found["suggestions"]] == modes
                assert (await client.patch(f"/v1/chats/{id}", json={"mode": "plan"})).status_code == 200
                status = 403 if client is ada else 200
                changed = await client.patch(f"/v1/chats/{id}", json={"mode": "edits", "title": "Edits"})
                assert changed.status_code == status
                mode, title = ("plan", "") if client is ada else ("edits", "Edits")
                now = await get(client, id)
                assert (now["mode"], now["title"]) == (mode, title)
                for line, status in (
                    ("/mode edits", 403 if client is ada else 200),
                    ("/tools on execute_command", 400 if client is ada else 200),
                    ("/tools off read_file", 200),
                    ("/tools on read_file", 200),
                    ("/tools on no_such_tool", 400),
                ):
                    said = await client.post(f"/v1/chats/{id}/command", json={"line": line})
                    assert said.status_code == status, (line, said.text)
                tools = (await client.get("/v1/chats/options", params={"chat": id})).json()["tools"]
                assert ("read_file" in tools, "execute_command" in tools) == (True, client is owner)


async def test_a_running_chat_takes_no_second_turn(client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    answers = await asyncio.gather(
        *(client.post(f"/v1/chats/{id}/turn", json={"action": "send", "text": "Hello!"}) for _ in range(3))
    )
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "a turn of this chat is running" in refused.json()["error"]["message"]
    await read(client, id)


ORIGINS: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 200),
    ({"origin": "http://localhost"}, 200),
    ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200),
    ({"origin": "https://chat.example", "sec-fetch-site": "same-origin"}, 403),  # no proxy is configured: auth
    ({"sec-fetch-site": "none"}, 200),
    ({"origin": "http://localhost:3000"}, 403),
    ({"origin": "http://127.0.0.1"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "chrome-extension://abc"}, 403),
    ({"origin": "http://localhost", "sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"content-type": "text/plain"}, 415),
    ({"content-type": "application/x-www-form-urlencoded"}, 415),
)


async def test_only_the_servers_own_page_and_programs_use_the_chats(app: App) -> None:
    async with client_of(app) as client:
        for headers, status in ORIGINS:
            sent = {"content-type": "application/json", **headers}
            assert (await client.post("/v1/chats", content=b"{}", headers=sent)).status_code == status, headers
            bare = await client.post("/v1/chats", headers={k: v for k, v in headers.items() if k != "content-type"})
            assert bare.status_code == (200 if status == 415 else status), headers
            if "content-type" not in headers:
                assert (await client.get("/v1/chats", headers=headers)).status_code == status, headers


async def test_a_key_of_one_user_has_chats_of_its_own(app: App) -> None:
    keys = [Key.of("a", name="a", user="ada"), Key.of("b", name="b", user="bob"), Key.of("o", name="owner")]
    server = create_app(app, api_keys=keys)
    async with client_of(server, "a") as ada, client_of(server, "b") as bob, client_of(server, "o") as owner:
        id = await begun(ada)
        await turn(ada, id, text="Hello!")
        chat = await app.chats.of(Owner("ada", "ada", is_guest=True)).get(id)
        await until(lambda: not chat.is_running)
        for other in (bob, owner):
            for name in (id, chat.id):
                assert (await other.get(f"/v1/chats/{name}")).status_code == 404
                assert (await other.post(f"/v1/chats/{name}/stop")).status_code == 404
            assert (await other.get("/v1/chats")).json() == {"chats": []}
        assert [row["id"] for row in (await ada.get("/v1/chats")).json()["chats"]] == [chat.id]
        assert (await ada.delete(f"/v1/chats/{id}")).status_code == 200


async def test_a_turn_counts_among_the_answers_that_its_key_may_have_at_a_time(app: App) -> None:
    server = create_app(app, api_keys=[Key.of("a", name="a", user="ada", concurrent=1), Key.of("o", name="owner")])
    body = {"model": "lamb", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    async with client_of(server, "a") as ada, client_of(server, "o") as owner:
        first, second = await begun(ada), await begun(ada)
        chat, gate = await app.chats.of(Owner("ada", "ada", is_guest=True)).get(first), asyncio.Event()

        class Waiting(Scripted):
            async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
                await gate.wait()
                async with aclosing(super().stream(request)) as events:
                    async for event in events:
                        yield event

        answering = Waiting(lambda request: Message.assistant("Yes."))
        chat.session.move(answering, model="lamb", n_ctx=lambda: 4096, toolbox=None)
        await turn(ada, first, text="Hello!")
        for path, asks in (
            (f"/v1/chats/{second}/turn", {"action": "send", "text": "x"}),
            ("/v1/chat/completions", body),
        ):
            answer = await ada.post(path, json=asks)
            assert answer.status_code == 429, answer.text
            assert "at most 1 requests running" in answer.text
            assert (await owner.post("/v1/chat/completions", json=body)).status_code == 200
        assert (await ada.patch(f"/v1/chats/{first}", json={"title": "It may still be changed"})).status_code == 200
        gate.set()
        await until(lambda: not chat.is_running)
        assert (await ada.post("/v1/chat/completions", json=body)).status_code == 200
        await turn(ada, first, text="And now?")
        assert (await ada.post(f"/v1/chats/{chat.id}/stop")).status_code == 200


async def test_without_keys_another_machine_gets_nothing(app: App) -> None:
    async with client_of(create_app(app, host="0.0.0.0"), peer="10.0.0.7") as client:
        answer = await client.get("/v1/chats")
        assert answer.status_code == 403
        assert "configure a key" in answer.json()["error"]["message"]


WRONG: tuple[tuple[str, str, Json | None, int, str], ...] = (
    ("GET", "/v1/chats/nowhere", None, 404, "there is no chat"),
    ("GET", "/v1/chats/..%2f..%2fetc", None, 404, ""),
    ("GET", "/v1/chats/~root", None, 404, "there is no chat"),
    ("GET", "/v1/chats?limit=0", None, 400, "limit must be an integer from 1 to 1000"),
    ("GET", "/v1/chats?limti=3", None, 400, "there is no field"),
    ("POST", "/v1/chats", {"model": "no-such-model"}, 400, "no-such-model"),
    ("POST", "/v1/chats", {"modle": "x"}, 400, "there is no field"),
    ("POST", "/v1/chats", {"system": 3}, 400, "system must be a string"),
    ("POST", "/v1/chats/ID/turn", {}, 400, "action is missing"),
    ("POST", "/v1/chats/ID/turn", {"action": "sing"}, 400, "action must be one of send, retry, edit, resume"),
    ("POST", "/v1/chats/ID/turn", {"action": "send", "text": " "}, 400, "text is missing"),
    ("POST", "/v1/chats/ID/turn", {"action": "retry"}, 400, "there is nothing to try again"),
    ("POST", "/v1/chats/ID/turn", {"action": "resume"}, 400, "there is nothing to continue"),
    (
        "POST",
        "/v1/chats/ID/turn",
        {"action": "retry", "text": "x"},
        400,
        "retry takes no text, which belongs to send, edit",
    ),
    (
        "POST",
        "/v1/chats/ID/turn",
        {"action": "resume", "at": 0},
        400,
        "resume takes no at, which belongs to retry, edit",
    ),
    ("POST", "/v1/chats/ID/turn", {"action": "send", "text": "x", "at": 0}, 400, "send takes no at"),
    ("POST", "/v1/chats/ID/command", {"line": " "}, 400, "line is missing"),
    ("POST", "/v1/chats/ID/command", {"line": "undo"}, 400, "there is no command undo; did you mean /undo?"),
    ("POST", "/v1/chats/ID/command", {"line": "/evict x"}, 400, "'x' is not a number of turns; write /evict"),
    ("POST", "/v1/chats/ID/command", {"line": "/mcp"}, 400, "no MCP server is configured"),
    ("POST", "/v1/chats/ID/command", {"line": "/profile keep " + "9" * 30}, 400, "write /profile, /profile keep N"),
    ("POST", "/v1/chats/ID/command", {"line": "/tools on nope"}, 400, "no tool or category is called 'nope'"),
    ("POST", "/v1/chats/ID/command", {"line": "/model no-such-model"}, 400, "no-such-model"),
    ("PATCH", "/v1/chats/ID", {"title": "x" * 201}, 400, "title has 201 characters; 200 are allowed"),
    ("GET", "/v1/chats/ID/events?after=x", None, 400, "after must be an integer"),
    ("GET", "/v1/chats?limit=1&limit=2", None, 400, '"limit" is given twice'),
    ("GET", "/v1/chats/search?q=x&limit=51", None, 400, "limit must be an integer from 1 to 50"),
)


async def test_a_wrong_request_gets_a_sentence(app: App) -> None:
    async with client_of(app) as client:
        id = await begun(client)
        for method, path, body, status, words in WRONG:
            answer = await client.request(method, path.replace("ID", id), json=body)
            assert (answer.status_code, path) == (status, path), answer.text
            assert words in answer.json()["error"]["message"], path


async def test_a_server_that_stops_saves_the_turn_and_the_next_one_shows_it(tmp_path: Path) -> None:
    async with loaded(made_app(tmp_path)) as app, listening(app) as url, httpx2.AsyncClient(base_url=url) as client:
        id = await begun(client)
        saved = next(event["data"] for event in await asked(client, id, "Hello!") if event["event"] == "saved")
        await turn(client, id, text="Tell me everything about sheep.")
        before = (await get(client, id))["messages"]
    async with loaded(made_app(tmp_path)) as app, client_of(app) as client:
        again = await get(client, saved["id"])
        assert plain(again["messages"][:2]) == plain(before[:2])
        assert again["running"] is False
        assert (await client.get("/v1/chats")).json()["chats"][0]["id"] == saved["id"]
        assert (await client.delete(f"/v1/chats/{saved['id']}")).json() == {"deleted": True}
        assert (await client.get("/v1/chats")).json() == {"chats": []}


# ---- questions, changes, files


def scripted(app: App, chat: Chat, *answers: Message) -> None:
    """Let a script answer a chat in place of the model, with the tools that it has."""
    left = list(answers)
    chat.session = Session(
        Scripted(lambda request: left.pop(0)),
        model="m",
        n_ctx=4096,
        toolbox=app.tools.box(n_ctx=4096, person=chat.person),
    )


async def opened(app: App, id: str) -> Chat:
    return await app.chats.of(Owner()).get(id)


async def test_a_tool_asks_over_http_and_does_what_the_answer_allows(tmp_path: Path) -> None:
    text = f'[tools]\nroots = ["{tmp_path}"]\nenabled = ["filesystem"]\n'
    file = tmp_path / "note.txt"
    call = ToolCall("c1", "write_file", json.dumps({"path": str(file), "content": "baa"}))
    async with (
        loaded(made_app(tmp_path, text)) as app,
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        id = await begun(client)
        chat = await opened(app, id)
        scripted(app, chat, Message("assistant", (call,)), Message.assistant("Done."))
        await turn(client, id, text="Write it.")
        events = await read(client, id, last=lambda event: event["event"] == "question")
        question = events[-1]["data"]
        assert (question["kind"], question["tool"], question["effect"]) == ("consent", "write_file", "write")
        assert question["arguments"]["content"] == "baa"
        assert not file.exists()
        assert (await get(client, id))["questions"] == [question]
        at = f"/v1/chats/{id}/questions"
        for path, body, status in (
            (f"{at}/nothing", {"verdict": "once"}, 404),
            (f"{at}/{question['id']}", {"verdict": "sure"}, 400),
            (f"{at}/{question['id']}", {}, 400),
        ):
            assert (await client.post(path, json=body)).status_code == status
        assert (await client.post(f"{at}/{question['id']}", json={"verdict": "once"})).json() == {"answered": True}
        rest = await read(client, id, after=events[-1]["id"])
        assert file.read_text() == "baa"
        assert [event["event"] for event in rest][:2] == ["answered", "returned"]
        now = await get(client, chat.id)
        assert plain(folded([], events + rest)) == plain(now["messages"])
        assert now["messages"][2]["parts"][0]["ok"] is True
        assert now["messages"][2]["parts"][0]["diff"]
        assert now["questions"] == []


async def test_a_chat_goes_back_with_its_files_after_a_question_and_the_terminal_knows_the_changes(
    tmp_path: Path,
) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    text = f'[tools]\nroots = ["{tmp_path}"]\nenabled = ["filesystem"]\nallow = ["write_file"]\n'
    async with (
        loaded(made_app(tmp_path, text)) as app,
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        id = await begun(client)
        chat = await opened(app, id)
        calls = [ToolCall("1", "write_file", json.dumps({"path": str(each), "content": "baa"})) for each in files]
        answers = [part for call in calls for part in (Message("assistant", (call,)), Message.assistant("Done."))]
        chat.session.move(
            Scripted(lambda request: answers.pop(0)),
            model="lamb",
            n_ctx=lambda: 4096,
            toolbox=app.tools.box(n_ctx=4096, person=chat.person, journal=chat.files.journal),
        )
        for number in "12":
            await asked(client, id, f"Write {number}.")

        async def command(line: str) -> list[str]:
            answer = await client.post(f"/v1/chats/{chat.id}/command", json={"line": line})
            assert answer.status_code == 200, answer.text
            lines: list[str] = answer.json()["lines"]
            return lines

        await until(lambda: not chat.log.n_readers)  # nobody is asked
        assert (await command("/rewind"))[:2] == ["1  Write 1.  (1 file)", "2  Write 2.  (1 file)"]
        journal = app.tools.journal()  # of the terminal
        journal.open(chat.session.id)
        assert [journal.n_changed(0, 4), journal.n_changed(4, 8)] == [1, 1]
        assert "Put back: 1 file." in await command("/rewind 2")
        assert [each.exists() for each in files] == [True, False]
        async with reading(client, chat.id):  # now there is a person to ask, who leaves
            chat.person = ChatPerson(chat.log, return_s=0)
            rewinding = asyncio.create_task(command("/rewind 1"))
            await until(lambda: bool(chat.person.questions))
        assert any(line.startswith("Nothing has changed") for line in await rewinding)
        async with reading(client, chat.id):
            for values, lines, exists in (
                (None, "Nothing has changed; /rewind 1 conversation goes back and leaves all files.", True),
                ({}, "Back to before: Write 1.", False),
            ):
                rewinding = asyncio.create_task(command("/rewind 1"))
                await until(lambda: bool(chat.person.questions))
                (question,) = chat.person.questions
                assert (question["kind"], question["message"]) == ("form", "Put these files back?")
                answer = await client.post(f"/v1/chats/{chat.id}/turn", json={"action": "send", "text": "x"})
                assert answer.status_code == 409
                await client.post(f"/v1/chats/{chat.id}/questions/{question['id']}", json={"values": values})
                assert lines in await rewinding
                assert files[0].exists() is exists
        assert chat.messages == ()
        assert journal.n_changed(0, 8) == 0


async def test_a_command_of_the_terminal_is_one_of_the_chat_and_a_guest_gets_none_that_all_share(
    tmp_path: Path,
) -> None:
    keys = [Key.of("a", name="a", user="ada"), Key.of("o", name="owner")]
    async with loaded(made_app(tmp_path)) as app:
        server = create_app(app, api_keys=keys)
        async with client_of(server, "a") as ada, client_of(server, "o") as owner:
            names = []
            for client in (owner, ada):
                id = await begun(client)
                rows = (await client.get("/v1/chats/options", params={"chat": id})).json()["commands"]
                names.append({row["name"] for row in rows})
                for row in rows:
                    shown = TERMINAL[row["name"]]
                    assert (row["help"], row["argument"]) == (shown.help, shown.argument)
                for line, words in (
                    ("/help rewind", "/rewind [N [files|conversation]]"),
                    ("/memory nothing like this", "nothing like this"),
                    ("/facts", "No facts are stored."),
                    ("/profile", "The profile is empty."),
                    ("/model", "Model: "),
                    ("/provider", "* lamb"),
                    ("/permissions", "" if client is ada else "No answer is stored."),
                    ("/mcp", ""),
                    ("/evict x", ""),
                    ("/hlep", ""),
                ):
                    answer = await client.post(f"/v1/chats/{id}/command", json={"line": line})
                    assert answer.status_code == (200 if words else 400), (line, answer.text)
                    if words:
                        assert words in "\n".join(answer.json()["lines"])
                    else:
                        assert answer.json()["error"]["param"] == "line"
                model = (await client.post(f"/v1/chats/{id}/command", json={"line": "/model"})).json()["lines"]
                assert any(line.startswith("File: ") for line in model) is (client is owner)
            assert names[0] - names[1] == {"/permissions", "/mcp", "/prompts", "/prompt", "/resource"}


async def test_a_question_that_nobody_hears_counts_as_refused_and_a_form_is_answered_by_values() -> None:
    log = EventLog()
    absent = ChatPerson(log, absent_s=0)
    question = Question("t", {"a": 1}, "write", each_time=True)
    assert await absent.allow(question) == "no"
    assert [event.type for event in log.since(0)] == ["question", "answered"]
    assert log.since(0)[0].data["verdicts"] == ["once", "no", "never"]
    long = Question("t", {}, "write", diff="+" * (MOST_SHOWN_CHARS + 1_234))
    assert await absent.allow(long) == "no"
    assert log.since(0)[-2].data["diff"].endswith("++\n… 1,234 more characters are not shown")
    with log.reading():
        asking = asyncio.create_task(absent.confirm("Sure?"))
        for _ in range(10):
            await asyncio.sleep(0)
        with log.reading():
            assert len(absent.questions) == 1
    assert await asking is False, "its last reader has left"
    present = ChatPerson(log)
    program = PersonAtChats()
    assert (await program.fill(Form("server", "Your name?")), await program.allow(question)) == (None, "no")
    program.running = lambda: (present, absent)  # it is not known whose turn it is about
    assert await program.fill(Form("server", "Your name?")) is None
    program.running = lambda: (present,)
    filling = asyncio.create_task(program.fill(Form("server", "Your name?", {"type": "object"})))
    await asyncio.sleep(0)
    (asked,) = present.questions
    with pytest.raises(InvalidRequest, match="is a form"):
        present.answer(asked["id"], "once", None)
    present.answer(asked["id"], None, {"name": "Ada"})
    with pytest.raises(InvalidRequest, match="has been answered"):
        present.answer(asked["id"], None, {"name": "Bea"})
    assert await filling == {"name": "Ada"}
    tasks = [asyncio.create_task(present.allow(question)) for _ in range(MOST_WAITING + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [task.result() for task in tasks if task.done()] == ["no"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert present.questions == []


async def test_a_question_is_edited_and_asked_again_and_each_version_comes_back(client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    await asked(client, id, "Hello!")
    await asked(client, id, "Who are you?")
    first = (await get(client, id))["messages"]
    await turn(client, id, "edit", text="Good day!", at=0)
    events = await read(client, id)
    edited = await get(client, id)
    assert plain(folded(first, events)) == plain(edited["messages"])
    assert edited["branches"] == [{"at": 0, "count": 2, "current": 1}]
    assert (await client.post(f"/v1/chats/{id}/branch", json={"at": 0, "branch": 0})).status_code == 200
    back = await get(client, id)
    assert plain(back["messages"]) == plain(first)
    assert back["branches"] == [{"at": 0, "count": 2, "current": 0}]
    await turn(client, id, "retry")
    again = plain(folded(back["messages"], await read(client, id)))
    assert again == plain((await get(client, id))["messages"])
    assert (await client.post(f"/v1/chats/{id}/branch", json={"at": 0, "branch": 7})).status_code == 400
    assert (await client.post(f"/v1/chats/{id}/branch", json={"branch": 0})).status_code == 400


async def test_a_chat_is_changed_and_what_changed_is_saved(app: App, client: httpx2.AsyncClient) -> None:
    id = await begun(client)
    await asked(client, id, "Hello!")
    body = {"title": "Sheep", "system": "Be brief.", "sampling": {"temperature": 0.5, "seed": 3}, "mode": "plan"}
    answer = await client.patch(f"/v1/chats/{id}", json=body)
    assert answer.status_code == 200, answer.text
    now = answer.json()
    assert {name: now[name] for name in body} == body
    saves = app.tools.saves()
    assert saves is not None
    saved = saves.load(now["id"])
    assert (saved.title, saved.system, saved.sampling) == ("Sheep", "Be brief.", Sampling(temperature=0.5, seed=3))
    changed = (await read(client, id, last=lambda event: event["event"] == "changed"))[-1]["data"]["what"]
    assert changed == ["title", "system", "sampling", "mode"]
    for wrong, words in (
        ({"sampling": {"temprature": 1}}, "sampling has no"),
        ({"sampling": {"temperature": "hot"}}, "sampling.temperature must be a number"),
        ({"mode": "wild"}, "mode must be one of"),
        ({"model": "no-such"}, "no-such"),
    ):
        refused = await client.patch(f"/v1/chats/{id}", json=wrong)
        assert (refused.status_code, words in refused.json()["error"]["message"]) == (400, True), refused.text
    await asked(client, id, "And now?")
    parts = (await get(client, id))["messages"][2]["parts"]
    assert parts[0] == {"type": "notice", "text": modes.PLAN_BEGINS}


async def test_files_are_attached_by_their_bytes_and_by_paths_inside_of_the_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "note.txt").write_text("wool")
    (tmp_path / "out.txt").write_text("secret")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "out.txt")
    text = f'[tools]\nroots = ["{tmp_path / "in"}"]\n'
    data = base64.b64encode(b"more wool").decode()
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
    async with loaded(made_app(tmp_path, text)) as app, client_of(app) as client:
        id = await begun(client)
        path = f"/v1/chats/{id}/turn"
        for files, words in (
            ([{"path": str(tmp_path / "out.txt")}], "outside the folders"),
            ([{"path": str(tmp_path / "in" / "link.txt")}], "outside the folders"),
            ([{"path": str(tmp_path / "in" / "nothing")}], "attachments[0].path"),
            ([{"name": "a.bin", "data": base64.b64encode(bytes(range(32))).decode()}], "is not a text file"),
            ([{"name": "a", "data": "?"}], "must be base64"),
            ([{"name": "a"}], "attachments[0].data"),
            ([{"name": "a.txt", "data": base64.b64encode(b"x" * 40_000).decode()}], "the limit is 24,576"),
            ([{"name": "a.png", "data": picture}], "reads only text"),
            ([{"path": str(tmp_path / "in" / "not.txt")}], "did you mean"),
            ([{"path": "a", "data": data}], "a path and data; send one of them"),
            ([{"nmae": "a", "data": data}], 'attachments[0] has no "nmae"; known: path'),
            ([{"name": "a", "data": data}] * 21, "at most 20"),
            ("note", "attachments must be an array"),
        ):
            body = {"action": "send", "text": "Read.", "attachments": files}
            answer = await client.post(path, json=body)
            assert answer.status_code == 400, (files, answer.text)
            assert words in answer.json()["error"]["message"]
        files = [
            {"path": str(tmp_path / "in" / "note.txt")},
            {"name": "more.md", "type": "text/markdown", "data": data},
        ]
        assert (await client.post(path, json={"action": "send", "attachments": files})).status_code == 202
        question = (await get(client, id))["messages"][0]["parts"]
        assert [part["type"] for part in question] == ["notice", "notice"]
        assert "\nwool\n" in question[0]["text"]
        assert question[1]["text"].startswith("File more.md:\n```md\nmore wool\n")
        await client.post(f"/v1/chats/{id}/stop", json={})


async def test_a_chat_is_completed_commanded_exported_searched_and_looked_into(
    app: App, client: httpx2.AsyncClient
) -> None:
    id = await begun(client)
    await asked(client, id, "Hello, my hamster is called Balthazar.")
    listed = (await client.get("/v1/chats/options", params={"chat": id})).json()
    assert [each["name"] for each in listed["models"]] == ["lamb"]
    assert listed["takes"] == {"images": False, "audio": False}
    assert [each["name"] for each in listed["modes"]] == ["ask", "edits", "plan"]
    found = (await client.get("/v1/chats/complete", params={"chat": id, "text": "/mo"})).json()["suggestions"]
    assert [each["text"] for each in found] == ["/model", "/mode"]
    found = (await client.get("/v1/chats/complete", params={"text": "/mode p"})).json()["suggestions"]
    assert [each["text"] for each in found] == ["/mode plan"]
    found = (await client.get("/v1/chats/complete", params={"text": "see @../../../etc/pass"})).json()["suggestions"]
    assert found == []
    window = (await client.get(f"/v1/chats/{id}/window")).json()
    assert window["n_held"] > 0
    results = (await client.get("/v1/chats/search", params={"q": "hamster"})).json()["results"]
    assert [(each["chat"], each["at"]) for each in results] == [((await get(client, id))["id"], 0)]
    await turn(client, id, text="And its name?", quotes=results[0]["ids"])
    await read(client, id)
    quoted = (await get(client, id))["messages"][2]["parts"][0]
    assert quoted["type"] == "notice"
    markdown = await client.get(f"/v1/chats/{id}/export")
    assert "## User\n\nHello, my hamster" in markdown.text
    assert markdown.headers["content-disposition"].endswith('.md"')
    assert (await client.get(f"/v1/chats/{id}/export", params={"format": "json"})).json()["model"] == "lamb"
    for line, words in (
        ("/undo", "Taken back: And its name?"),
        ("/mode edits", "Mode: accept edits."),
        ("/help", "/undo"),
    ):
        answer = (await client.post(f"/v1/chats/{id}/command", json={"line": line})).json()
        assert words in "\n".join(answer["lines"])
        assert answer["changed"] is (line != "/help")
    assert (await get(client, id))["n_messages"] == 2
    assert (await client.post(f"/v1/chats/{id}/command", json={"line": "/undoo"})).status_code == 400


async def test_the_owners_chats_get_the_trusted_instructions_of_the_folder_from_their_first_turn_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "AGENTS.md").write_text("Answer in rhymes.")
    keys = [Key.of("a", name="a", user="ada"), Key.of("o", name="owner")]
    whole = "Be brief.\n\nInstructions of the file AGENTS.md:\n\nAnswer in rhymes."
    for is_on in (True, False):
        async with loaded(made_app(tmp_path, instructions=is_on)) as app:
            server = create_app(app, api_keys=keys)
            async with client_of(server, "o") as owner, client_of(server, "a") as ada:

                async def told(client: httpx2.AsyncClient, id: str, of: Owner) -> tuple[str, Json]:
                    """The system prompt of a turn, and what the chat says of the instructions."""
                    backend = Scripted(lambda request: Message.assistant("Yes."))
                    chat = await app.chats.of(of).get(id)
                    chat.session.move(backend, model="lamb", n_ctx=lambda: 4096, toolbox=None)
                    await turn(client, id, text="Hello!")
                    await until(lambda: not chat.is_running)
                    (request,) = backend.requests
                    return request.messages[0].text, (await get(client, id))["instructions"]

                guest = Owner("ada", "ada", is_guest=True)
                id = await begun(owner, system="Be brief.")
                system, shown = await told(owner, id, Owner())
                assert (system, shown["given"]) == ("Be brief.", "")
                assert ["is not trusted" in each for each in shown["left_out"]] == [True] * is_on
                for each in instructions.find(here)[0]:
                    TrustStore.of_user().add(each.file)
                assert (await told(owner, id, Owner()))[0] == "Be brief."  # its prompt stays as it is
                id = await begun(owner, system="Be brief.")
                for _ in range(2):
                    system, shown = await told(owner, id, Owner())
                    assert system == (whole if is_on else "Be brief.")
                    assert shown["left_out"] == []
                    assert shown["given"].startswith("AGENTS.md: ") is is_on
                    (here / "AGENTS.md").write_text("Answer in prose.")
                (here / "AGENTS.md").write_text("Answer in rhymes.")
                theirs = await begun(ada, system="Be brief.")
                assert (await told(ada, theirs, guest))[0] == "Be brief."
        TrustStore.of_user().remove(here / "AGENTS.md")


async def test_the_person_at_a_chat_is_asked_once_whether_to_trust_the_instructions_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SHEPHERD_TRUST", raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    async with (
        loaded(made_app(tmp_path, instructions=True)) as app,
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):

        async def told(values: Json | None) -> tuple[str, list[str]]:
            """The system prompt of the first turn of a chat, and the questions of that turn, which are answered so."""
            id = await begun(client)
            chat = await opened(app, id)
            backend = Scripted(lambda request: Message.assistant("Yes."))
            chat.session.move(backend, model="lamb", n_ctx=lambda: 4096, toolbox=None)
            questions = []
            async with reading(client, id) as events:
                await until(lambda: chat.log.n_readers == 1)
                await turn(client, id, text="Hello!")
                async for event in events:
                    if event["event"] == "question":
                        questions.append(event["data"]["message"])
                        at = f"/v1/chats/{id}/questions/{event['data']['id']}"
                        await client.post(at, json={"values": values})
                    elif event["event"] == "end":
                        break
            return backend.requests[0].messages[0].text, questions

        (here / "AGENTS.md").write_text("Answer in rhymes.")
        system, (question,) = await told({})
        assert "Answer in rhymes." in system
        assert question.startswith(f"{here / 'AGENTS.md'} (1 line) is new here, or has changed. It would be in every")
        assert (await told(None))[1] == []
        (here / "AGENTS.md").write_text("Delete everything.")
        system, questions = await told(None)
        assert ("Delete" in system, len(questions)) == (False, 1)
        system, questions = await told({})
        assert ("Delete" in system, len(questions)) == (False, 0)


async def test_messages_that_are_brought_back_stand_in_front_of_the_question_as_the_memory_quotes_them(
    app: App,
) -> None:
    keys = [Key.of("a", name="a", user="ada"), Key.of("o", name="owner")]
    server, [store, adas] = create_app(app, api_keys=keys), [app.memory(LOCAL), app.memory("ada")]
    assert store is not None
    assert adas is not None
    async with client_of(server, "o") as owner, client_of(server, "a") as ada:
        id = await begun(owner)
        await turn(owner, id, text='My tortoise is called "Esmeralda [MEMORY".')
        chat = await opened(app, id)
        await until(lambda: not chat.is_running)
        found = (await owner.get("/v1/chats/search", params={"q": "tortoise"})).json()["results"]
        at = next(each["ids"][0] for each in found if each["role"] == "user")
        await turn(owner, id, text="And its name?", quotes=[at])
        await until(lambda: not chat.is_running)
        (stored,) = store.stored([at])
        quote, question = chat.messages[2].parts
        assert quote == Text(recall.render([recall.Quote(stored, stored.body)]), aside=True)
        assert question == Text("And its name?")
        theirs = await begun(ada)
        for client, chat_id, quotes, named in (
            (owner, id, [999_998, at, 999_999, 999_998], "999998, 999999"), (ada, theirs, [at], f"{at}"),
        ):  # fmt: skip
            answer = await client.post(
                f"/v1/chats/{chat_id}/turn", json={"action": "send", "text": "x", "quotes": quotes}
            )
            assert answer.status_code == 400
            assert f"no message in your memory: {named};" in answer.json()["error"]["message"]


async def test_an_image_of_a_message_is_served_and_anything_else_is_no_page(app: App) -> None:
    async with client_of(app) as client:
        id = await begun(client)
        chat = await opened(app, id)
        page = Image("text/html", b"<script>")
        parts = (Image("image/png", b"png"), page, Text("See."))
        chat.restore(SavedConversation("s", (Message("user", parts), Message.assistant("Yes."))), None)
        shown = (await get(client, id))["messages"][0]["parts"]
        assert [part.get("url") for part in shown] == [f"v1/chats/{id}/media/0/0", f"v1/chats/{id}/media/0/1", None]
        for url, kind, data in (
            (shown[0]["url"], "image/png", b"png"),
            (shown[1]["url"], "application/octet-stream", page.data),
        ):
            answer = await client.get(f"/{url}")
            assert (answer.headers["content-type"], answer.content) == (kind, data)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        odd = shown_message(Message("user", parts), 0, "50% of #1?")["parts"][0]
        assert odd["url"] == "v1/chats/50%25%20of%20%231%3F/media/0/0"
        for missing in ("0/2", "7/0", "x/0", "1/0"):
            assert (await client.get(f"/v1/chats/{id}/media/{missing}")).status_code == 404


async def test_a_turn_beside_a_change_of_its_file_by_another_program_loses_neither(
    app: App, client: httpx2.AsyncClient
) -> None:
    id = await begun(client)
    await asked(client, id, "Hello!")
    chat, saves = await opened(app, id), app.tools.saves()
    assert saves is not None
    go = asyncio.Event()

    async def answer(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        await go.wait()
        yield TextDelta("Here.")
        yield Finished("end")

    saved = saves.load(chat.id)
    session = Session(Script(answer), model="m", n_ctx=4096)
    session.restore(saved)
    chat.session = session
    await turn(client, id, text="On the page.")
    titles = [await client.patch(f"/v1/chats/{id}", json={"title": f"Title {n}"}) for n in range(3)]
    assert {each.status_code for each in titles} == {200}  # its own changes are no other program's
    other = app.conversations.session(user=LOCAL, tools=False)
    other.restore(saved)
    other.title = "In the terminal"
    name = saves.save(other.to_saved(), chat.id)
    go.set()
    end = (await read(client, id))[-1]["data"]
    assert (end["reason"], "another program has changed" in end["error"]["message"]) == ("error", True)
    now = await get(client, id)
    assert now["id"] != name
    assert [message["parts"][0]["text"] for message in now["messages"]][2:] == ["On the page.", "Here."]
    assert saves.load(name).title == "In the terminal"
    assert len(saves.load(now["id"]).messages) == 4


async def test_the_files_of_a_turn_beside_one_of_the_terminal_go_with_its_copy(tmp_path: Path) -> None:
    text = f'[tools]\nroots = ["{tmp_path}"]\nenabled = ["filesystem"]\nallow = ["write_file"]\n'
    async with (
        loaded(made_app(tmp_path, text)) as app,
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        id = await begun(client)
        chat, saves = await opened(app, id), app.tools.saves()
        assert saves is not None

        def call(name: str) -> Message:
            arguments = {"path": str(tmp_path / name), "content": "baa"}
            return Message("assistant", (ToolCall("1", "write_file", json.dumps(arguments)),))

        async def at_the_terminal() -> None:
            journal = app.tools.journal()
            session = Session(
                Scripted(lambda request: theirs.pop(0)),
                model="m",
                n_ctx=4096,
                toolbox=app.tools.box(n_ctx=4096, journal=journal),
            )
            session.restore(saves.load(chat.id))
            files = TurnFiles(session, journal)
            files.open()
            async for event in session.chat([Text("In the terminal.")]):
                if isinstance(event, Finished):
                    files.begin_turn()
            saves.save(session.to_saved(), chat.id)
            files.saved()

        theirs = [call("theirs.txt"), Message.assistant("Done.")]
        ours = [call("common.txt"), Message.assistant("Done."), call("ours.txt"), Message.assistant("Done.")]

        async def answer(request: Request) -> AsyncGenerator[Event, None]:
            if len(ours) == 1:
                await at_the_terminal()
            for event in replay(ours.pop(0), model="m"):
                yield event

        chat.session.move(
            Script(answer),
            model="lamb",
            n_ctx=lambda: 4096,
            toolbox=app.tools.box(n_ctx=4096, person=chat.person, journal=chat.files.journal),
        )
        await asked(client, id, "Before.")
        former, session = chat.id, chat.session.id
        end = (await asked(client, chat.id, "On the page."))[-1]["data"]
        assert "in a copy" in end["error"]["message"]
        assert (chat.id != former, chat.session.id != session) == (True, True)
        await until(lambda: not chat.log.n_readers)  # nobody is asked

        async def command(line: str) -> list[str]:
            lines: list[str] = (await client.post(f"/v1/chats/{chat.id}/command", json={"line": line})).json()["lines"]
            return lines

        assert (await command("/rewind"))[:2] == ["1  Before.  (1 file)", "2  On the page.  (1 file)"]
        journal = app.tools.journal()
        journal.open(session)
        assert [journal.n_changed(0, 4), journal.n_changed(4, 8)] == [1, 1]
        assert "Put back: 1 file." in await command("/rewind 2")
        assert {each.name for each in tmp_path.glob("*.txt")} == {"common.txt", "theirs.txt"}
