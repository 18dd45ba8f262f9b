"""The model of a chat over a restart of the server; what comes back in a small context."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import PATIENCE_S
from tests.own_app import app_of, loaded
from tests.providers_scripted import Said, scripted

from shepherd.agent.storage import ConversationStore
from shepherd.app.app import App
from shepherd.app.chats.chats import Chat, Owner
from shepherd.core import Text
from shepherd.models import catalog

pytestmark = [pytest.mark.model, pytest.mark.asyncio]

LAMB = '[models.lamb]\npath = "embedded"\n[caches.main]\nmodel = "lamb"\noverflow = "evict"\n'


def made_app(folder: Path, text: str) -> App:
    head = f'max_tokens = 24\n[chat]\nfolder = "{folder / "saved"}"\n[tools]\nenabled = []\n[memory]\nrecall = true\n'
    return app_of(folder, head + text)


async def asked(chat: Chat, text: str) -> dict[str, Any]:
    """The events of a whole turn by their type, the last one of each."""
    chat.send([Text(text)])
    while "end" not in (found := {event.type: event.data for event in chat.log.since(0)}):
        await chat.log.wait(chat.log.number, PATIENCE_S)
    return found


async def test_a_chat_with_a_provider_is_answered_by_it_after_a_restart_or_says_that_it_is_gone(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    async with scripted("openai.chat", lambda heard: Said(f"I am {heard.model}.")) as provider:
        row = f'[providers.script]\ntype = "openai_compat"\nbase_url = "{provider.url}"\n'
        async with loaded(made_app(tmp_path, LAMB + row)) as app:
            chat = await app.chats.of(Owner()).create("script/m", None)
            assert (await asked(chat, "Hello!"))["end"]["reason"] == "done"
            assert chat.shown(None, 0)["usage"]["n_ctx"] is None, "no provider has said so"
            id = chat.id
        assert saves.load(id).model == "script/m"
        saves.save(replace(saves.load(id), model="m"), id)  # as the terminal does
        async with loaded(made_app(tmp_path, LAMB + row)) as app:
            chat = await app.chats.of(Owner()).get(id)
            assert chat.shown(None, 10)["missing_model"] is None
            assert "missing_model" not in await asked(chat, "Who are you?")
            assert chat.messages[-1].own_text == "I am m."
            assert await app.conversations.find_target("script/other", is_guest=True) is None
        async with loaded(made_app(tmp_path, LAMB + row + 'model = "other"\nn_ctx = 1000\n')) as app:
            chat = await app.chats.of(Owner()).get(id)
            assert chat.shown(None, 10)["missing_model"] == "script/m"
            other = await app.chats.of(Owner()).create("script/other", None)
            assert other.shown(None, 0)["usage"]["n_ctx"] == 1000
            assert app.conversations.describe("script").model == "other", "nobody has chosen another one"
    async with loaded(made_app(tmp_path, LAMB)) as app:
        shelf = app.chats.of(Owner())
        (listed,) = (await shelf.page(None, 10))["chats"]
        assert listed["session"] == saves.load(id).id, "of a chat that is not open"
        chat = await shelf.get(id)
        assert chat.shown(None, 10)["missing_model"] == "script/m"
        await chat.changed("title")
        assert saves.load(id).model == "script/m", "nothing else has answered"
        assert (await asked(chat, "And now?"))["missing_model"] == {"model": "script/m", "instead": "lamb"}
        assert (chat.shown(None, 10)["missing_model"], saves.load(id).model) == (None, "lamb")


async def test_another_model_begins_to_load_at_once_and_says_how_far_it_is(tmp_path: Path) -> None:
    ram = '[models.ram]\npath = "embedded"\nload = "demand"\nisolate = false\n[caches.two]\nmodel = "ram"\n'
    broken = f'[models.ewe]\npath = "{tmp_path / "ewe.gguf"}"\nload = "demand"\nisolate = false\n'
    broken += '[caches.three]\nmodel = "ewe"\n'
    (tmp_path / "ewe.gguf").write_bytes(catalog.embedded().read_bytes())
    async with loaded(made_app(tmp_path, LAMB.replace("[caches", "isolate = false\n[caches") + ram + broken)) as app:
        chat = await app.chats.of(Owner()).create(None, None)

        async def moved(name: str) -> list[dict[str, Any]]:
            """What is told from the change of the model on until it is loaded, or cannot be."""
            before, told = chat.log.number, list[dict[str, Any]]()
            await chat.move(name)
            seen = before
            while not told or told[-1]["type"] != "loaded":
                told += [
                    {"type": event.type, **event.data} for event in chat.log.since(seen) if event.type[:4] == "load"
                ]
                seen = chat.log.number
                if not told or told[-1]["type"] != "loaded":
                    await chat.log.wait(seen, PATIENCE_S)
            return told

        told = await moved("ram")
        nothing = {"share": None, "loaded_bytes": None, "total_bytes": None}
        assert told[0] == {"type": "loading", "model": "lamb", "stage": "waiting", **nothing}
        assert told[-1] == {"type": "loaded", "model": "lamb"}
        weights = [each for each in told if each.get("stage") == "weights"]
        shares = [each["share"] for each in weights]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        size = catalog.embedded().stat().st_size
        (total,) = {each["total_bytes"] for each in weights}
        assert 0.9 * size < total < size, "without its head"
        assert all(abs(each["loaded_bytes"] - each["share"] * total) <= 0.005 * total + 1 for each in weights)
        assert weights[-1]["loaded_bytes"] == total
        assert [each for each in told if each.get("stage") not in (None, "weights") and each["loaded_bytes"]] == []
        assert app.conversations.is_loaded(chat.target)
        (tmp_path / "ewe.gguf").write_bytes(b"GGUF, and nothing behind it")
        told = await moved("ewe")
        assert told[-1]["model"] == "ewe"
        assert "ewe.gguf" in told[-1]["error"]
        assert not app.conversations.is_loaded(chat.target)


async def test_what_has_left_a_context_of_512_tokens_comes_back(tmp_path: Path) -> None:
    async with loaded(made_app(tmp_path, LAMB + "n_ctx = 512\n")) as app:
        chat = await app.chats.of(Owner()).create(None, None)
        await asked(chat, "The capital of France is Paris.")
        for at in range(5):
            await asked(chat, " ".join(f"The number of box {n} is {n * 37}." for n in range(8 * at, 8 * at + 8)))
        started = (await asked(chat, "What is the capital of France?"))["started"]
        assert started["recalled"]["messages"] == 1
        assert started["usage"]["recalled"] > 0
