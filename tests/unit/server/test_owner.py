"""Keys beside each other: the stored answers of each, and the memory and the caches of a key with a user."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest
from tests.in_process import client_of
from tests.scripted_service import ScriptedService, saying

from shepherd.core.status import Health
from shepherd.engine.stats import CacheStats, SequenceStats
from shepherd.memory.users import UserStores
from shepherd.server.app import create_app
from shepherd.server.endpoints.chats import CHAT_ENDPOINTS
from shepherd.server.endpoints.memory import MEMORY_ENDPOINTS
from shepherd.server.endpoints.memory_request import MemoryEndpoint
from shepherd.server.http.auth import Key
from shepherd.server.http.caller import USER
from shepherd.server.response_store import FILE, ResponseStore
from shepherd.server.routes import ENDPOINTS, GENERATE_ENDPOINTS
from shepherd.wire.base import Json

R = "/v1/responses"
NO_ID = "resp_000000000000000000000000"
ANN, BOB, PLAIN = "sk-ann", "sk-bob", "sk-plain"
KEYS = (Key.of(ANN, name="ann"), Key.of(BOB, name="bob"), PLAIN)


def texts(service: ScriptedService) -> list[str]:
    """What the model was given last."""
    return [message.text for message in service.requests[-1].messages]


async def answered(client: httpx2.AsyncClient, text: str, **fields: Any) -> Any:
    answer = await client.post(R, json={"model": "m", "input": text, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- stored answers


@pytest.mark.parametrize("thief", [BOB, PLAIN])
async def test_a_stored_answer_exists_for_its_own_key_only(thief: str) -> None:
    service = ScriptedService(saying("One"))
    app = create_app(service, api_keys=KEYS)
    async with client_of(app, ANN) as ann, client_of(app, thief) as other:
        made = await answered(ann, "a secret")
        item = {"type": "item_reference", "id": made["output"][0]["id"]}
        asks = (
            ("GET", R + "/{}", None),
            ("GET", R + "/{}/input_items", None),
            ("POST", R + "/{}/cancel", None),
            ("DELETE", R + "/{}", None),
            ("POST", R, {"model": "m", "input": "b", "previous_response_id": "{}"}),
            ("POST", R + "/input_tokens", {"model": "m", "input": "b", "previous_response_id": "{}"}),
        )
        for method, path, body in asks:
            answers = []
            for id in (made["id"], NO_ID):  # exactly as if there were none
                named = body and {name: value.replace("{}", id) for name, value in body.items()}
                answer = await other.request(method, path.format(id), json=named)
                answers.append((answer.status_code, answer.text.replace(id, "ID")))
            assert answers[0] == answers[1], (method, path)
            assert answers[0][0] == (404 if body is None else 400), answers[0]
        for path in (R, f"{R}/input_tokens"):
            refused = await other.post(path, json={"model": "m", "input": [item]})
            assert (refused.status_code, "refers to item" in refused.text) == (400, True)
        assert len(service.requests) == 1
        assert (await ann.get(f"{R}/{made['id']}")).json() == made
        await answered(ann, "b", previous_response_id=made["id"])
        assert texts(service) == ["a secret", "One", "b"]


async def test_an_item_is_that_of_the_chain_and_never_of_another_key() -> None:
    """Clients may choose the ids of their items: another chain, or another key, may have the same id."""
    service = ScriptedService(saying("One"))
    app = create_app(service, api_keys=KEYS)

    def item(text: str) -> Any:
        return [{"role": "user", "content": text, "id": "msg_same"}]

    same: Any = [{"type": "item_reference", "id": "msg_same"}]
    async with client_of(app, ANN) as ann, client_of(app, BOB) as bob:
        first = await answered(ann, item("first"))
        await answered(ann, item("second"))
        await answered(bob, item("planted"))
        await answered(ann, same)
        assert texts(service) == ["second"]
        await answered(ann, same, previous_response_id=first["id"])
        assert texts(service) == ["first", "One", "first"]


async def test_a_stored_answer_belongs_to_the_key_and_not_to_its_name_or_place(tmp_path: Path) -> None:
    """Another key that gets the name, or the place in the list, does not get the answers."""
    ids = []
    for keys, secret in (((Key.of(ANN, name="a"), PLAIN), PLAIN), ((PLAIN, Key.of(ANN, name="a")), ANN)):
        kept = ResponseStore(tmp_path / "answers.db")
        async with client_of(create_app(ScriptedService(saying("One")), api_keys=keys, responses=kept), secret) as one:
            ids.append((await answered(one, "a"))["id"])
        kept.close()
    kept = ResponseStore(tmp_path / "answers.db")
    later = (Key.of(BOB, name="a"), "sk-key-1", PLAIN)
    app = create_app(ScriptedService(saying("One")), api_keys=later, responses=kept)
    found = {}
    for secret in (BOB, "sk-key-1", PLAIN):
        async with client_of(app, secret) as one:
            found[secret] = [(await one.get(f"{R}/{id}")).status_code for id in ids]
    kept.close()
    assert found == {BOB: [404, 404], "sk-key-1": [404, 404], PLAIN: [200, 404]}
    assert all(b"sk-" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_file_of_an_earlier_version_is_read_by_an_open_server_only(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    kept = ResponseStore(path)
    async with client_of(create_app(ScriptedService(saying("One")), responses=kept), "") as one:
        id = (await answered(one, "a"))["id"]
    kept.close()
    file = apsw.Connection(str(path))
    file.execute("ALTER TABLE response DROP COLUMN owner; PRAGMA user_version = 1").fetchall()
    assert file.pragma("application_id") == FILE.application_id
    file.close()
    for keys, status in (((ANN,), 404), (None, 200), (None, 200)):
        kept = ResponseStore(path)
        app = create_app(ScriptedService(saying("One")), api_keys=keys, responses=kept)
        async with client_of(app, ANN) as one:
            assert (await one.get(f"{R}/{id}")).status_code == status
        kept.close()


async def test_many_keys_at_once_never_read_each_other() -> None:
    secrets = [f"sk-{number}" for number in range(8)]
    app = create_app(ScriptedService(saying("One")), api_keys=secrets)

    async def work(secret: str) -> list[str]:
        async with client_of(app, secret) as client:
            ids = [(await answered(client, f"of {secret}"))["id"] for _ in range(4)]
            ids += [(await answered(client, "more", previous_response_id=id))["id"] for id in ids]
            return ids

    made = dict(zip(secrets, await asyncio.gather(*map(work, secrets)), strict=True))
    for secret in secrets:
        async with client_of(app, secret) as client:
            for owner, ids in made.items():
                found = [await client.get(f"{R}/{id}/input_items") for id in ids]
                assert {each.status_code for each in found} == {200 if owner == secret else 404}
                assert all(f"of {owner}" in each.text for each in found if owner == secret)


# ---- keys of one user


ADA, ADAS_OTHER = "sk-ada", "sk-ada-2"
BOUND = (
    Key.of(ADA, name="ada", user="ada"),
    Key.of(ADAS_OTHER, name="ada-2", user="ada"),
    Key.of(BOB, name="bob", user="bob"),
    PLAIN,
)
M = "/v1/memory"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptedService]:
    shelf = UserStores(tmp_path / "memory.db")
    busy = CacheStats(9, sequences=(SequenceStats(0, "idle", "s-of-bob", 1, 0, 0, 1, 0, 0.0, 0.0),))
    yield ScriptedService(saying("One"), stats={"main": busy}, shelf=shelf)
    shelf.close()


async def test_keys_of_one_user_share_the_stored_answers(service: ScriptedService) -> None:
    app = create_app(service, api_keys=BOUND)
    async with (
        client_of(app, ADA) as ada,
        client_of(app, ADAS_OTHER) as same,
        client_of(app, BOB) as bob,
    ):
        id = (await answered(ada, "a"))["id"]
        assert [(await each.get(f"{R}/{id}")).status_code for each in (same, bob)] == [200, 404]
        await answered(same, "b", previous_response_id=id)
        assert (await bob.delete(f"{R}/{id}")).status_code == 404
        assert (await same.delete(f"{R}/{id}")).status_code == 200


async def test_a_key_of_one_user_has_the_memory_of_that_user(service: ScriptedService) -> None:
    app = create_app(service, api_keys=BOUND)
    async with (
        client_of(app, ADA) as ada,
        client_of(app, BOB) as bob,
        client_of(app, PLAIN) as plain,
    ):
        assert (await ada.put(f"{M}/facts/color", json={"value": "blue"})).status_code == 200
        found = [(await each.get(f"{M}/facts/color")).json()["value"] for each in (ada, bob, plain)]
        assert found == ["blue", None, None]
        for client in (ada, plain):  # a key without a user may name any; its own may be named, too
            ways: list[dict[str, Any]] = [{"headers": {"x-shepherd-user": " ada "}}, {"params": {"user": "ada"}}]
            for named in ways:
                assert (await client.get(f"{M}/facts/color", **named)).json()["value"] == "blue"


@pytest.mark.parametrize("row", MEMORY_ENDPOINTS, ids=lambda row: f"{row.method} {row.path}")
@pytest.mark.parametrize("other", ["bob", "local", "ADA", "é"])
async def test_no_path_of_the_memory_lets_a_key_name_another_user(
    service: ScriptedService, row: MemoryEndpoint, other: str
) -> None:
    path = re.sub(r"{\w+(:path)?}", "1", row.path)
    body = {name: _example(schema) for name, schema in row.parameters.items() if f"{{{name}" not in row.path}
    asked: Any = {"json": body} if row.method in ("POST", "PUT") else {"params": body}
    naming: Any = {how: {**given, "user": other} for how, given in asked.items()}
    async with client_of(create_app(service, api_keys=BOUND), ADA) as ada:
        answers = [
            await ada.request(row.method, path, **asked, headers=[(USER, other.encode())]),
            await ada.request(row.method, path, **asked, headers=[(USER, b"ada"), (USER, other.encode())]),
            await ada.request(row.method, path, **naming),
        ]
        if "json" in asked:
            answers.append(await ada.request(row.method, path, **asked, params={"user": other}))
    for answer in answers:
        assert answer.status_code == 403, answer.text
        assert f'names "{other}", and this API key acts as user "ada" only' in answer.json()["error"]["message"]


def _example(schema: Json) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "array":
        return [_example(schema["items"])]
    return {"integer": 1, "boolean": False}.get(schema["type"], "2026-01-01")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"prompt": "a"}),
        (R, {"input": "a"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 9}),
        ("/api/chat", {"messages": [{"role": "user", "content": "a"}]}),
        (f"{R}/input_tokens", {"input": "a"}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
async def test_a_key_of_one_user_asks_as_that_user(service: ScriptedService, path: str, body: Json) -> None:
    """Clients put what they like into `user`, so it does not choose; the header is Shepherd's own, and refused."""
    async with client_of(create_app(service, api_keys=BOUND), ADA) as ada:
        for named in ({}, {"user": "bob"}, {"user": "bob", "metadata": {"user_id": "bob"}}):
            if named.get("metadata") is None or path.startswith("/v1/messages"):
                answer = await ada.post(path, json={"model": "m", **body, **named})
                assert answer.status_code == 200, answer.text
                assert service.requests[-1].user == "ada"
                assert service.requests[-1].session in (None, "ada")
        n_before = len(service.requests)
        refused = await ada.post(path, json={"model": "m", **body}, headers={"x-shepherd-user": "bob"})
        assert (refused.status_code, len(service.requests)) == (403, n_before)
        figures = (await ada.get("/metrics")).text
    assert 'shepherd_refused_total{reason="user"} 1.0' in figures


