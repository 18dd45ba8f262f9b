"""The tokens of an attached image, as the chat shows them: those that the prompt has more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.own_app import loaded
from tests.proven import proven
from tests.unit.engine.tiny_projector import png, write_seeing

from shepherd import config as configuration
from shepherd.app.app import App
from shepherd.core import Image, Message, Request, Text

pytestmark = [pytest.mark.model]


async def test_the_tokens_of_an_image_are_those_that_the_prompt_has_more(tmp_path: Path) -> None:
    model, projector = write_seeing("llava", tmp_path)
    file = tmp_path / "shepherd.toml"
    file.write_text(f"""
[models.eyes]
path = "{model}"
mmproj = "{projector}"
n_threads = 1
[caches.main]
model = "eyes"
n_ctx = 512
""")
    config = configuration.load(flags={}, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
    app = App(config, cache_folder=proven(tmp_path / "cache"), env={})
    image, words = Image("image/png", png(1)), Text("What is it?")
    async with loaded(app):
        n = await app.conversations.tokens_of(image)
        seen, blind = [
            await app.conversations.count(Request("", (Message("user", parts),)))
            for parts in ((image, words), (words,))
        ]
        assert n is not None
        assert n == seen - blind > 4
