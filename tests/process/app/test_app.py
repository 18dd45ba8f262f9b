"""The tests of `tests/unit/app/test_app.py` that start programs."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import gguf
import pytest
from tests.in_time import until
from tests.own_app import loaded
from tests.unit.app.test_app import DEMAND, SAID, ask, ids_loaded, make
from tests.unit.engine.tiny_bert import write_bert

import shepherd
from shepherd.app.loading import LoadProgress
from shepherd.core import (
    Completion,
    EngineDown,
    EngineError,
    InvalidRequest,
    Message,
    Request,
    fold,
)
from shepherd.core.pairs import Pairs
from shepherd.memory.records import Entry

pytestmark = pytest.mark.model


async def test_nothing_configured_is_the_embedded_model(tmp_path: Path) -> None:
    app = make(tmp_path)
    assert app.health().status == "loading"
    seen: list[LoadProgress] = []
    await app.load(seen.append)
    assert await ask(app) == "Hello! How can I help you?"
    assert app.health().status == "ok"
    facts = app.conversations.active
    assert (facts.model, facts.n_ctx, facts.embedded, facts.dialect) == ("lamb", 4096, True, "hermes")
    assert [loading.stage for loading in seen if loading.fraction == 1.0] == ["selftest", "weights", "context"]
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
    async with loaded(make(tmp_path, model=str(bare))) as app:
        assert "bare.gguf has no chat template: using that of Shepherd for ChatML" in caplog.text
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
    async with loaded(make(tmp_path, f'[models.bare]\npath = "{bare}"\nchat_template = "{template}"\n')) as app:
        assert app.conversations.active.dialect == "plain"


async def test_a_base_model_completes_texts_and_chats_in_chatml(
    lamb: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = tmp_path / "base.gguf"
    copy_without_template(lamb, base)
    base.write_bytes(base.read_bytes().replace(b"<|im_end|>", b"<|in_end|>"))  # as long as it was: nothing moves
    async with loaded(make(tmp_path, model=str(base))) as app:
        assert "base.gguf has no chat template: using that of ChatML, which the model may not know" in caplog.text
        for asked in ({"completion": Completion("Once upon")}, {"messages": (Message.user("Hello"),)}):
            async with aclosing(
                app.conversations.stream(Request("", max_tokens=4, **asked), endpoint="/v1/completions")
            ) as stream:
                answer = fold([event async for event in stream])
            assert answer.usage.output > 0


def copy_without_template(source: Path, target: Path) -> None:
    """The same model with the key of its template renamed, byte for byte otherwise."""
    data = source.read_bytes()
    key = b"tokenizer.chat_template"
    assert data.count(key) == 1
    target.write_bytes(data.replace(key, b"tokenizer.chat_templatX"))


async def test_a_model_that_cannot_be_loaded_is_a_clear_error_each_time(tmp_path: Path) -> None:
    alien = write_gguf(tmp_path / "alien.gguf", architecture="alien")
    async with loaded(make(tmp_path, f'{DEMAND}[models.alien]\npath = "{alien}"\n')) as app:
        for _ in range(2):
            with pytest.raises(EngineError, match=r"alien\.gguf cannot be loaded"):
                await ask(app, "alien")
        assert await ask(app, "other") == SAID


async def test_a_reranker_scores_pairs_and_a_chat_model_names_it(tmp_path: Path) -> None:
    rank = write_bert(tmp_path / "rank.gguf", pooling=4, n_labels=1)
    text = f"{DEMAND}[models.rank]\npath = '{rank.path}'\nload = 'demand'\n"
    pairs = Pairs((("a b", "c"), ("a b", "d e f g")))
    expected = [rank.score(rank.pair(*pair)) for pair in pairs.texts]
    async with loaded(make(tmp_path, text)) as app:
        card = next(card for card in app.catalogue.models() if card.id == "rank")
        assert (card.kind, card.capabilities) == ("reranker", ("rerank",))
        for name in ("rank", "", "rerank-v3.5"):
            made = await app.dispatcher.rerank(name, pairs)
            assert made.model == "rank"
            assert list(made.values) == pytest.approx(expected, abs=4e-3)
        assert app.totals().caches["rank (scores)"].prefilled_tokens == 3 * sum(made.n_tokens)
        with pytest.raises(InvalidRequest, match=r"model 'main' cannot rerank: .* name one that can: rank"):
            await app.dispatcher.rerank("main", pairs)
        with pytest.raises(InvalidRequest, match=r"'rank' scores pairs of texts and makes no vectors; .*/v1/rerank"):
            await app.dispatcher.embed("rank", ["a"])
        with pytest.raises(InvalidRequest, match=r"'rank' scores pairs of texts and cannot chat; .*/v1/rerank"):
            await app.conversations.count(Request("rank", (Message.user("a"),)))
        assert await app.catalogue.unload("rank")
        assert (await app.dispatcher.rerank("rank", pairs)).values == made.values


async def test_a_cancelled_request_leaves_the_model_after_its_group(tmp_path: Path) -> None:
    rank = write_bert(tmp_path / "rank.gguf", pooling=4, n_labels=1)
    async with loaded(make(tmp_path, f"[models.rank]\npath = '{rank.path}'\n")) as app:
        before = app.totals().caches["rank (scores)"].prefilled_tokens
        asking = asyncio.create_task(app.dispatcher.rerank("rank", Pairs((("a b c", "d e f g h i"),) * 10_000)))
        await until(lambda: app.totals().caches["rank (scores)"].prefilled_tokens > before)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        done = app.totals().caches["rank (scores)"].prefilled_tokens
        assert (await app.dispatcher.rerank("rank", Pairs((("a", "b"),)))).n_tokens == (4,)
        assert app.totals().caches["rank (scores)"].prefilled_tokens - done == 4
        assert done - before < 10_000 * 11, "it ends before all of them have been scored"


async def test_the_memory_uses_its_reranker_whether_it_is_configured_or_a_file(tmp_path: Path) -> None:
    rank = write_bert(tmp_path / "rank.gguf", pooling=4, n_labels=1)
    memory = f"database_path = '{tmp_path / 'm.db'}'\n"
    for name, models in (("rank", f"[models.rank]\npath = '{rank.path}'\n"), (str(rank.path), "")):
        text = f"{DEMAND}{models}[memory]\nreranker = '{name}'\n{memory}"
        async with loaded(make(tmp_path, text)) as app:
            assert "rank" in ids_loaded(app)
            store = app.memory("local")
            assert store is not None
            for body in ("a b c d", "a c", "a b p"):
                await asyncio.to_thread(store.archive, [Entry("user", body)])
            before = app.totals().caches["rank (scores)"].decoded_chunks
            assert await asyncio.to_thread(store.rank, "a b", limit=5)
            assert app.totals().caches["rank (scores)"].decoded_chunks - before >= 2
            assert app.totals().n_rerank_failures == 0
            await app.catalogue.unload("rank")
            assert "rank" in ids_loaded(app), "the memory holds it"


async def test_before_loading_and_after_closing_requests_are_refused_as_passing(tmp_path: Path) -> None:
    app = make(tmp_path)
    with pytest.raises(EngineDown, match="still loading"):
        await ask(app)
    with pytest.raises(EngineDown):
        app.conversations.session()
    await app.load()
    await app.aclose()
    with pytest.raises(EngineDown):
        await ask(app)