async def test_a_key_of_one_user_does_not_empty_what_holds_the_conversations_of_others(
    service: ScriptedService,
) -> None:
    app = create_app(service, api_keys=BOUND)
    asked = {"matching": "secret"}
    async with client_of(app, ADA) as ada, client_of(app, PLAIN) as plain:
        for refused in (await ada.delete("/v1/caches/main"), await ada.post(f"{M}/forget", json=asked)):
            assert refused.status_code == 403
            assert 'this API key acts as user "ada" only; use a key' in refused.json()["error"]["message"]
        assert service.cleared == []
        assert (await ada.post(f"{M}/forget", json={**asked, "dry_run": True})).json() == {"messages": 0}
        assert (await ada.get("/v1/caches")).json()["caches"]["main"]["sequences"] == []
        assert "s-of-bob" in (await plain.get("/v1/caches")).text
        assert (await plain.post(f"{M}/forget", json={**asked, "user": "ada"})).status_code == 200
        assert (await plain.delete("/v1/caches/main")).status_code == 200
    assert service.cleared == ["main", "main"]


async def test_the_only_key_may_empty_the_caches_for_its_user(service: ScriptedService) -> None:
    async with client_of(create_app(service, api_keys=(Key.of(ADA, name="a", user="ada"),)), ADA) as ada:
        assert "s-of-bob" in (await ada.get("/v1/caches")).text
        assert (await ada.delete("/v1/caches/main")).status_code == 200
        assert (await ada.post(f"{M}/forget", json={"matching": "x"})).status_code == 200


