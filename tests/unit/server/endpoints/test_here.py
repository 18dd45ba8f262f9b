"""`GET /v1/models/here` and `GET /v1/usage`, from a real program with the embedded model; who sees what."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.in_process import client_of
from tests.in_time import until
from tests.own_app import app_of, loaded
from tests.providers_scripted import Said, scripted
from tests.scripted_service import ScriptedService, saying

from shepherd.models import catalog, pulled
from shepherd.models.pulled import ModelFile, PulledModel
from shepherd.server.app import create_app
from shepherd.server.http.auth import Key

LAMB = catalog.embedded()
NAME = "hf:acme/lamb-GGUF:F16"
SECRET = "sk-test-0123456789abcdef"
HI = {"model": "lamb", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


def put(root: Path) -> PulledModel:
    folder = root / "hf/acme/lamb-GGUF/lamb-F16"
    folder.mkdir(parents=True)
    # Another file: the same one, behind a link, is the embedded model itself.
    (folder / "lamb-F16.gguf").write_bytes(LAMB.read_bytes())
    files = (ModelFile("lamb-F16.gguf", LAMB.stat().st_size),)
    model = PulledModel(NAME, "hf", "acme/lamb-GGUF", "1", 1.0, folder, files)
    pulled.write_record(model)
    return model


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    # Of the user, not of our code.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    put(tmp_path / "models")
    app = app_of(tmp_path, "", {"SHEPHERD_MODELS": str(tmp_path / "models")})
    async with loaded(app), client_of(app) as made:
        yield made


async def read(client: httpx2.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.model
async def test_what_is_here_is_listed_with_its_state_and_what_fits(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    found = await read(client, "/v1/models/here")
    by_name = {row["name"]: row for row in found["models"]}
    lamb, other = by_name["embedded"], by_name[NAME]
    assert (lamb["served"], lamb["loaded"], lamb["fits"], lamb["kind"]) == ("lamb", True, True, "chat")
    assert (other["served"], other["loaded"], other["deletable"]) == (NAME, False, True)
    assert found["taken_bytes"] == lamb["memory_bytes"] > lamb["size_bytes"] > LAMB.stat().st_size * 0.9
    assert (found["more"], found["manages"]) == (False, False)
    assert "manage_models = true in [server]" in found["refusal"]
    first = found["suggestions"][0]
    assert first["fits"] == (first["needed_bytes"] <= found["memory_bytes"])
    assert found["unchosen"] is False, "one was pulled"
    os.unlink(tmp_path / "models/hf/acme/lamb-GGUF/lamb-F16/lamb-F16.gguf")
    found = await read(client, "/v1/models/here")
    assert NAME not in [row["name"] for row in found["models"]]
    assert found["unchosen"] is True


@pytest.mark.model
async def test_use_is_told_with_the_figures_of_the_caches_also_after_a_restart(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    assert (await read(client, "/v1/usage"))["days"] == []
    for _ in range(2):
        assert (await client.post("/v1/chat/completions", json=HI)).status_code == 200
    caches = (await read(client, "/v1/caches"))["caches"]["main"]
    told = await read(client, "/v1/usage?days=2")
    (day,) = told["days"]
    assert day == {
        "day": told["today"], "name": "lamb", "is_provider": False, "requests": 2, "money": 0.0,
        "input": caches["prefilled_tokens"], "cached": caches["cached_tokens"], "output": caches["generated_tokens"],
    }  # fmt: skip
    assert day["cached"] > 0 < day["output"]
    assert told["providers"] == {}
    again = app_of(tmp_path, "", {"SHEPHERD_MODELS": str(tmp_path / "models")})
    async with loaded(again, lazy=True), client_of(again) as other:
        assert (await read(other, "/v1/usage"))["days"] == [day]


@pytest.mark.model
async def test_a_key_of_one_user_is_told_its_own_use_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keys = [Key.of("a", name="a", user="ann"), Key.of("b", name="b", user="bob"), Key.of("o", name="owner")]
    cost = "prices = { input = 1.0, output = 1.0 }\n"
    async with scripted("openai.chat", lambda heard: Said("Yes.")) as provider:
        row = f'[providers.mine]\ntype = "openai_compat"\nbase_url = "{provider.url}"\nmodel = "m"\n{cost}'
        app = app_of(tmp_path, f'{row}[models.lamb]\npath = "embedded"\n[caches.main]\nmodel = "lamb"\n')
        async with loaded(app):
            server = create_app(app, api_keys=keys)
            async with client_of(server, "a") as ann, client_of(server, "b") as bob, client_of(server, "o") as owner:
                for client, model in ((ann, "lamb"), (ann, "mine/m"), (bob, "lamb"), (bob, "lamb"), (owner, "lamb")):
                    answer = await client.post("/v1/chat/completions", json=HI | {"model": model})
                    assert answer.status_code == 200, answer.text
                id = (await ann.post("/v1/chats", json={"model": "mine"})).json()["id"]
                await ann.post(f"/v1/chats/{id}/turn", json={"action": "send", "text": "Hi"})
                await until(lambda: not app.chats.running)
                told = [await read(client, "/v1/usage?days=1") for client in (ann, bob, owner)]
    rows = [{row["name"]: row["requests"] for row in each["days"]} for each in told]
    assert rows == [{"lamb": 1, "mine": 2}, {"lamb": 2}, {"lamb": 4, "mine": 2}]
    assert [[*each["providers"]] for each in told] == [[], [], ["mine"]]
    assert next(row for row in told[0]["days"] if row["is_provider"])["money"] > 0


@pytest.mark.parametrize("days", ["0", "63", "-1", "ten", "1e1", "٣", "", "9" * 5000])
async def test_days_that_are_not_kept_are_refused_by_name(days: str) -> None:
    service = ScriptedService(saying("a"))
    async with client_of(service) as client:
        answer = await client.get("/v1/usage", params={"days": days})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == "days"
        assert "a whole number from 1 to 62" in error["message"]
        assert len(error["message"]) < 300
        assert (await client.get("/v1/usage?days=62")).status_code == 200
        assert service.n_days == 62


async def test_a_key_of_one_user_beside_others_sees_no_path_and_manages_nothing() -> None:
    keys = [Key(user, hashlib.sha256(f"{user}{SECRET}".encode()).digest(), user=user or None) for user in ("", "ann")]
    service, found = ScriptedService(saying("a")), list[Any]()
    for key in keys:
        async with client_of(service, f"{key.name}{SECRET}", api_keys=keys) as client:
            found.append(await read(client, "/v1/models/here"))
    own, other = found
    assert (own["models"][0]["path"], own["manages"], own["refusal"]) == ("/models/fake.gguf", True, "")
    assert (other["models"][0]["path"], other["manages"]) == (None, False)
    assert 'user "ann" only' in other["refusal"]
