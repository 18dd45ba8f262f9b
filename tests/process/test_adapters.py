"""The tests of `tests/unit/test_adapters.py` that start programs."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
from tests.proven import proven
from tests.unit.test_adapters import (
    Files,
    files,  # noqa: F401 - fixtures
)

from shepherd import config as configuration
from shepherd.agent.session import Session
from shepherd.app.app import App
from shepherd.core import InvalidRequest
from shepherd.memory.users import LOCAL

pytestmark = pytest.mark.model


async def test_a_conversation_switches_to_an_adapter_and_back(files: Files, tmp_path: Path) -> None:
    """What the terminal does for `/model`: the conversation stays, and each name computes with its own adapter."""
    config = tmp_path / "shepherd.toml"
    config.write_text(f"max_tokens = 12\n[sampling]\ntemperature = 0\n{files.config}")
    read = configuration.load(flags={"threads": 1}, env={}, cwd=tmp_path, user_dir=tmp_path / "none", file=config)
    app = App(read, cache_folder=proven(tmp_path / "cache"), env={"RAG_DB_PATH": str(tmp_path / "memory.db")})

    async def answer(session: Session) -> str:
        async with aclosing(session.chat("Once upon a time")) as events:
            async for _ in events:
                pass
        return session.messages[-1].text

    try:
        await app.load()
        here = app.conversations
        session, plain = here.session(user=LOCAL, tools=False), here.active.model
        for name, shown in (("LAMB:LAW", "lamb:law"), ("doctor", "lamb:med"), ("lamb", plain)):
            choice = here.find_choice(name)
            assert choice is not None
            assert not choice.current or shown == plain == here.active.model
            active = await here.switch(session, name)
            assert (active.model, active.cache, session.model, here.active) == (shown, "main", shown, active)
            choice = here.find_choice(name)
            assert choice is not None
            assert choice.current
            await answer(session)
        assert len(session.messages) == 6, "the conversation stays"
        answers = set()
        for name in ("lamb:law", "lamb:med", "lamb:calm"):
            await here.switch(session, name)
            answers.add(await answer(here.session(user=None)))  # it begins with the active model
        assert len(answers) == 3, "each name computes with its own adapter"
        with pytest.raises(InvalidRequest, match=r"did you mean 'lamb:law'"):
            await here.switch(session, "lamb:lav")
        assert here.active.model == "lamb:calm"
        assert (await here.switch(session, "next")).model == plain, "there is one model"
    finally:
        await app.aclose()
