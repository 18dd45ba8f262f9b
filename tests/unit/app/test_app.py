"""The composition root: what is opened, in which order, and what is refused before anything is loaded; and models that
are loaded when they are asked for."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx2
import psutil
import pytest
from tests.fake_engine import in_process
from tests.in_process import client_of
from tests.in_time import until
from tests.own_app import loaded
from tests.proven import proven

import shepherd
from shepherd import config as configuration
from shepherd.app.app import App
from shepherd.app.directory.entries import Machine, ModelRegistry
from shepherd.app.files import compactions_file
from shepherd.app.loading import LoadProgress
from shepherd.core import (
    Completion,
    ConfigError,
    EngineDown,
    EngineError,
    Event,
    Finished,
    InvalidRequest,
    MemoryFailure,
    Message,
    Request,
    Started,
    TextDelta,
    UnknownModel,
    fold,
)
from shepherd.core.pairs import Pairs
from shepherd.engine.llamacpp.runtime import LlamaRuntime
from shepherd.engine.llamacpp.selftest import build_id
from shepherd.engine.scheduler import EngineOptions
from shepherd.memory.records import Entry
from shepherd.models import gguf
from shepherd.server.endpoints.ollama import stream_load

pytestmark = pytest.mark.model


def make(tmp_path: Path, text: str = "", **flags: Any) -> App:
    file = tmp_path / "shepherd.toml"
    file.write_text(text)
    config = configuration.load(flags={"threads": 1, **flags}, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    return App(config, cache_folder=proven(tmp_path / "cache"), env={}, isolates=False)


async def ask(app: App, model: str = "lamb", text: str = "Hello!", endpoint: str = "") -> str:
    events: list[Event] = []
    async with aclosing(app.conversations.stream(Request(model, (Message.user(text),)), endpoint=endpoint)) as stream:
        async for event in stream:
            events.append(event)
    return fold(events).message.text


def jobs(app: App) -> dict[str, int]:
    return {name: stats.jobs for name, stats in app.stats().items()}


async def test_the_collector_leaves_out_what_is_loaded_until_it_is_closed(tmp_path: Path) -> None:
    app = make(tmp_path)
    gc.unfreeze()
    await app.load()
    assert gc.get_freeze_count() > 10_000
    await app.aclose()
    assert gc.get_freeze_count() == 0


async def test_closing_while_loading_is_orderly(tmp_path: Path) -> None:
    app = make(tmp_path)
    loading = asyncio.create_task(app.load())
    await asyncio.sleep(0)
    await app.aclose()
    await loading


async def test_two_caches_share_one_models_weights_and_answer_at_once(tmp_path: Path) -> None:
    caches = '[models.lamb]\npath = "embedded"\n[caches.a]\nmodel = "lamb"\nn_ctx = 512\n[caches.b]\nmodel = "lamb"\n'
    routes = '[[routes]]\nmodel = "one"\ncache = "a"\n[[routes]]\nmatch = "*"\ncache = "b"\n'
    app = make(tmp_path, caches + routes)
    seen: list[LoadProgress] = []
    await app.load(seen.append)
    assert sum(loading.stage == "weights" and loading.fraction == 1.0 for loading in seen) == 1
    first, second = await asyncio.gather(ask(app, "one"), ask(app, "two"))
    assert first == second == "Hello! How can I help you?"
    assert {name: usage.used > 0 for name, usage in app.health().caches.items()} == {"a": True, "b": True}
    assert [stats.jobs for stats in app.stats().values()] == [1, 1]
    await app.clear("a")
    assert {name: usage.used > 0 for name, usage in app.health().caches.items()} == {"a": False, "b": True}
    await app.aclose()


CACHES = """
[models.lamb]
path = "embedded"
[caches.usual]
model = "lamb"
n_ctx = 512
[caches.exact]
model = "lamb"
n_ctx = 512
repeatable = true
[models.other]
path = "embedded"
load = "demand"
[caches.third]
model = "other"
n_ctx = 512
[providers.away]
type = "openai"
base_url = "http://127.0.0.1:9/v1"
api_key = "k"
"""


async def test_an_answer_that_must_be_repeatable_comes_from_such_a_cache_of_its_model_or_not_at_all(
    tmp_path: Path,
) -> None:
    async with loaded(make(tmp_path, CACHES)) as app:

        async def answered_by(model: str, repeatable: bool | None) -> str:
            before = jobs(app)
            request = Request(model, (Message.user("Hello!"),), max_tokens=1, repeatable=repeatable)
            async with aclosing(app.conversations.stream(request, endpoint="")) as events:
                async for _ in events:
                    pass
            (cache,) = [name for name, n in jobs(app).items() if n > before[name]]
            return cache

        for model in ("lamb", "usual"):
            assert [await answered_by(model, each) for each in (None, False, True)] == ["usual", "usual", "exact"]
        assert [await answered_by("exact", each) for each in (None, False, True)] == ["exact"] * 3
        with pytest.raises(InvalidRequest, match="no cache of the model 'other' gives repeatable answers") as raised:
            await answered_by("other", True)
        assert raised.value.field == "repeatable"
        with pytest.raises(InvalidRequest, match="come from models of this machine, and 'away' is a provider"):
            await answered_by("away/m", True)


@pytest.mark.parametrize("text", ["true", "false", "'auto'"])
async def test_the_engine_drafts_as_the_configuration_says(tmp_path: Path, text: str) -> None:
    async with loaded(make(tmp_path, f"speculate = {text}")) as app:
        (backend,) = app._backends().values()
        expected = {"true": True, "false": False}.get(text, EngineOptions().speculate)
        assert in_process(backend.engine)._scheduler._decode.drafting.speculates is expected


async def test_each_cache_has_its_draft_model_over_one_copy_of_its_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "shepherd.app.loading")
    model = '[models.lamb]\npath = "embedded"\ndraft = "embedded"\n'
    caches = "".join(f'[caches.{name}]\nmodel = "lamb"\nn_ctx = 512\n{more}' for name, more in (
        ("a", ""), ("b", "speculate = false\n"), ("c", 'draft = "none"\n')))  # fmt: skip
    async with loaded(make(tmp_path, model + caches)) as app:
        engines = [in_process(backend.engine) for backend in app._backends().values()]
        drafting = [engine._scheduler._decode.drafting for engine in engines]
        assert [each.speculates for each in drafting] == [True, False, False], "a draft model is there to draft"
        models = [each.model for each in drafting]
        assert models[0] is not None
        assert models[1] is not None
        assert models[2] is None
        one, two = (cast(LlamaRuntime, each._runtime)._weights for each in (models[0], models[1]))
        assert one is two
        assert one is not cast(LlamaRuntime, engines[0]._runtime)._weights
        assert await ask(app) == "Hello! How can I help you?"
        assert caplog.text.count("lamb.gguf drafts its answers, where that pays") == 2
    assert one.handle == 0, "it was freed"


async def test_a_library_that_crashed_in_the_self_test_runs_without_extra_buffers_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").mkdir()
    verdict = {"use_extra_bufts": False, "detail": "quantised models crash (SIGSEGV) with this build"}
    (tmp_path / "cache" / f"selftest-{build_id()}.json").write_text(json.dumps(verdict))
    async with loaded(make(tmp_path)) as app:
        assert "SIGSEGV" in caplog.text
        assert await ask(app) == "Hello! How can I help you?"


async def test_too_little_memory_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    app = make(tmp_path, context_size=2**31 - 1)
    seen: list[LoadProgress] = []
    with pytest.raises(ConfigError, match=r"GiB of memory.*is free.*smaller context"):
        await app.load(seen.append)
    assert not [loading for loading in seen if loading.stage == "weights"]
    await app.aclose()


async def test_another_back_end_is_refused_by_name(tmp_path: Path) -> None:
    app = make(tmp_path, backend="openai")
    with pytest.raises(ConfigError, match="OpenAI needs a key; set OPENAI_API_KEY"):
        await app.load()
    await app.aclose()
    app = make(tmp_path, backend="tensorrt")
    with pytest.raises(ConfigError, match=r"lamb\.gguf is a GGUF file, which llama\.cpp runs; .* trtllm-serve"):
        await app.load()
    await app.aclose()


async def test_a_conversation_in_python() -> None:
    async with shepherd.open("embedded") as session:
        said = ""
        for text in ("My name is Bob.", "What is my name?"):
            said = ""
            async for event in session.chat(text):
                if isinstance(event, TextDelta):
                    said += event.text
        assert "Bob" in said
        assert session.usage.cache_read > 0


async def test_a_conversation_in_python_has_the_tools_that_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.txt").write_text("The meeting is on Friday.")
    async with shepherd.open("embedded") as session:
        assert session.tools == ()
    async with shepherd.open("embedded", tools=["read_file"]) as session:
        assert [spec.name for spec in session.tools] == ["read_file"]
        async with aclosing(session.chat("Read plan.txt")) as events:
            said = "".join([event.text async for event in events if isinstance(event, TextDelta)])
        assert "Friday" in said


# Models on demand

SAID = "Hello! How can I help you?"
THREE = """
[models.main]
path = "embedded"
[models.other]
path = "embedded"
[models.third]
path = "embedded"
[caches.main]
model = "main"
n_ctx = 512
[caches.other]
model = "other"
n_ctx = 512
[caches.third]
model = "third"
n_ctx = 512
"""
DEMAND = THREE.replace("[models.other]", '[models.other]\nload = "demand"').replace(
    "[models.third]", '[models.third]\nload = "demand"'
)


def ids_loaded(app: App) -> list[str]:
    return [card.id for card in app.catalogue.models() if card.loaded]


async def test_the_loading_keys_reach_the_library(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = "mmap = false\nmlock = true\noverride_tensor = ['ffn_up=CPU']\nrepack = false\n"
    with caplog.at_level(logging.DEBUG, "shepherd.engine.llamacpp"):
        async with loaded(make(tmp_path, f"[models.m]\npath = 'embedded'\n{keys}")):
            pass
    assert "(load_mode = mlock)" in caplog.text
    assert re.search(r"tensor blk\.0\.ffn_up\.weight .* overridden to CPU", caplog.text)


async def test_without_routes_a_models_name_is_its_own_and_every_other_name_the_default(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, "[models.a]\npath = 'embedded'\n[models.b]\npath = 'embedded'\n")) as app:
        assert ids_loaded(app) == ["a"]
        assert await ask(app, "gpt-4") == SAID
        assert ids_loaded(app) == ["a"]
        for name in ("b", "B:latest", "claude-local-b"):
            assert await ask(app, name) == SAID
        assert ids_loaded(app) == ["a", "b"]
        assert jobs(app) == {"a": 1, "b": 3}
        assert app.totals().n_loads == {"a": 1, "b": 1}


async def test_models_come_when_they_are_asked_for_and_the_longest_unused_one_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needed = card_of(make(tmp_path, DEMAND), tmp_path).memory_bytes
    app = make(tmp_path, f"memory_budget = {2 * needed + needed // 2}\n{DEMAND}")
    async with loaded(app):
        assert ids_loaded(app) == ["main"]
        assert list(app.health().caches) == list(app.stats()) == ["main"]
        with caplog.at_level(logging.INFO):
            assert await ask(app, "other") == SAID
        assert "loading model 'other': 100 %" in caplog.text
        assert ids_loaded(app) == ["main", "other"]
        assert list(app.stats()) == ["main", "other"]
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert await ask(app, "third") == SAID
        assert "unloading model 'other': to make room for 'third'" in caplog.text
        assert ids_loaded(app) == ["main", "third"]
        async with aclosing(app.conversations.stream(Request("third", (Message.user("Hello!"),)))) as stream:
            await anext(stream)
            with pytest.raises(EngineDown, match=r"model 'other' needs .*MiB.*'main'.*'third'.*memory_budget"):
                await ask(app, "other")
        assert await ask(app, "other") == SAID
        assert ids_loaded(app) == ["main", "other"]


def card_of(app: App, tmp_path: Path) -> Any:
    """Of the default model, without loading anything."""
    made = ModelRegistry(app.config, env={}, machine=Machine(2**40))
    return next(entry.card for entry in made.entries.values())


async def test_many_first_requests_load_a_model_once(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        names = ["other", "third", "main", "other", "third", "other"]
        assert await asyncio.gather(*(ask(app, name) for name in names)) == [SAID] * len(names)
        assert app.totals().n_loads == {"main": 1, "other": 1, "third": 1}


async def test_names_that_only_routes_have_are_listed_too(tmp_path: Path) -> None:
    routes = """
