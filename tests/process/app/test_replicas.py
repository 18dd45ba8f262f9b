"""Shepherd in front of two others, which are processes: conversations find their caches, one server dies in the middle
of an answer, is taken out, and comes back."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line, own_server
from tests.in_time import PATIENCE_S, becomes_true
from tests.started import environment, program, serving

pytestmark = [pytest.mark.model, pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")]

ENGINE = '[models.lamb]\npath = "embedded"\n[caches.main]\nmodel = "lamb"\nn_ctx = 2048\n'
FRONT = """
[providers.fleet]
type = "shepherd"
model = "lamb"
base_urls = {urls}
probe_s = 0.2
options = {{ ignore_eos = true }}
[[routes]]
match = "*"
provider = "fleet"
"""
LONG = "alpha beta gamma " * 60
MANY = 64
"""Talks of which some go to each of two servers: all but one time in 2^63."""


def asked(url: str, texts: list[str], **more: Any) -> tuple[int, str, int]:
    """The replica that answers, its answer, and the tokens that were in its cache."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    body = {"model": "x", "messages": messages, "temperature": 0, "max_tokens": 4, **more}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    number = int(answer.headers["x-shepherd-backend"].removeprefix("fleet-")[0])
    usage = found["usage"]["prompt_tokens_details"]
    return number, found["choices"][0]["message"]["content"], usage["cached_tokens"]


def test_conversations_find_their_servers_and_outlive_them(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "two", "front")]
    for home in homes:
        home.mkdir()
        (home / "shepherd.toml").write_text(ENGINE)
    with ExitStack() as stack:
        started = [stack.enter_context(serving(home)) for home in homes[:2]]
        urls = [url for _, url in started]
        front = stack.enter_context(own_server.serving(homes[2], FRONT.format(urls=urls)))

        def states() -> dict[str, str]:
            groups = httpx2.get(f"{front}/v1/replicas", timeout=PATIENCE_S).json()["groups"]
            return {name: each["state"] for name, each in groups["fleet"].items()}

        # Each conversation finds its own cache, and both servers have some.
        # Which one depends on the ports: six talks, and as many more as it takes until both have two.
        talks: list[list[str]] = []
        homes_of: list[set[int]] = []
        while len(talks) < 6 or (len(talks) < MANY and min(homes_of.count({each}) for each in (1, 2)) < 2):
            talks.append([f"This is talk {len(talks)}. {LONG}"])
            replica, text, _ = asked(front, talks[-1])
            homes_of.append({replica})
            talks[-1] += [text, "And then?"]
        for number, talk in enumerate(talks):
            replica, text, n_cached = asked(front, talk)
            homes_of[number].add(replica)
            assert n_cached > 100
            talk += [text, "And then?"]
        assert [len(each) for each in homes_of] == [1] * len(talks)
        assert {each for home in homes_of for each in home} == {1, 2}

        # One that is taken out gets nothing new; its conversations are computed at the other one.
        (first,) = homes_of[0]
        name, other = f"fleet-{first}", 3 - first
        words = ("provider", "drain", name, "--url", front)
        assert _said(homes[2], *words) == f"{name} is drained.\n"
        assert asked(front, talks[0])[0] == other
        assert states()[name] == "drained"
        assert name in _said(homes[2], "provider", "replicas", "--url", front)
        assert _said(homes[2], "provider", "resume", name, "--url", front) == f"{name} is ready.\n"

        # One that is killed in the middle of an answer ends it; the next question goes to the other one.
        talk = next(talk for talk, home in zip(talks[1:], homes_of[1:], strict=True) if home == {first})
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(talk)]
        body = {"model": "x", "messages": messages, "max_tokens": 900, "stream": True}
        with httpx2.stream("POST", f"{front}/v1/chat/completions", json=body, timeout=PATIENCE_S) as answer:
            lines = answer.iter_lines()
            assert any('"content":"' in line and '"content":""' not in line for line in lines)
            started[first - 1][0].kill()
            rest = [line.removeprefix("data: ") for line in lines if line]
        assert "closed the connection" in json.loads(rest[-1])["error"]["message"]
        assert asked(front, talk)[0] == other
        assert becomes_true(lambda: states()[name] == "resting")

        # It comes back at the same address, and is asked again.
        port = urls[first - 1].rpartition(":")[2]
        again = stack.enter_context(program(homes[first - 1], "serve", "--port", port, "--threads", "1"))
        stack.callback(again.kill)
        assert becomes_true(lambda: states()[name] == "ready")
        replicas: set[int] = set()
        for number in range(MANY):
            replicas.add(asked(front, [f"New talk {number}"])[0])
            if replicas == {1, 2}:
                break
        assert replicas == {1, 2}


def _said(home: Path, *words: str) -> str:
    """What a command prints, which needs no process of its own."""
    return command_line.run(*words, env=environment(home), cwd=home).stdout