PROMPTLESS = ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings")
DEEDS: tuple[tuple[str, str, Json | list[Json] | None], ...] = (
    ("DELETE", "/v1/caches/main", None),
    ("POST", f"{M}/forget", {"matching": "x"}),
    ("POST", "/api/pull", {"model": "http://127.0.0.1:9/other.gguf"}),
    ("POST", "/api/copy", {"source": "fake", "destination": "mine"}),
    ("DELETE", "/api/delete", {"model": "fake"}),
    ("POST", "/v1/replicas/main/drain", None),
    ("POST", "/v1/replicas/main/resume", None),
    ("POST", "/lora-adapters", []),
    ("POST", "/v1/lora-adapters", []),
    *(("POST", path, {"model": "fake", "keep_alive": 0, "stream": False}) for path in PROMPTLESS),
)
"""Requests that change what all users share."""
OTHERS = {
    "/v1/chat/completions/input_tokens", "/apply-template", "/tokenize", "/detokenize", f"{R}/input_tokens",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/score", "/api/show",  # they compute
    "/api/push", "/api/blobs/{digest:path}",  # nothing has them
    f"{R}/{{response_id}}", f"{R}/{{response_id}}/cancel", "/api/event_logging/batch",  # its own, or nothing
}  # fmt: skip