[[routes]]
model = "gpt-4"
cache = "other"
[[routes]]
match = "*haiku*"
cache = "third"
[[routes]]
match = "*"
cache = "main"
"""
    async with loaded(make(tmp_path, DEMAND + routes)) as app:
        cards = {card.id: card for card in app.catalogue.models()}
        assert list(cards) == ["main", "other", "third", "gpt-4"]
        assert (cards["gpt-4"].n_ctx, cards["gpt-4"].loaded) == (512, False)
        assert await ask(app, "gpt-4") == SAID
        assert {card.id for card in app.catalogue.models() if card.loaded} == {"main", "other", "gpt-4"}


async def test_a_model_tells_its_other_names_and_its_tags(tmp_path: Path) -> None:
    routes = '[[routes]]\nmatch = "{}"\ncache = "main"\n'
    text = "[models.code]\npath = 'embedded'\ntags = ['small', 'chat']\n[caches.main]\nmodel = 'code'\n"
    app = make(tmp_path, text + "".join(map(routes.format, ("fim", "gpt-*", "*"))))
    async with loaded(app), client_of(app) as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
        assert (model["id"], model["aliases"], model["tags"]) == ("code", ["code", "fim"], ["small", "chat"])


async def test_a_request_says_how_long_its_model_stays(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:

        async def use(keep_alive: float) -> None:
            request = Request("other", (Message.user("Hello!"),), extra={"keep_alive": keep_alive})
            async with aclosing(app.conversations.stream(request)) as stream:
                _ = [event async for event in stream]

        await use(60.0)
        now = time.time()
        by_name = {card.id: card for card in app.catalogue.models()}
        assert 50 < (by_name["other"].expires or 0) - now < 70
        assert by_name["main"].expires is None
        await use(-1.0)
        assert {card.id: card.expires for card in app.catalogue.models()}["other"] is None
        await use(0.0)
        await until(lambda: ids_loaded(app) == ["main"])
        assert app.health().status == "ok"


async def test_a_request_that_says_nothing_loads_or_unloads_its_model(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:

        async def say_nothing(model: str, **extra: float) -> list[Event]:
            request = Request(model, extra=extra)
            return [event async for event in stream_load(app, request, "/api/chat")]

        assert await say_nothing("other") == [Started("other"), Finished("end")]
        assert ids_loaded(app) == ["main", "other"]
        assert await say_nothing("other", keep_alive=0) == [Started("other"), Finished("end")]
        assert ids_loaded(app) == ["main"]
        await say_nothing("other", keep_alive=0)
        assert app.totals().n_loads["other"] == 1


async def test_a_model_is_unloaded_by_name_and_comes_back(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        assert await app.catalogue.unload("MAIN:latest")
        assert not await app.catalogue.unload("main")
        assert ids_loaded(app) == []
        assert app.stats() == {}
        with pytest.raises(UnknownModel, match="known: main, other, third"):
            await app.catalogue.unload("nope")
        assert await ask(app, "main") == SAID
        assert ids_loaded(app) == ["main"]


async def test_what_a_model_has_counted_stays_when_it_is_unloaded(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, VECTORS)) as app:
        await ask(app, "main")
        await app.dispatcher.embed("vec", ["a cat", "a dog"])
        before = app.totals().caches
        assert before["main"].generated_tokens > 0
        vectors = before["vec (vectors)"]
        assert (vectors.decodes, vectors.decoded_chunks, vectors.generated_tokens) == (1, 2, 0)
        assert vectors.prefilled_tokens > 2
        assert vectors.prefill_s > 0
        for name in ("main", "vec"):
            assert await app.catalogue.unload(name)
        after = app.totals().caches
        assert app.stats() == {}
        assert (after["main"].n_ctx, after["main"].used, after["main"].sequences) == (0, 0, ())
        for name, was in before.items():
            assert (after[name].jobs, after[name].prefilled_tokens) == (was.jobs, was.prefilled_tokens)
        await ask(app, "main")
        now = app.totals().caches["main"]
        assert (now.jobs, now.live) == (2, 0)
        assert now.n_ctx == before["main"].n_ctx
        assert now.generated_tokens == 2 * before["main"].generated_tokens


async def test_a_file_that_is_not_there_refuses_its_own_requests_only_and_is_looked_for_again(
    tmp_path: Path, lamb: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = tmp_path / "late.gguf"
    text = DEMAND.replace(
        '[models.other]\nload = "demand"\npath = "embedded"', f'[models.other]\nload = "demand"\npath = "{late}"'
    )
    async with loaded(make(tmp_path, text)) as app:
        assert "model 'other' cannot be loaded now" in caplog.text
        assert await ask(app, "main") == SAID
        for _ in range(2):
            with pytest.raises(EngineError, match=r"model 'other' cannot be loaded: .*late\.gguf"):
                await ask(app, "other")
        late.write_bytes(lamb.read_bytes())
        assert await ask(app, "other") == SAID
        assert {card.id: card.n_ctx for card in app.catalogue.models()}["other"] == 512


async def test_background_requests_leave_the_main_conversation_where_it_is(
    tmp_path: Path, two_caches: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[LoadProgress] = []
    app = make(tmp_path, two_caches)
    with caplog.at_level(logging.INFO):
        await app.load(seen.append)
    assert sum(loading.stage == "weights" and loading.fraction == 1.0 for loading in seen) == 1
    history = [Message.user("My name is Bob.")]
    cached = []
    for turn in range(3):
        async with aclosing(app.conversations.stream(Request("claude-sonnet-4", tuple(history)))) as stream:
            reply = fold([event async for event in stream])
        cached.append((reply.usage.cache_read, reply.usage.prompt))
        history += [reply.message, Message.user(f"Question {turn}")]
        assert await ask(app, "claude-3-5-haiku-20241022", "Title for: " + "word " * 100 + str(turn))
    before = cached[0][1]
    for n_cached, n_prompt in cached[1:]:
        assert n_cached >= before - 2
        before = n_prompt
    assert jobs(app) == {"main": 3, "fast": 3}
    with pytest.raises(UnknownModel, match="known"):
        await ask(app, "gpt-4")
    await app.aclose()


async def test_prompts_are_counted_and_texts_cut_into_tokens(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        request = Request("main", (Message.user("Hello!"),), tools=())
        counted = await app.conversations.count(request)
        async with aclosing(app.conversations.stream(request)) as stream:
            events = [event async for event in stream]
        assert fold(events).usage.prompt == counted
        tokens = await app.dispatcher.tokenize("main", "Hello <|im_end|>", special=False, bos=False)
        assert b"".join(await app.dispatcher.detokenize("main", tokens)) == b"Hello <|im_end|>"
        assert len(await app.dispatcher.tokenize("main", "Hello <|im_end|>", special=True, bos=False)) < len(tokens)
        assert await app.conversations.count(Request("main", completion=Completion("Hello"))) >= 1
        with pytest.raises(InvalidRequest, match="99999999"):
            await app.dispatcher.detokenize("main", [99999999])


async def test_what_is_recalled_is_counted_with_the_prompt(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, f"[memory]\ndatabase_path = '{tmp_path / 'm.db'}'\n")) as app:
        store = app.memory("ann")
        assert store is not None
        await asyncio.to_thread(store.adopt, "Answer in French.")
        request = Request("lamb", (Message.user("Hello!"),), user="ann", recall=True)
        plain = await app.conversations.count(Request("lamb", request.messages))
        async with aclosing(app.conversations.stream(request)) as stream:
            reply = fold([event async for event in stream])
        assert reply.usage.prompt > plain
        assert await app.conversations.count(request) == reply.usage.prompt


VECTORS = """
[models.main]
path = "embedded"
[models.vec]
path = "embedded"
pooling = "mean"
"""


async def test_vectors_come_from_the_model_that_is_named_or_else_from_the_one_made_for_them(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, VECTORS)) as app:
        assert ids_loaded(app) == ["main"]
        kinds = {card.id: (card.kind, card.capabilities) for card in app.catalogue.models()}
        assert kinds["vec"] == ("embedding", ("embedding",))
        assert kinds["main"][0] == "chat"
        made = await app.dispatcher.embed("text-embedding-3-small", ["a cat", "a dog"])
        assert (made.model, len(made.vectors)) == ("vec", 2)
        assert sum(value * value for value in made.vectors[0]) == pytest.approx(1, abs=1e-5)
        assert ids_loaded(app) == ["main", "vec"]
        assert (await app.dispatcher.embed("", ["a cat"])).model == "vec"
        own = await app.dispatcher.embed("main", ["a cat"], dimensions=8)
        assert (own.model, len(own.vectors[0])) == ("main", 8)
        assert await app.catalogue.unload("main")
        with pytest.raises(InvalidRequest, match=r"'vec' makes vectors of texts and cannot chat.*/v1/embeddings"):
            await ask(app, "vec")
        tokens = await app.dispatcher.tokenize("vec", "a cat<|im_end|>", special=True, bos=True)
        assert b"".join(await app.dispatcher.detokenize("vec", tokens)) == b"a cat<|im_end|>"


async def test_vectors_of_tokens_have_a_path_with_a_form_for_them(tmp_path: Path) -> None:
    app = make(tmp_path, VECTORS.replace("mean", "none"))
    async with loaded(app), client_of(app) as client:
        body = {"model": "vec", "input": ["a cat", "a black dog"]}
        made = (await client.post("/embeddings", json=body)).json()
        assert [each["index"] for each in made] == [0, 1]
        n_tokens = [len(await app.dispatcher.tokenize("vec", text, bos=True)) for text in body["input"]]
        assert [len(each["embedding"]) for each in made] == n_tokens
        lengths = [sum(number**2 for number in vector) for each in made for vector in each["embedding"]]
        assert all(abs(length - 1) > 1e-3 for length in lengths), "they are as the model computes them"
        for path in ("/v1/embeddings", "/api/embed"):
            refused = await client.post(path, json=body)
            assert refused.status_code == 400
            assert "pooling none" in refused.text
            assert "/embeddings" in refused.text
        single = await client.post("/embeddings", json={"model": "main", "input": "a"})
        assert single.json()["object"] == "list"


async def test_the_memorys_model_makes_vectors_for_clients_and_stays_with_the_memory(
    tmp_path: Path, lamb: Path
) -> None:
    text = f"{DEMAND}[memory]\nembedding_model = '{lamb}'\ndatabase_path = '{tmp_path / 'm.db'}'\n"
    async with loaded(make(tmp_path, text)) as app:
        assert ids_loaded(app) == ["main", "lamb"]
        assert (await app.dispatcher.embed("", ["a"])).model == "lamb"
        await app.catalogue.unload("lamb")
        request = Request("main", (Message.user("I keep sheep."),), user="ann", archive=True, max_tokens=4)
        async with aclosing(app.conversations.stream(request)) as stream:
            _ = [event async for event in stream]
        store = app.memory("ann")
        assert store is not None
        await asyncio.to_thread(store.embed)
        assert await asyncio.to_thread(store.search, "sheep")
        removed = await app.forget("ann", matching="sheep")
        assert removed
        assert ids_loaded(app) == ["main", "lamb"]


async def test_without_a_model_for_vectors_the_refusal_says_how_to_configure_one(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        with pytest.raises(InvalidRequest, match=r"no model that makes vectors is configured; add one") as caught:
            await app.dispatcher.embed("", ["a"])
        assert caught.value.status == 400
        with pytest.raises(InvalidRequest, match="'nope' does not exist") as caught:
            await app.dispatcher.embed("nope", ["a"])
        assert caught.value.status == 404


async def test_a_model_that_only_makes_vectors_can_be_served_alone(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, "[models.vec]\npath = 'embedded'\npooling = 'last'\n")) as app:
        assert (app.conversations.active.cache, app.health().status) == ("", "ok")
        assert len((await app.dispatcher.embed("x", ["a"])).vectors) == 1
        with pytest.raises(ConfigError, match="cannot chat"):
            app.conversations.session()


async def test_an_unloaded_model_finds_its_conversations_again_on_disk_unless_they_were_cleared(tmp_path: Path) -> None:
    kv = f"[kv]\ndisk = true\nfolder = '{tmp_path / 'kv'}'\n"
    async with loaded(make(tmp_path, kv + DEMAND)) as app:
        text = "Tell me about sheep. " * 20

        async def cached() -> int:
            async with aclosing(
                app.conversations.stream(Request("other", (Message.user(text),), max_tokens=4))
            ) as stream:
                return fold([event async for event in stream]).usage.cache_read

        assert await cached() == 0
        await app.catalogue.unload("other")
        assert list((tmp_path / "kv").glob("*.kv"))
        assert await cached() > 50
        await app.catalogue.unload("other")
        await app.clear("other")
        assert not list((tmp_path / "kv").glob("*.kv"))
        assert await cached() == 0


async def test_cards_tell_what_a_model_is_before_it_is_loaded(tmp_path: Path, lamb: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        main, other, _ = app.catalogue.models()
        assert (main.loaded, other.loaded) == (True, False)
        assert (other.n_ctx, other.architecture, other.parameters) == (
            512,
            "llama",
            f"{gguf.read_header(lamb).n_params / 1e6:.1f}M",
        )
        assert other.n_bytes == lamb.stat().st_size
        assert other.capabilities == ("completion", "tools")
        assert "im_start" in other.template
        assert other.memory_bytes > other.n_bytes
        assert other.expires is None


async def test_the_memory_of_what_is_loaded_is_about_what_was_computed(tmp_path: Path) -> None:
    """The estimate is what the budget is kept with: it may be too high, and must not be far too low."""
    before = psutil.Process().memory_info().rss
    async with loaded(make(tmp_path, THREE)) as app:
        told = sum(card.memory_bytes for card in app.catalogue.models())
        assert psutil.Process().memory_info().rss - before < 2 * told


async def test_a_default_model_may_wait_for_its_first_request_where_a_server_wants_that(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, '[models.lamb]\npath = "embedded"\nload = "demand"\n'), lazy=True) as app:
        assert ids_loaded(app) == []
        assert (app.health().status, app.conversations.active.n_ctx, app.conversations.active.model) == (
            "ok",
            4096,
            "lamb",
        )
        assert await ask(app) == SAID
    async with loaded(make(tmp_path, '[models.lamb]\npath = "embedded"\nload = "demand"\n')) as app:
        assert ids_loaded(app) == ["lamb"]


# ---- a memory whose disk is full


ARCHIVING = '[[routes]]\nmatch = "*"\ncache = "lamb"\nuser = "ann"\narchive = true\n[memory]\ndatabase_path = "m.db"\n'


@pytest.mark.parametrize("required", [False, True])
async def test_over_http_a_full_disk_is_seen_in_the_health_the_metrics_and_the_answer(
    tmp_path: Path, required: bool
) -> None:
    async with loaded(make(tmp_path, f"{ARCHIVING}required = {str(required).lower()}\n", model="embedded")) as app:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}

        async def ask_over_http(**fields: Any) -> httpx2.Response:
            return await client.post("/v1/chat/completions", json=body | fields)

        async with client_of(app) as client:
            store = app.memory("ann")
            assert store is not None
            store.write(lambda connection: connection.pragma("max_page_count", 1))
            for size in (4000, 400, 40, 4):  # to the last free byte of its pages
                with contextlib.suppress(MemoryFailure):
                    while True:
                        store.archive([Entry("user", os.urandom(size).hex())])
            n_archived = app.totals().n_archived
            assert (await client.get("/health")).json()["status"] == "ok"
            for stream in (False, True):
                answer = await ask_over_http(stream=stream)
                assert answer.status_code == (500 if required else 200)
                assert answer.headers.get("x-shepherd-archived") == (None if required else "false")
                assert ("its disk is full" in answer.text) == required
            health = await client.get("/health")
            found = health.json()
            assert (health.status_code, found["status"], found["backend_connected"]) == (200, "degraded", True)
            assert found["detail"].startswith("messages are not archived")
            assert str(tmp_path) not in health.text
            figures = (await client.get("/metrics")).text
            assert app.totals().n_archived == n_archived
            failures = next(line for line in figures.splitlines() if line.startswith("shepherd_archive_failures_total"))
            assert float(failures.split()[1]) >= 2
            store.write(lambda connection: connection.pragma("max_page_count", 2**30))
            answer = await ask_over_http()
            assert (answer.status_code, "x-shepherd-archived" in answer.headers) == (200, False)
            assert (await client.get("/health")).json()["status"] == "ok"
            assert app.totals().n_archived == n_archived + 2


async def test_an_answer_that_is_archived_in_nobodys_memory_says_so(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
    made = make(tmp_path, ARCHIVING.replace('user = "ann"\n', ""), model="embedded")
    async with loaded(made) as app, client_of(app) as client:
        for stream in (False, True):
            answer = await client.post("/v1/chat/completions", json={**body, "stream": stream})
            assert (answer.status_code, answer.headers["x-shepherd-archived"]) == (200, "false")
        named = await client.post("/v1/chat/completions", json=body, headers={"x-shepherd-user": "local"})
        assert (named.status_code, "x-shepherd-archived" in named.headers) == (200, False)


def test_compacted_conversations_are_beside_the_memory_unless_nothing_is_kept_on_the_disk(tmp_path: Path) -> None:
    env = {"RAG_DB_PATH": str(tmp_path / "env" / "memory.db")}
    off = "[memory]\nenable_archival = false\n"
    assert compactions_file(make(tmp_path).config, env) == tmp_path / "env" / "compactions.db"
    named = f'[memory]\ndatabase_path = "{tmp_path / "named" / "memory.db"}"\n'
    assert compactions_file(make(tmp_path, named).config, env) == tmp_path / "named" / "compactions.db"
    assert compactions_file(make(tmp_path, off).config, env) is None
    assert compactions_file(make(tmp_path, f"{off}[kv]\ndisk = true\n").config, env) is not None


# -- reranking ---------------------------------------------------------------------------------------------------------


async def test_without_a_reranker_the_refusal_says_how_to_configure_one(tmp_path: Path) -> None:
    async with loaded(make(tmp_path, DEMAND)) as app:
        for name, words, status in (
            ("", r"^no reranker is configured; add one, such as \[models.rerank\]", 400),
            ("nope", "'nope' does not exist, and no reranker is configured", 404),
            ("main", "'main' cannot rerank: it scores no pairs of texts; add one", 400),
        ):
            with pytest.raises(InvalidRequest, match=words) as caught:
                await app.dispatcher.rerank(name, Pairs((("a", "b"),)))
            assert caught.value.status == status


async def test_a_chat_model_cannot_be_the_memorys_reranker(tmp_path: Path) -> None:
    text = f"{DEMAND}[memory]\nreranker = 'main'\ndatabase_path = '{tmp_path / 'm.db'}'\n"
    with pytest.raises(ConfigError, match="scores no pairs of texts"):
        async with loaded(make(tmp_path, text)):
            pass
