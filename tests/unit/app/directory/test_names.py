"""Names in the running program: aliases, names that clients have given, and pulled models that come and go."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import ollama
import pytest
from tests.conftest import LAMB
from tests.fakes.hub import Hub
from tests.own_app import loaded
from tests.own_server import listening
from tests.proven import proven
from tests.providers_replay import replaying
from tests.unit.backends.cloud.providing import WORDS, spoken
from tests.unit.engine.adapter_files import write_lora

from shepherd import config as configuration
from shepherd.app.app import App
from shepherd.core import Event, Message, Request, UnknownModel, fold
from shepherd.models import pulled
from shepherd.models.gguf import read_header
from shepherd.models.pulled import ModelFile, Origin, PulledModel

pytestmark = pytest.mark.model

HELLO = "Hello! How can I help you?"
PLACE, NAME = "hf/owner/lamb-GGUF/lamb-Q8_0", "hf:owner/lamb-GGUF:Q8_0"
MANAGED = '[server]\nmanage_models = true\npull_hosts = ["127.0.0.1"]\n'


def put(root: Path, place: str = PLACE, name: str = NAME, origin: Origin = "hf") -> PulledModel:
    """The embedded model as a pull leaves it."""
    folder = root / place
    folder.mkdir(parents=True)
    shutil.copy(LAMB, folder / "lamb-Q8_0.gguf")
    content = LAMB.read_bytes()
    file = ModelFile("lamb-Q8_0.gguf", len(content), hashlib.sha256(content).hexdigest())
    model = PulledModel(name, origin, "https://x", "c0ffee", 1.5, folder, (file,))
    pulled.write_record(model)
    return model


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "models"


@asynccontextmanager
async def running(tmp_path: Path, text: str = "", **env: str) -> AsyncIterator[App]:
    file = tmp_path / "shepherd.toml"
    file.write_text(text)
    env |= {"SHEPHERD_MODELS": str(tmp_path / "models"), "HOME": str(tmp_path)}
    made = configuration.load(flags={"threads": 1}, env=env, cwd=tmp_path, user_dir=tmp_path, file=file)
    app = App(made, cache_folder=proven(tmp_path / "cache"), env=env, isolates=False)
    async with loaded(app):
        yield app


@asynccontextmanager
async def client_of(app: App, **options: Any) -> AsyncIterator[Any]:
    async with listening(app, **options) as url, ollama.AsyncClient(url) as client:
        yield client


async def ask(app: App, model: str, endpoint: str | None = "") -> str:
    events: list[Event] = []
    stream = (
        app.dispatcher.stream(Request(model, (Message.user("Hello!"),)), endpoint=None)
        if endpoint is None
        else app.conversations.stream(Request(model, (Message.user("Hello!"),)), endpoint=endpoint)
    )
    async with aclosing(stream) as taken:
        async for event in taken:
            events.append(event)
    return fold(events).message.text


def jobs(app: App) -> dict[str, int]:
    return {name: stats.jobs for name, stats in app.stats().items() if stats.jobs}


async def listed(client: Any) -> list[str]:
    return [model.model for model in (await client.list()).models]


TWO = (
    '[models.one]\npath = "embedded"\n[models.two]\npath = "embedded"\n[caches.one]\nmodel = "one"\nn_ctx = 512\n'
    '[caches.two]\nmodel = "two"\nn_ctx = 512\n[aliases]\nfast = "daily"\ndaily = "two"\n'
)
THREE = TWO.replace("caches.two", "caches.second").replace('daily = "two"', 'daily = "second"')


async def test_an_alias_may_stand_for_a_cache_or_a_providers_model(tmp_path: Path) -> None:
    async with replaying(*(spoken() for _ in range(4))) as server:
        text = f'{THREE}gpt = "far/gpt-5"\n[providers.far]\ntype = "openai_compat"\nbase_url = "{server.url}"\n'
        async with running(tmp_path, text) as app:
            assert await ask(app, "fast") == HELLO
            assert jobs(app) == {"second": 1}
            vectors = await app.dispatcher.embed("fast", ["Hello"])
            assert vectors.vectors == (await app.dispatcher.embed("two", ["Hello"])).vectors
            cards = {card.id: (card.stands_for, card.loaded) for card in app.catalogue.models()}
            assert cards["fast"] == ("second", True)
            assert cards["gpt"] == ("far/gpt-5", False)
            for endpoint in ("", None):
                assert await ask(app, "GPT", endpoint) == "".join(WORDS)
            session = app.conversations.session()
            assert (await app.conversations.switch(session, "gpt")).model == "gpt-5"
            async with aclosing(session.chat("Hello")) as events:
                assert [event async for event in events]
            assert [each.json["model"] for each in server.requests] == ["gpt-5"] * 3


async def test_what_makes_vectors_is_pulled_like_any_other(tmp_path: Path, root: Path) -> None:
    put(root)
    async with running(tmp_path) as app:
        vectors = await app.dispatcher.embed(NAME, ["Hello"])
        assert vectors.model == NAME
        assert vectors.vectors == (await app.dispatcher.embed("lamb", ["Hello"])).vectors


async def test_pulled_models_come_and_go_without_a_restart(tmp_path: Path, root: Path) -> None:
    async with running(tmp_path) as app, client_of(app) as client:
        assert await listed(client) == ["lamb"]
        with pytest.raises(ollama.ResponseError, match="not found") as caught:
            await client.show(NAME)
        assert caught.value.status_code == 404
        model = put(root)
        assert await listed(client) == ["lamb", NAME]
        shown = await client.show(f"hf.co/{NAME.removeprefix('hf:')}")
        assert shown.details.quantization_level
        assert jobs(app) == {}
        assert await ask(app, NAME) == await ask(app, "hf.co/owner/lamb-GGUF:q8_0") == HELLO
        assert jobs(app) == {NAME: 2}
        put(root, "ollama/h/library/tiny/1b", "ollama:tiny:1b", "ollama")
        assert await ask(app, "tiny:1b") == HELLO
        assert jobs(app) == {NAME: 2, "ollama:tiny:1b": 1}
        pulled.remove(root, model.folder)
        assert NAME in await listed(client)  # it is in memory, and answers
        await app.catalogue.unload(NAME)
        assert await listed(client) == ["lamb", "ollama:tiny:1b"]
        assert await ask(app, "something else") == HELLO
        assert jobs(app) == {"ollama:tiny:1b": 1, "main": 1}


async def test_routes_of_the_user_say_all_that_there_is(tmp_path: Path, root: Path) -> None:
    put(root)
    async with running(tmp_path, '[[routes]]\nmodel = "lamb"\ncache = "main"\n') as app:
        with pytest.raises(UnknownModel):
            await ask(app, NAME)
        await app.catalogue.look_again()
        assert [card.id for card in app.catalogue.models()] == ["lamb"]


async def test_a_pulled_file_that_is_no_model_is_left_out(tmp_path: Path, root: Path) -> None:
    model = put(root)
    model.path.write_bytes(b"<html>".ljust(model.path.stat().st_size))
    async with running(tmp_path) as app:
        await app.catalogue.look_again()
        assert [card.id for card in app.catalogue.models()] == ["lamb"]


async def test_a_copy_survives_a_restart_and_its_model(tmp_path: Path, root: Path) -> None:
    put(root)
    async with running(tmp_path, MANAGED) as app, client_of(app) as client:
        await client.copy(NAME, "mine")
        await client.copy("mine", "also")
        assert await ask(app, "mine") == HELLO
        assert jobs(app) == {NAME: 1}
    async with running(tmp_path, MANAGED) as app, client_of(app) as client:
        assert await listed(client) == ["lamb", NAME, "mine", "also"]
        assert (await client.show("mine")).details.parent_model == NAME
        with pytest.raises(ollama.ResponseError, match="'mine', 'also' would lose its model"):
            await client.delete(NAME)
        await client.delete("also")
        await client.delete("mine:latest")
        assert await listed(client) == ["lamb", NAME]
        assert await ask(app, NAME) == HELLO
        await client.delete(NAME)
        assert await listed(client) == ["lamb"]
        assert list(pulled.pulled_models(root)) == []
        for act in (client.delete(NAME), client.copy(NAME, "x"), client.delete("nothing")):
            with pytest.raises(ollama.ResponseError, match=r"^model '.+' not found") as caught:
                await act
            assert caught.value.status_code == 404


async def test_what_the_configuration_names_is_not_changed_by_a_client(tmp_path: Path, root: Path) -> None:
    model = put(root)
    text = (
        f'{MANAGED}[models.base]\npath = "embedded"\n[models.here]\npath = "{model.path}"\n[aliases]\nfast = "here"\n'
    )
    async with running(tmp_path, text) as app, client_of(app) as client:
        for name in ("base", "here", "fast", NAME):
            with pytest.raises(ollama.ResponseError, match="stands in the configuration") as caught:
                await client.delete(name)
            assert caught.value.status_code == 400
        for name in ("base", "fast"):
            with pytest.raises(ollama.ResponseError, match="is a name of the configuration"):
                await client.copy("here", name)
        with pytest.raises(ollama.ResponseError, match=f"'{NAME}' cannot be another name of a model"):
            await client.copy("base", NAME)
        for name in ("", "a b", "x" * 300, "*"):
            with pytest.raises(ollama.ResponseError) as caught:
                await client.copy("base", name)
            assert caught.value.status_code == 400
        assert (tmp_path / "shepherd.toml").read_text() == text
        assert model.path.exists()
        assert await listed(client) == ["base", "here", "fast"]


async def test_without_the_operators_word_nothing_is_changed(tmp_path: Path, root: Path) -> None:
    model = put(root)
    async with running(tmp_path) as app, client_of(app) as client:
        for act in (client.copy(NAME, "mine"), client.delete(NAME), client.delete("nothing")):
            with pytest.raises(ollama.ResponseError, match=r"manage_models = true in \[server\]") as caught:
                await act
            assert caught.value.status_code == 403
    assert model.path.exists()
    assert sorted(each.name for each in root.iterdir()) == ["hf"]


async def test_a_model_with_an_adapter_is_listed_copied_and_kept(tmp_path: Path) -> None:
    """With Ollama's own client: a copy of its name computes with the adapter; what the configuration names stays."""
    law = write_lora(tmp_path / "law.gguf", read_header(LAMB), seed=3)
    text = (
        f'{MANAGED}[models.lamb]\npath = "embedded"\n[[models.lamb.adapters]]\npath = "{law}"\napply = false\n'
        '[aliases]\nlawyer = "lamb:law"\n'
    )
    async with running(tmp_path, text) as app, client_of(app) as client:
        here = ["lamb", "lamb:law", "lawyer"]
        assert await listed(client) == here
        await client.copy("lawyer", "mine")
        await client.copy("lamb:law", "also")
        assert await listed(client) == [*here, "mine", "also"]
        assert (await client.show("mine")).details.parent_model == "lamb:law"
        answers = {name: await ask(app, name) for name in ("lamb", "lamb:law", "lawyer", "mine", "also")}
        assert answers.pop("lamb") == HELLO
        assert len(set(answers.values())) == 1
        assert HELLO not in answers.values()
        with pytest.raises(ollama.ResponseError, match="is a name of the configuration"):
            await client.copy("lamb", "lawyer")
        for name, near in (("lamb:lwa", "lamb:law"), ("lawyr", "lawyer")):
            with pytest.raises(ollama.ResponseError, match=f"not found; did you mean .*'{near}'"):
                await client.copy(name, "x")
        for name in ("lamb:law", "lawyer"):
            with pytest.raises(ollama.ResponseError, match="stands in the configuration"):
                await client.delete(name)
        await client.delete("mine")
        await client.delete("also")
        assert await listed(client) == here


async def test_a_model_that_a_client_pulls_answers_at_once(tmp_path: Path) -> None:
    """With Ollama's own client: pulled, listed, asked, copied, the copy asked, deleted; the server goes on."""
    with Hub() as hub:
        hub.put_ollama("library/lamb/latest", {"model": LAMB.read_bytes()})
        async with running(tmp_path, MANAGED) as app, client_of(app) as client:
            name = f"ollama:{hub.host}/library/lamb"
            assert (await client.pull(name)).status == "success"
            (here,) = [each for each in await listed(client) if "library/lamb" in str(each)]
            assert (await client.chat(here, messages=[{"role": "user", "content": "Hello!"}])).message.content == HELLO
            await client.copy(here, "mine")
            assert (
                await client.chat("mine", messages=[{"role": "user", "content": "Hello!"}])
            ).message.content == HELLO
            await client.delete("mine")
            await client.delete(here)
            assert not [each for each in await listed(client) if "library/lamb" in str(each)]
