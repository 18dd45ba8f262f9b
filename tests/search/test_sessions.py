"""The tests of `tests/process/test_sessions.py` that take long."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.process.test_sessions import TAIL, Make, model, played, restless, sessions, too_much  # noqa: F401 - fixtures
from tests.recorded_sessions import (
    FORGETFUL,
    TEMPLATE,
    Played,
    changing,
    measured,
    playing,
)

from shepherd.server.observe.recordings import Recording

pytestmark = pytest.mark.model


async def test_a_new_chat_behind_a_session_computes_what_is_behind_its_system_prompt(
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]]
) -> None:
    """On a model that cannot cut its state: the one behind system prompt and tools outlives the requests in between."""
    recordings = [each for each in sessions["claude-code claude-opus-4-8"] if each.n in {4, 5, 6, 7}]
    body = json.loads(json.dumps(recordings[0].body))
    del body["messages"][1:]
    body["messages"][0]["content"][-1]["text"] = "Which of these files is the largest?"
    requests = await played(model("delta", TEMPLATE), tmp_path, [*recordings, replace(recordings[0], body=body)])
    assert too_much(requests[1:-1], TAIL) == []
    assert requests[-1].prompt > 15_000
    assert requests[-1].prefilled < 200


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("a line of the system", TEMPLATE),
        ("a line of the system", FORGETFUL),
        ("the state of git", TEMPLATE),
        ("no call once", TEMPLATE),
    ],
    ids=lambda value: {TEMPLATE: "plainly", FORGETFUL: "with thoughts"}.get(value, value),
)
async def test_a_small_change_at_the_front_costs_what_a_reminder_of_it_costs(
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]], name: str, template: str
) -> None:
    requests = await played(model("plain", template), tmp_path, changing(sessions)[name])
    growth = [later.prompt - earlier.prompt for earlier, later in pairwise(requests)]
    tail = 0 if template == TEMPLATE else TAIL
    assert [one for one, more in zip(requests[1:], growth, strict=True) if one.prefilled > more * 1.02 + tail] == []
    assert max(growth) < 0.1 * requests[0].prompt


@pytest.mark.parametrize(
    ("name", "template"),
    [("a line of the system", TEMPLATE), ("a line of the system", FORGETFUL), ("the state of git", TEMPLATE)],
    ids=lambda value: {TEMPLATE: "plainly", FORGETFUL: "with thoughts"}.get(value, value),
)
async def test_a_small_change_costs_no_more_where_each_request_comes_to_a_new_server(
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]], name: str, template: str
) -> None:
    recordings = changing(sessions)[name]
    (folder := tmp_path / "one").mkdir()
    together = await played(model("plain", template), folder, recordings)
    apart: list[Played] = []
    for recording in recordings:
        async with playing(model("plain", template), tmp_path, disk=True) as (app, client):
            apart += await measured(app, client, [recording])
    assert [one.prompt for one in apart] == [one.prompt for one in together]
    assert [one for one, own in zip(apart, together, strict=True) if one.prefilled > own.prefilled + TAIL] == []


async def test_a_change_that_nobody_knows_of_is_measured(
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]]
) -> None:
    recordings = restless(sessions["opencode local"][1:3])
    for at, recording in enumerate(recordings):
        system = recording.body["messages"][0]  # every line of it: too much for a reminder
        system["content"] = "\n".join(f"{at}: {line}" for line in system["content"].split("\n"))
    requests = await played(model("plain", TEMPLATE), tmp_path, recordings)
    assert requests[1].prefilled > 0.9 * requests[1].prompt
