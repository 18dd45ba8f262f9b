"""The tests of `tests/unit/app/test_demands.py` that start programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.own_app import app_of, loaded
from tests.unit.app.test_demands import DEMANDS, answered

from shepherd.core import InvalidRequest, Message, NotAllowed, Request


@pytest.mark.model
@pytest.mark.parametrize("name", DEMANDS)
async def test_a_model_of_this_machine_refuses_it(tmp_path: Path, name: str) -> None:
    request, why = DEMANDS[name]
    with pytest.raises(InvalidRequest, match=why) as caught:
        await answered(tmp_path, "", request)
    assert (caught.value.field or "").startswith("tool_choice")


PRIVATE = """
[providers.away]
type = "anthropic"
base_url = "https://away.example"
model = "m"
api_key = "k"

[caches.main]
model = "lamb"

[models.lamb]
path = "embedded"

[[routes]]
match = "*"
cache = "main"
privacy = "local"

[server]
use_tools = true
"""


@pytest.mark.model
async def test_a_tool_of_a_private_route_asks_no_model_elsewhere(tmp_path: Path) -> None:
    request = Request("lamb", (Message.user("Hello."),))
    async with loaded(app_of(tmp_path, PRIVATE), lazy=True) as app:
        async for _ in app.conversations.stream(request, endpoint="/v1/chat/completions"):
            pass  # from here on this task is the request's, and its tools run in tasks of it
        with pytest.raises(NotAllowed, match="keeps prompts on this machine"):
            async for _ in app.dispatcher.stream(replace(request, model="away"), endpoint=None):
                pass
