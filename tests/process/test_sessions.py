"""Nothing that real clients do breaks the prefix cache: their recorded sessions, played in order (PFX-01, K7, K8).

Each request may compute what is new in it and 2 % more; `recorded_sessions` says how that is counted. What a template
itself spells in another way when it is no longer the last, the head of the answer, comes on top: `TAIL` tokens at most.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import amount
from tests.recorded_sessions import (
    FORGETFUL,
    N_VOCAB,
    TEMPLATE,
    Played,
    conversations,
    measured,
    playing,
    said,
    write_model,
)

from shepherd.server.observe.recordings import Recording

pytestmark = pytest.mark.model

TAIL = 8
"""Tokens of `<|im_start|>assistant\\n<think>\\n`."""

Make = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def sessions(conformance: Path) -> dict[str, list[Recording]]:
    """The recorded conversations by client and model."""
    return conversations(conformance / "clients")


@pytest.fixture(scope="module")
def model(sessions: dict[str, list[Recording]], tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The path of a model of a kind with a template, made when it is missing."""
    folder = tmp_path_factory.mktemp("models")

    def make(kind: str, template: str) -> Path:
        path = folder / f"{kind}-{len(template)}.gguf"
        if not path.exists():
            texts = [said(each.body) for session in sessions.values() for each in session]
            write_model(path, texts, template, kind=kind, n_vocab=amount(32_000, N_VOCAB))
        return path

    return make


async def played(model: Path, folder: Path, recordings: Sequence[Recording]) -> list[Played]:
    async with playing(model, folder) as (app, client):
        return await measured(app, client, recordings)


def too_much(requests: Sequence[Played], tail: int) -> list[Played]:
    """The requests that have computed more than is new."""
    return [one for one in requests if one.prefilled > one.new * 1.02 + tail]


@pytest.mark.grid(0.1)
@pytest.mark.parametrize(
    ("name", "kind", "template"),
    [
        ("opencode local", "plain", TEMPLATE),
        ("codex local", "plain", TEMPLATE),
        ("claude-code claude-opus-4-8", "plain", TEMPLATE),
        ("opencode local", "plain", FORGETFUL),
        ("codex local", "plain", FORGETFUL),
        ("opencode local", "hybrid", FORGETFUL),
    ],
    ids=lambda value: {TEMPLATE: "plainly", FORGETFUL: "with thoughts"}.get(value, value),
)
async def test_a_recorded_session_computes_only_what_is_new(  # noqa: PLR0917 - two fixtures of pytest's among them
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]], name: str, kind: str, template: str
) -> None:
    requests = await played(model(kind, template), tmp_path, sessions[name][: amount(4, 1_000)])
    assert len(requests) >= 4
    assert too_much(requests, 0 if (kind, template) == ("plain", TEMPLATE) else TAIL) == []


def restless(recordings: Sequence[Recording]) -> list[Recording]:
    """The same with everything that clients are known to change with each request."""
    chance = random.Random(7)

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shuffled(value[name]) for name in chance.sample(list(value), len(value))}
        return value

    made = []
    for at, recording in enumerate(recordings):
        body = json.loads(json.dumps(recording.body))
        body["tools"] = [shuffled(tool) for tool in chance.sample(body["tools"], len(body["tools"]))]
        note = f"\n<total_tokens>{200_000 - at} tokens left</total_tokens>"
        if "system" in body:
            billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={chance.random()};"}
            body["system"] = [billing, *body["system"][1:], {"type": "text", "text": note}]
        else:
            body["messages"][0]["content"] += note
        made.append(replace(recording, body=body))
    return made


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", ["opencode local", "claude-code claude-opus-4-8"])
async def test_what_clients_change_with_each_request_costs_nothing(
    model: Make, tmp_path: Path, sessions: dict[str, list[Recording]], name: str
) -> None:
    first, second = await played(model("plain", TEMPLATE), tmp_path, restless(sessions[name][1:3]))
    assert second.prefilled <= (second.prompt - first.prompt) * 1.02
