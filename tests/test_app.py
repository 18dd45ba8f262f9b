"""The composition root: what is opened, in which order, and what is refused before anything is loaded."""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import gguf
import pytest

import shepherd
from shepherd import config as configuration
from shepherd.app import App, Loading
from shepherd.core import ConfigError, EngineDown, Event, Message, Request, TextDelta, fold
from shepherd.engine.selftest import build_id

pytestmark = pytest.mark.model


def make(tmp_path: Path, text: str = "", **flags: Any) -> App:
    file = tmp_path / "shepherd.toml"
    file.write_text(text)
    config = configuration.load(flags={"threads": 1, **flags}, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    return App(config, cache_folder=tmp_path / "cache", env={})


async def ask(app: App, model: str = "lamb", text: str = "Hello!", endpoint: str = "") -> str:
    events: list[Event] = []
    async with aclosing(app.stream(Request(model, (Message.user(text),)), endpoint=endpoint)) as stream:
        async for event in stream:
            events.append(event)
    return fold(events).message.text


async def test_nothing_configured_is_the_embedded_model(tmp_path: Path) -> None:
    app = make(tmp_path)
    assert app.health().status == "loading"
    seen: list[Loading] = []
    await app.load(seen.append)
    assert await ask(app) == "Hello! How can I help you?"
    assert app.health().status == "ok"
    facts = app.facts()
    assert (facts.model, facts.n_ctx, facts.embedded, facts.dialect) == ("lamb", 4096, True, "hermes")
    assert [loading.stage for loading in seen if loading.fraction == 1.0] == ["selftest", "weights", "context"]
    await app.aclose()


async def test_before_loading_and_after_closing_requests_are_refused_as_passing(tmp_path: Path) -> None:
    app = make(tmp_path)
    with pytest.raises(EngineDown, match="still loading"):
        await ask(app)
    with pytest.raises(EngineDown):
        app.session()
    await app.load()
    await app.aclose()
    with pytest.raises(EngineDown):
        await ask(app)


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
    seen: list[Loading] = []
    await app.load(seen.append)
    assert sum(loading.stage == "weights" and loading.fraction == 1.0 for loading in seen) == 1
    first, second = await asyncio.gather(ask(app, "one"), ask(app, "two"))
    assert first == second == "Hello! How can I help you?"
    for _ in range(200):  # figures for displays follow a moment later
        if all(usage.used > 0 for usage in app.health().caches.values()):
            break
        await asyncio.sleep(0.01)
    assert {name: usage.used > 0 for name, usage in app.health().caches.items()} == {"a": True, "b": True}
    assert [stats.jobs for stats in app.stats().values()] == [1, 1]
    await app.clear("a")
    assert {name: usage.used > 0 for name, usage in app.health().caches.items()} == {"a": False, "b": True}
    await app.aclose()


async def test_a_library_that_crashed_in_the_self_test_runs_without_extra_buffers_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").mkdir()
    verdict = {"use_extra_bufts": False, "detail": "quantised models crash (SIGSEGV) with this build"}
    (tmp_path / "cache" / f"selftest-{build_id()}.json").write_text(json.dumps(verdict))
    app = make(tmp_path)
    await app.load()
    assert "SIGSEGV" in caplog.text
    assert await ask(app) == "Hello! How can I help you?"
    await app.aclose()


def write_gguf(
    path: Path, *, architecture: str = "llama", template: str | None = None, **more: Mapping[str, Any]
) -> Path:
    """A GGUF without tensors: enough to be looked at, not to be loaded."""
    writer = gguf.GGUFWriter(path, architecture)
    if template is not None:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


REFUSED = {
    "a missing file": ("nope.gguf", None, "nope.gguf"),
    "not a GGUF": ("text.gguf", b"Hello, I am a text file.", "text.gguf"),
    "cut off": ("cut.gguf", "half of the embedded model", "cut.gguf"),
    "an unknown architecture": ("alien.gguf", "an architecture nobody knows", "alien"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_bad_model_file_is_refused_with_one_sentence(case: str, lamb: Path, tmp_path: Path) -> None:
    name, content, told = REFUSED[case]
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "half of the embedded model":
        path.write_bytes(lamb.read_bytes()[: lamb.stat().st_size // 2])
    elif content is not None:
        write_gguf(path, architecture="alien")
    app = make(tmp_path, model=str(path))
    with pytest.raises(shepherd.ShepherdError) as caught:
        await app.load()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    health = app.health()
    assert (health.status, told in health.detail) == ("error", True)
    await app.aclose()


async def test_a_model_without_a_chat_template_speaks_as_its_control_tokens_show_or_as_it_is_told(
    lamb: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bare = tmp_path / "bare.gguf"
    copy_without_template(lamb, bare)
    app = make(tmp_path, model=str(bare))
    await app.load()
    assert "bare.gguf has no chat template: using that of Shepherd for ChatML" in caplog.text
    await app.aclose()
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
    app = make(tmp_path, f'[models.bare]\npath = "{bare}"\nchat_template = "{template}"\n')
    await app.load()
    assert app.facts().dialect == "plain"
    await app.aclose()


def copy_without_template(source: Path, target: Path) -> None:
    """The same model with the key of its template renamed, byte for byte otherwise."""
    data = source.read_bytes()
    key = b"tokenizer.chat_template"
    assert data.count(key) == 1
    target.write_bytes(data.replace(key, b"tokenizer.chat_templatX"))


async def test_too_little_memory_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    app = make(tmp_path, context_size=2**31 - 1)
    seen: list[Loading] = []
    with pytest.raises(ConfigError, match=r"GiB of memory.*is free.*smaller context"):
        await app.load(seen.append)
    assert not [loading for loading in seen if loading.stage == "weights"]
    await app.aclose()


async def test_what_is_not_there_yet_is_said_and_not_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make(tmp_path, '[tools]\nenabled = ["filesystem"]\n', overflow="evict")
    assert "eviction" not in caplog.text
    assert "filesystem" in caplog.text


async def test_another_back_end_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="openai"):
        make(tmp_path, backend="openai")


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
