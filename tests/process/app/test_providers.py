"""The tests of `tests/unit/app/test_providers.py` that start programs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.fake_engine import in_process
from tests.process.server.test_damaged_models import accepted
from tests.providers_replay import replaying
from tests.search.fuzz.models import VOCABULARIES
from tests.unit.app.test_providers import OWN_FIRST, SAID, mine, running, say
from tests.unit.backends.cloud.providing import spoken
from tests.unit.engine.tiny_gguf import RECIPES, write

from shepherd.backends.fallback import Health
from shepherd.core import (
    EngineError,
    InvalidRequest,
)
from shepherd.engine.engine import _Mail


def loads(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if (line := record.getMessage()).startswith(("Loading", "unloading"))]


@pytest.mark.model
async def test_the_local_model_is_unloaded_before_a_provider_answers_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shepherd")
    async with replaying(spoken(), spoken()) as server:
        text = '[models.ann]\npath = "embedded"\n' + mine(server)
        async with running(tmp_path, text) as app:
            conversations = app.conversations
            session = conversations.session()
            await say(session, "My name is Bob.")
            caplog.clear()
            facts = await conversations.switch(session, "next")
            assert (facts.cache, facts.model, facts.is_provider, facts.is_away) == ("mine", "m", True, False)
            assert [line.partition(":")[0] for line in loads(caplog)] == ["unloading model 'ann'", "Loading provider"]
            assert [card.id for card in app.catalogue.models() if card.loaded] == []
            assert (await say(session, "And?"))[0] == SAID
            assert "Bob" in str(server.requests[-1].json["messages"])
            caplog.clear()
            facts = await conversations.switch(session, "mine/other")
            assert facts.model == "other"
            assert loads(caplog) == ["Loading provider: mine"]
            await say(session, "And now?")
            assert server.requests[-1].json["model"] == "other"
            caplog.clear()
            await conversations.switch(session, "mine/other")
            assert loads(caplog) == [], "it answers already"
            await conversations.switch(session, "ann")
            assert loads(caplog) == ["Loading provider: ann"]
            assert (await say(session, "What is my name?"))[0]


def broken() -> None:
    """Ends the engine's thread."""
    raise RuntimeError


@pytest.mark.model
async def test_a_provider_answers_where_our_own_model_cannot_and_its_window_is_there_again(tmp_path: Path) -> None:
    async with replaying(spoken(), spoken()) as server:
        text = "isolate = false\n" + OWN_FIRST.format(path="embedded") + mine(server)
        async with running(tmp_path, text) as app:
            session = app.conversations.session()
            _, started = await say(session, "My name is Bob.")
            assert (started.cache, started.instead_of, server.requests) == ("main", (), [])
            said, started = await say(session, "word " * 600)
            assert (said, started.cache, started.instead_of) == (SAID, "mine", ("main",))
            assert "Bob" in str(server.requests[0].json["messages"])
            session.undo()
            assert [row.kind for row in (await session.window()).rows].count("turn") == 1
            _, started = await say(session, "And?")
            assert (started.cache, started.instead_of) == ("main", ())
            assert started.usage.cache_read > 0, "what it holds is still there"
            assert (await session.evict(1)).messages == 2
            saved = session.to_saved()
            session.restore(saved)
            await say(session, "And now?")
            in_process(app.dispatcher.backends()["main"].engine)._mailbox.put(_Mail(broken))
            _, started = await say(session, "Are you there?")
            assert (started.cache, started.instead_of) == ("mine", ("main",))
            assert len(server.requests) == 2


@pytest.mark.model
async def test_a_model_that_cannot_be_loaded_is_replaced_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = accepted(tmp_path / "model.gguf")
    async with replaying(spoken()) as server:
        text = OWN_FIRST.format(path=model) + mine(server)
        with pytest.raises(EngineError):
            async with running(tmp_path, text.replace('fallback = ["mine"]', "")):
                pass
        async with running(tmp_path, text) as app:
            assert "; mine answers in its place" in caplog.text
            session = app.conversations.session(user="bob")
            said, started = await say(session, "Hello")
            assert (said, started.cache, started.instead_of) == (SAID, "mine", ("main",))
            with pytest.raises(InvalidRequest, match="'main' is not loaded, so that it has no window"):
                await session.window()
            assert session.to_saved().messages == session.messages
            write(RECIPES["hybrid"], model, VOCABULARIES["gpt2"])
            app.dispatcher.health = Health()  # its rest is over
            _, started = await say(session, "And now?")
            assert (started.cache, started.instead_of, len(server.requests)) == ("main", (), 1)
            assert len((await session.window()).rows) == 2
