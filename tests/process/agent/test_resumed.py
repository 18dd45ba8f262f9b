"""The tests of `tests/unit/agent/test_resumed.py` that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agent.test_resumed import NEW_TOKENS, had, process, say, session

from shepherd.agent.storage import ConversationStore

pytestmark = pytest.mark.model


async def test_a_resumed_conversation_computes_only_what_is_new(tmp_path: Path) -> None:
    name, n_calls = await had(tmp_path)
    assert n_calls, "there are calls in it"
    saved = ConversationStore(tmp_path / "saves").load(name)
    assert any(quote.text for quote in saved.quotes.values()), "and something was recalled"
    async with process(tmp_path) as app:
        chat = session(app)
        chat.restore(saved)
        window = await chat.window()
        assert {row.state for row in window.rows} == {"cached"}
        assert window.tier in ("memory", "disk")
        usage, _ = await say(chat, "Thank you. And now?")
    assert usage.cache_read > 150
    assert usage.input < NEW_TOKENS
