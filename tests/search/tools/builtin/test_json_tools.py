"""The tests of `tests/unit/tools/builtin/test_json_tools.py` that take long."""

import asyncio
import json
from typing import Any

import pytest
from tests.unit.tools.builtin.test_json_tools import call

from shepherd.tools.base import ToolError
from shepherd.tools.builtin.json_tools import json_path, json_validate
from shepherd.tools.tool import Tool


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(json_path, {"path": "$[?@ =~ /(a|a)*$/]"}), (json_validate, {"schema": {"items": {"pattern": "^(a+)+$"}}})],
    ids=["path", "schema"],
)
async def test_a_pattern_that_would_take_for_ever_stops_nothing_else(tool: Tool, arguments: dict[str, Any]) -> None:
    """The loop goes on meanwhile: Python's own patterns would hold all of it."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    text = json.dumps(["a" * 40 + "b"])
    with pytest.raises(ToolError, match="this took longer than 3 s and was stopped; ask for less"):
        await call(tool, json=text, **arguments)
    ticking.cancel()
    assert ticks > 20
