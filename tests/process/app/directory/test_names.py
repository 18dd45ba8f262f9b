"""The tests of `tests/unit/app/directory/test_names.py` that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.app.directory.test_names import HELLO, TWO, ask, jobs, running

from shepherd.core import Message, Request

pytestmark = pytest.mark.model


async def test_an_alias_is_answered_by_what_it_stands_for(tmp_path: Path) -> None:
    async with running(tmp_path, TWO) as app:
        for name in ("fast", "FAST:latest", "claude-local-daily"):
            assert await ask(app, name) == HELLO
        assert await ask(app, "fast", endpoint=None) == HELLO
        assert await app.conversations.count(Request("fast", (Message.user("Hello!"),))) > 0
        assert await app.dispatcher.tokenize("fast", "Hello") == await app.dispatcher.tokenize("two", "Hello")
        assert jobs(app) == {"two": 4}
        cards = {card.id: card.stands_for for card in app.catalogue.models()}
        assert cards == {"one": "", "two": "", "fast": "two", "daily": "two"}
        assert next(card for card in app.catalogue.models() if card.id == "two").aliases == ("two", "fast", "daily")
        session = app.conversations.session()
        assert app.conversations.active.cache == "one"
        assert (await app.conversations.switch(session, "Fast")).cache == "two"
        assert await app.catalogue.unload("fast")
