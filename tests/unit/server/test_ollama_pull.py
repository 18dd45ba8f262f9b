"""`/api/pull` with Ollama's own client, from a registry on loopback into the folder of a real program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest
from tests.fakes.hub import Cut, Hub, Lie, Slow, Status
from tests.in_process import client_of
from tests.own_app import app_of, loaded
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.app.app import App
from shepherd.models import catalog, pulled

LAMB = catalog.embedded().read_bytes()


class Pulling(ScriptedService):
    """Answers from a script, and pulls as the real program does."""

    def __init__(self, app: App) -> None:
        super().__init__(saying("a"))
        self._app = app

    async def pull(self, name: str, show: Any) -> None:
        await self._app.catalogue.pull(name, show)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        hub.put_ollama("library/lamb/latest", {"model": LAMB, "license": b"Apache-2.0"})
        hub.put_repo("acme/lamb-GGUF", {"lamb-F16.gguf": LAMB})
        yield hub


@pytest.fixture
async def service(hub: Hub, tmp_path: Path) -> Any:
    env: Mapping[str, str] = {"SHEPHERD_MODELS": str(tmp_path / "models"), "HF_ENDPOINT": hub.url}
    app = app_of(tmp_path, '[server]\nmanage_models = true\npull_hosts = ["127.0.0.1"]\n', env)
    async with loaded(app, lazy=True):
        yield Pulling(app)


async def test_a_pull_reports_every_step_as_ollama_does(
    listening: Listening, hub: Hub, service: Pulling, tmp_path: Path
) -> None:
    async with listening(service) as url, ollama.AsyncClient(host=url) as client:
        lines = [line async for line in await client.pull(f"ollama:{hub.host}/library/lamb", stream=True)]
    (model,) = pulled.pulled_models(tmp_path / "models")
    digest = f"sha256:{model.files[0].sha256}"
    assert lines[0].status == "pulling manifest"
    of_model = [line for line in lines if line.digest == digest]
    assert {line.status for line in of_model} == {f"pulling {digest[7:19]}"}
    assert (of_model[-1].total, of_model[-1].completed) == (len(LAMB), len(LAMB))
    counts = [line.completed or 0 for line in of_model]
    assert counts == sorted(counts)
    assert [line.status for line in lines[-3:]] == ["verifying sha256 digest", "writing manifest", "success"]
    assert model.path.read_bytes() == LAMB


async def test_a_pull_without_a_stream_answers_once(listening: Listening, hub: Hub, service: Pulling) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.post("/api/pull", json={"name": "hf:acme/lamb-GGUF:F16", "stream": False})
        assert (answer.status_code, answer.json()) == (200, {"status": "success"})
        answer = await client.post("/api/pull", json={"name": "hf:acme/lamb-GGUF:F16"})
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert json.loads(answer.text.splitlines()[-1]) == {"status": "success"}


REFUSED = {
    "hf.co/acme/none": (403, "has no repository acme/none"),
    "hf:acme/lamb-GGUF:Q4_0": (404, "has no 'Q4_0'; it has F16"),
    "ollama:{host}/library/none": (404, "has no model"),
    "https://h/page.html": (400, "not the address of a file whose name ends in .gguf"),
    "../../etc": (400, "names no model to pull"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_pulled_has_a_status_of_its_own(
    listening: Listening, hub: Hub, service: Pulling, name: str
) -> None:
    status, sentence = REFUSED[name]
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for stream in (False, True):
            answer = await client.post("/api/pull", json={"model": name.format(host=hub.host), "stream": stream})
            assert answer.status_code == status
            assert sentence in answer.json()["error"]


async def test_a_failure_behind_the_first_line_is_the_last_line(
    listening: Listening, hub: Hub, service: Pulling, tmp_path: Path
) -> None:
    hub.fail("blobs", Cut(2_000_000), Lie(b"<html>", "text/html"))
    async with listening(service) as url, ollama.AsyncClient(host=url) as client:
        lines: list[str | None] = []

        async def pull() -> None:
            async for line in await client.pull(f"ollama:{hub.host}/library/lamb", stream=True):
                lines.append(line.status)

        with pytest.raises(ollama.ResponseError, match="is a web page, not a GGUF file"):
            await pull()
    assert any("trying again in" in str(status) for status in lines)
    assert "success" not in lines
    assert list(pulled.pulled_models(tmp_path / "models")) == []


async def test_a_client_that_leaves_ends_the_pull_and_the_next_goes_on(
    listening: Listening, hub: Hub, service: Pulling, tmp_path: Path
) -> None:
    hub.fail("blobs", Slow(200_000, 0.02))
    name = f"ollama:{hub.host}/library/lamb"
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        async with client.stream("POST", "/api/pull", json={"model": name}) as answer:
            async for line in answer.aiter_lines():
                if json.loads(line).get("completed"):
                    break
        assert list(pulled.pulled_models(tmp_path / "models")) == []
        hub.seen.clear()
        # It waits for the lock of the first pull, as long as that one has not ended.
        assert (await client.post("/api/pull", json={"model": name, "stream": False})).status_code == 200
    assert int(hub.ranges("blobs")[0].removeprefix("bytes=").partition("-")[0]) > 0


async def test_the_operator_must_allow_it(hub: Hub, tmp_path: Path) -> None:
    env = {"SHEPHERD_MODELS": str(tmp_path / "models"), "HF_ENDPOINT": hub.url}
    app = app_of(tmp_path, env=env)
    async with loaded(app, lazy=True), client_of(app) as client:
        for stream in (False, True):
            answer = await client.post("/api/pull", json={"model": "hf:acme/lamb-GGUF", "stream": stream})
            assert answer.status_code == 403
            assert "manage_models = true" in answer.json()["error"]
    assert hub.seen == []


async def test_a_hub_that_refuses_for_long_is_429_with_its_time(
    listening: Listening, hub: Hub, service: Pulling
) -> None:
    hub.fail("manifests", Status(429, {"Retry-After": "900"}))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.post("/api/pull", json={"model": f"ollama:{hub.host}/library/lamb"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "900")


CLOSED = (
    "ollama:{host}/library/lamb", "http://{host}/files/lamb.gguf", "http://localhost:{port}/files/lamb.gguf",
    "http://[::1]:{port}/files/lamb.gguf", "http://[::ffff:127.0.0.1]:{port}/files/lamb.gguf",
    "http://2130706433:{port}/files/lamb.gguf", "http://10.0.0.1/lamb.gguf", "http://192.168.1.1:8080/lamb.gguf",
    "http://169.254.169.254/latest/lamb.gguf", "http://0.0.0.0:{port}/files/lamb.gguf",
    "http://name:word@{host}/files/lamb.gguf", "ollama:localhost:{port}/library/lamb",
    "pypi:lamb",
)  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
async def test_a_client_reaches_no_private_address_with_a_pull(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.files["lamb.gguf"] = LAMB
    env = {"SHEPHERD_MODELS": str(tmp_path / "models"), "HF_ENDPOINT": hub.url, "PIP_INDEX_URL": f"{hub.url}/simple"}
    env |= {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}
    app = app_of(tmp_path, "[server]\nmanage_models = true\n", env)
    port = hub.host.partition(":")[2]
    async with loaded(app, lazy=True), client_of(app) as client:
        answer = await client.post("/api/pull", json={"model": name.format(host=hub.host, port=port), "stream": False})
    assert answer.status_code == 403, answer.text
    assert "is not an address of the public internet, and may not be called" in answer.json()["error"]
    assert "tools.http" not in answer.text
    assert hub.seen == []


@pytest.mark.parametrize("to", ["http://localhost:{port}/files/other", "http://10.0.0.1/x", "http://169.254.169.254/"])
async def test_a_redirect_of_a_pull_leads_to_no_private_address(
    listening: Listening, hub: Hub, service: Pulling, to: str
) -> None:
    to = to.format(port=hub.host.partition(":")[2])
    for kind in ("manifests", "blobs"):
        hub.fail(kind, Status(307, {"Location": to}))
        async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
            answer = await client.post("/api/pull", json={"model": f"ollama:{hub.host}/library/lamb", "stream": False})
        assert (answer.status_code, "may not be called" in answer.text) == (403, True), answer.text
    assert not any("other" in path for _, path, _ in hub.seen)


async def test_what_the_operator_opens_is_pulled_also_by_its_name(
    listening: Listening, hub: Hub, service: Pulling, tmp_path: Path
) -> None:
    hub.files["lamb.gguf"] = LAMB
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.post("/api/pull", json={"model": f"http://{hub.host}/files/lamb.gguf", "stream": False})
    assert answer.json() == {"status": "success"}
    (_, _, headers), *_ = [each for each in hub.seen if "/files/" in each[1]]
    assert headers["Host"] == hub.host
    assert [model.path.read_bytes() for model in pulled.pulled_models(tmp_path / "models")] == [LAMB]
