"""The tests of `tests/unit/test_provider_switches.py` that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.app.test_providers import running, say
from tests.unit.test_provider_switches import all_of_them, check, name_of, row

from shepherd.agent.storage import from_json, to_json

LOCAL = '[models.ann]\npath = "embedded"\n'


@pytest.mark.model
async def test_a_conversation_wanders_through_all_models_and_back(tmp_path: Path) -> None:
    async with (
        all_of_them() as providers,
        running(tmp_path, 'thinking = "high"\n' + LOCAL + "".join(map(row, providers.values()))) as app,
    ):
        conversations = app.conversations
        session = conversations.session()
        await say(session, "My name is Bob.")
        for lap in (1, 2):
            for protocol, provider in providers.items():
                await conversations.switch(session, name_of(protocol))
                said, started = await say(session, f"Lap {lap} of {protocol}.")
                assert (said, started.cache) == (f"You said: Lap {lap} of {protocol}.", name_of(protocol))
                heard = provider.heard[-1]
                assert any("Bob" in each for each in heard.texts("user"))
                own = list(provider.issued)[: lap - 1]
                assert heard.proofs == own, "its own come back, those of others do not"
                check(providers)
            if lap == 1:  # through a file, in the middle
                session.restore(from_json(to_json(session.to_saved())))
        before = len(session.messages)
        await conversations.switch(session, "ann")
        assert (await say(session, "What is my name?"))[0]
        assert len(session.messages) == before + 2
        await conversations.switch(session, name_of("anthropic"))
        await say(session, "And now?")
        assert providers["anthropic"].heard[-1].proofs == list(providers["anthropic"].issued)[:-1]
        check(providers)
