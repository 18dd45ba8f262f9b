"""Four ordinary requests that once ended the engine for everybody: a text at the start of several conversations.

(A) a conversation begins with a text P and grows until that message is evicted; (B) another begins with a part of P;
(C) a third begins with P. The engine restored the first and the second in turn, for ever. Here in every form in which
a client asks for eviction; the law behind it is in `tests/unit/engine/test_liveness.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.own_server import serving
from tests.proven import proven
from tests.unit.cli.conftest import Home

pytestmark = pytest.mark.model

PATIENCE_S = 60.0
"""Each is answered within a second on an idle machine; before, never."""


def words(rng: random.Random, n: int) -> list[str]:
    """Words that no tokenizer knows: three tokens each, or more."""
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.choice((2, 3, 4)))) for _ in range(n)]


def conversations(seed: int) -> list[list[dict[str, str]]]:
    rng = random.Random(seed)
    text = words(rng, 120)
    first = [*text, *words(rng, 200)]
    second, begins_alike, begins_the_same = words(rng, 360), [*text[:50], *words(rng, 320)], [*text, *words(rng, 40)]
    said = [first, second, begins_alike, begins_the_same]
    a1, a2, b, c = ({"role": "user", "content": " ".join(each)} for each in said)
    return [[a1], [a1, {"role": "assistant", "content": "ok"}, a2], [b], [c]]


def chat(messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 4}


def responses(messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    body = {"input": messages, "temperature": 0, "max_output_tokens": 16, "truncation": "auto"}
    return "/v1/responses", body


def ollama(messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    options = {"temperature": 0, "num_predict": 4}
    return "/api/chat", {"messages": messages, "truncate": True, "stream": False, "options": options}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("form", "overflow"),
    [(chat, 'overflow = "evict"\n'), (responses, ""), (ollama, "")],
    ids=["chat", "responses", "ollama"],
)
def test_conversations_that_begin_alike_are_all_answered(
    form: Callable[[list[dict[str, str]]], tuple[str, dict[str, Any]]],
    overflow: str,
    tmp_path: Path,
) -> None:
    config = f"[caches.main]\nn_ctx = 2048\n{overflow}"
    with serving(tmp_path, config) as address, httpx2.Client(timeout=PATIENCE_S) as client:
        evicted = 0
        for messages in conversations(1):
            path, body = form(messages)
            answer = client.post(address + path, json={"model": "lamb", **body})
            assert answer.status_code == 200, answer.text
            evicted += int(answer.headers.get("x-shepherd-evicted", 0))
        assert evicted > 0, "the first message has left"
        assert client.get(f"{address}/health").json()["status"] == "ok"


def test_conversations_that_begin_alike_are_all_answered_in_the_terminal(tmp_path: Path) -> None:
    home = Home(tmp_path, proven(tmp_path / "cache"))
    home.timeout_s = PATIENCE_S
    lines = []
    for messages in conversations(1)[1:]:
        lines += [message["content"] for message in messages if message["role"] == "user"]
        lines.append("/clear")
    done = home.run("-c", "2048", "--max-tokens", "4", "--no-recall", "--notools", text="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    assert "left the context" in done.stderr, "the first message has left"