def test_each_path_that_may_change_something_is_known_to_change_what_is_shared_or_not() -> None:
    generating = {row.paths[0] for row in GENERATE_ENDPOINTS}
    memory = {row.path for row in MEMORY_ENDPOINTS}
    rows = [row for row in ENDPOINTS if {"POST", "PUT", "PATCH", "DELETE"} & {*row.methods}]
    chats = {path for row in CHAT_ENDPOINTS for path in row.paths}  # of the caller only: test_chats.py
    deeds = {re.sub("/main$", "/{name:path}", path).replace("/main/", "/{name}/") for _, path, _ in DEEDS}
    unknown = {row.paths[0] for row in rows} - generating - memory - chats - deeds - OTHERS
    assert unknown == set()


@pytest.mark.parametrize(("method", "path", "body"), DEEDS, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_key_of_one_user_changes_nothing_that_all_share(
    service: ScriptedService, method: str, path: str, body: Any
) -> None:
    asked: Any = {} if body is None else {"json": body}
    async with client_of(create_app(service, api_keys=BOUND), ADA) as ada:
        refused = await ada.request(method, path, **asked)
    assert (refused.status_code, 'this API key acts as user \\"ada\\" only; use a key' in refused.text) == (403, True)
    assert (service.cleared, service.copied, service.deleted, service.unloaded) == ([], [], [], [])
    alone = create_app(service, api_keys=(Key.of(ADA, name="ada", user="ada"),))
    for app, secret in ((create_app(service, api_keys=BOUND), PLAIN), (alone, ADA)):
        async with client_of(app, secret) as client:
            assert "acts as user" not in (await client.request(method, path, **asked)).text


async def test_a_key_of_one_user_does_not_decide_how_long_a_model_stays(service: ScriptedService) -> None:
    body = {"model": "fake", "messages": [{"role": "user", "content": "a"}], "keep_alive": -1, "stream": False}
    app = create_app(service, api_keys=BOUND)
    for secret, extra in ((ADA, None), (PLAIN, -1.0)):
        async with client_of(app, secret) as client:
            assert (await client.post("/api/chat", json=body)).status_code == 200
        assert service.requests[-1].extra.get("keep_alive") == extra


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/pull"), ("POST", "/api/copy"), ("DELETE", "/api/delete")])
async def test_what_the_operator_forbids_is_forbidden_while_models_load_too(method: str, path: str) -> None:
    loading = ScriptedService(saying("One"), health=Health("loading", "llamacpp", "m"))
    body = {"model": "m", "source": "m", "destination": "n"}
    async with client_of(create_app(loading), "") as client:
        assert (await client.request(method, path, json=body)).status_code == 503
        loading.manages_models = False
        refused = await client.request(method, path, json=body)
    assert (refused.status_code, "manage_models = true in [server]" in refused.text) == (403, True)
