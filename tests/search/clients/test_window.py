"""Claude Code, Codex and opencode, unchanged, in sessions of many contexts: a real engine with a window counts and
computes, and a script speaks. Nothing is refused, nothing is compacted, and only what is new is computed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.own_server import serving
from tests.search.clients import nonsense
from tests.search.clients.script import Line, Use, performing
from tests.search.clients.stage import User

from shepherd.app.app import App
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    Usage,
)

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

N_CTX = 20_480
WINDOW = 12 * N_CTX
"""A client compacts some way before the end of its window, so 8 contexts need one that is larger."""
CONFIG = f"""
[models.nonsense]
path = "nonsense.gguf"
[caches.main]
model = "nonsense"
n_ctx = {N_CTX}
window = {WINDOW}
"""
N_FILES, N_LINES = 48, 160
"""The files that are read, and the lines of each."""
SLACK = 8
"""Tokens of a request that may be computed twice: the end of an answer is written in other words."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that carried tools, and what the engine said of it."""

    request: Request
    usage: Usage


class Reader:
    """The service of an app: its engine reads every prompt, and the words of the answer are those of a script."""

    def __init__(self, app: App, lines: Sequence[Line], turns: list[Turn]) -> None:
        self._app, self._turns = app, turns
        self._script = performing(lambda request: lines[min(_n_said(request), len(lines) - 1)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app if hasattr(self._app, name) else self._app.conversations, name)

    @property
    def conversations(self) -> Reader:
        return self

    async def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        read = self._app.conversations.stream(replace(request, max_tokens=1), endpoint=endpoint)
        last = Finished("end")
        async with aclosing(read) as events:
            async for event in events:
                match event:
                    case TextDelta() | ReasoningDelta() | CallStarted() | CallDelta() | CallEnded():
                        pass
                    case Finished():
                        last = event
                    case _:
                        yield event
        self._turns.append(Turn(request, last.usage))
        async with aclosing(self._script(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    yield replace(event, usage=last.usage)
                elif not isinstance(event, Started):
                    yield event


def _n_said(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


@dataclass(frozen=True, slots=True)
class Agent:
    """How a client is asked, goes on, and reads a file; where it shows the size of the prompt and of the context."""

    ask: tuple[str, ...]
    go_on: tuple[str, ...]
    read: Callable[[str], Use]
    shown: Callable[[list[dict[str, Any]], Path], int]
    """The tokens of the newest prompt, from the lines of JSON that it prints, or that it keeps in its home."""


def _claude_shown(lines: list[dict[str, Any]], home: Path) -> int:
    (model,) = lines[-1]["modelUsage"].values()
    assert WINDOW * 0.9 < model["contextWindow"] <= WINDOW, model
    usage = [line["message"]["usage"] for line in lines if line.get("type") == "assistant"][-1]
    return int(usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])


def _codex_shown(lines: list[dict[str, Any]], home: Path) -> int:
    (kept,) = (home / ".codex" / "sessions").rglob("*.jsonl")
    counts = [line for line in kept.read_text().splitlines() if '"last_token_usage"' in line]
    info = json.loads(counts[-1])["payload"]["info"]
    assert WINDOW * 0.9 < info["model_context_window"] <= WINDOW, info
    return int(info["last_token_usage"]["input_tokens"])


def _opencode_shown(lines: list[dict[str, Any]], home: Path) -> int:
    tokens = [line["part"]["tokens"] for line in lines if line["type"] == "step_finish"][-1]
    return int(tokens["input"] + tokens["cache"]["read"] + tokens["cache"]["write"])


CLAUDE = (
    "-p", "--dangerously-skip-permissions", "--tools", "Read,Bash", "--max-turns", "200", "--verbose",
    "--output-format", "stream-json",
)  # fmt: skip
CODEX = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
OPENCODE = ("run", "--format", "json")
AGENTS = {
    "claude": Agent(CLAUDE, (*CLAUDE, "--continue"), lambda file: Use("Read", {"file_path": file}), _claude_shown),
    "codex": Agent(
        ("exec", *CODEX),
        ("exec", "resume", "--last", *CODEX),
        lambda file: Use("exec_command", {"cmd": f"cat {file}"}),
        _codex_shown,
    ),
    "opencode": Agent(
        OPENCODE, (*OPENCODE, "--continue"), lambda file: Use("read", {"filePath": file}), _opencode_shown
    ),
}


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_works_for_eight_contexts_and_more(
    name: str, user: User, installed: Callable[[str], None], lamb: Path, tmp_path: Path
) -> None:
    installed(name)
    agent, turns, files = AGENTS[name], list[Turn](), [user.project / f"part{number}.py" for number in range(N_FILES)]
    for number, file in enumerate(files):
        text = [f"line {line} of part {number}: value = {line * number}" for line in range(N_LINES)]
        text[7] = "RELEASE_NAME = 'Bluebird'" if number == 2 else text[7]
        file.write_text("\n".join(text))
    lines: list[Line] = [*(agent.read(str(file)) for file in files), "All of it is read.", "It is Bluebird."]
    nonsense.write(lamb, tmp_path / "nonsense.gguf")
    with serving(tmp_path, CONFIG, around=lambda app: Reader(app, lines, turns)) as url:
        for words in ((*agent.ask, "Read all parts"), (*agent.go_on, "What is RELEASE_NAME?")):
            command = ("-m", "shepherd", "launch", name, "--url", url, "--", *words)
            ran = await user.run(sys.executable, *command, timeout_s=800)
            assert ran.status == 0, (ran.out[-3000:], ran.err[-3000:])
            assert f"its conversations may have {WINDOW} tokens" in ran.err
        measured = httpx2.get(f"{url}/metrics").text
    assert "It is Bluebird." in ran.out
    used = [turn for turn in turns if turn.request.tools]
    sizes = [turn.usage.prompt for turn in used]
    computed = [turn.usage.input + turn.usage.cache_write for turn in used]
    n_evictions = int(float(re.findall(r"^shepherd_evictions_total (\S+)", measured, re.MULTILINE)[0]))
    print(
        f"{name}: {len(used)} requests, {sizes[0]} to {sizes[-1]} tokens in {N_CTX} cells, {sum(computed)} computed, "
        f"{n_evictions} evictions, {used[-1].usage.recalled} tokens quoted"
    )
    # Each line of the script once, and each request goes on where the one before ended: nothing was summed up.
    assert len(used) == len(lines)
    assert len(turns) - len(used) <= 1, "a title"
    for before, after in pairwise(used):
        assert after.request.messages[: len(before.request.messages)] == before.request.messages
    assert set(re.findall(r'^shepherd_requests_total\{status="(\d+)"', measured, re.MULTILINE)) == {"200"}
    assert sizes[-1] > 8 * N_CTX
    printed = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    assert agent.shown(printed, user.home) == sizes[-1]
    assert sum(computed) <= sizes[-1] + SLACK * len(used)
    assert used[-1].usage.recalled > 0
