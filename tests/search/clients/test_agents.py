"""Claude Code, Codex, opencode and pi, started by `shepherd launch`: they do what the model says in a folder."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from tests.places import ROOT
from tests.scripted_service import playing, saying
from tests.search.clients import nonsense
from tests.search.clients.script import Line, Use, pieces, play
from tests.search.clients.stage import Staging, User

from shepherd.cli.command.launch_settings import CLIENTS, LaunchTarget, Settings
from shepherd.core import ContextFull, Request

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

Serving = Callable[..., AbstractContextManager[str]]

CONFIGS = ROOT / "configs"

WRITTEN = "Good day, Shepherd ünd 🐑\n"


@dataclass(frozen=True, slots=True)
class Agent:
    """How a client is asked one question and leaves, and which of its tools make and change `hello.txt`."""

    ask: tuple[str, ...]
    go_on: tuple[str, ...]
    """The same in the conversation before."""
    uses: Callable[[str], Sequence[Use]]
    """From the file's path: the calls that leave `WRITTEN` and a line `done` in it."""
    surface: str


def claude_uses(file: str) -> Sequence[Use]:
    return (
        Use(
            "Write",
            {"file_path": file, "content": WRITTEN.replace("Good day", "Hello")},
            "I write it.",
            "Let me think.",
        ),
        Use("Read", {"file_path": file}),
        Use("Edit", {"file_path": file, "old_string": "Hello", "new_string": "Good day"}, thinking="Now the edit."),
        Use("Bash", {"command": "echo done >> hello.txt", "description": "Say that it is done"}),
    )


def codex_uses(file: str) -> Sequence[Use]:
    return (
        Use("exec_command", {"cmd": f"printf %s '{WRITTEN}' > hello.txt"}, "I write it.", "Let me think."),
        Use("exec_command", {"cmd": "cat hello.txt"}),
        Use("exec_command", {"cmd": "echo done >> hello.txt"}, thinking="Nearly there."),
    )


def opencode_uses(file: str) -> Sequence[Use]:
    return (
        Use(
            "write", {"filePath": file, "content": WRITTEN.replace("Good day", "Hello")}, "I write it.", "Let me think."
        ),
        Use("read", {"filePath": file}),
        Use("edit", {"filePath": file, "oldString": "Hello", "newString": "Good day"}, thinking="Now the edit."),
        Use("bash", {"command": "echo done >> hello.txt", "description": "Say that it is done"}),
    )


def pi_uses(file: str) -> Sequence[Use]:
    return (
        Use("write", {"path": file, "content": WRITTEN.replace("Good day", "Hello")}, "I write it.", "Let me think."),
        Use("read", {"path": file}),
        Use("edit", {"path": file, "edits": [{"oldText": "Hello", "newText": "Good day"}]}, thinking="Now the edit."),
        Use("bash", {"command": "echo done >> hello.txt"}),
    )


CLAUDE = ("-p", "--dangerously-skip-permissions", "--max-turns", "12")
CODEX = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
AGENTS = {
    "claude": Agent(CLAUDE, (*CLAUDE, "--continue"), claude_uses, "/v1/messages"),
    "codex": Agent(("exec", *CODEX), ("exec", "resume", "--last", *CODEX), codex_uses, "/v1/responses"),
    "opencode": Agent(("run",), ("run", "--continue"), opencode_uses, "/v1/chat/completions"),
    "pi": Agent(("-p",), ("-p", "--continue"), pi_uses, "/v1/chat/completions"),
}

agents = pytest.mark.parametrize("name", AGENTS)


@agents
async def test_an_agent_uses_its_tools_and_goes_on_later(
    name: str, staging: Staging, installed: Callable[[str], None]
) -> None:
    installed(name)
    agent = AGENTS[name]
    lines: list[Line] = []
    with staging(play(lines)) as stage:
        file = stage.user.project / "hello.txt"
        uses = agent.uses(str(file))
        lines += [*uses, "All of it is done.", uses[1], "And so it ends."]
        first = await stage.launch(name, *agent.ask, "Write the file")
        assert first.status == 0, first
        assert "All of it is done." in first.out
        assert file.read_text() == WRITTEN + "done\n"
        second = await stage.launch(name, *agent.go_on, "Read it again")
        assert second.status == 0, second
        assert "And so it ends." in second.out
        assert stage.refused == []
        assert {agent.surface} == {each.path for each in stage.seen if each.method == "POST"} - {COUNT}
        turns = [request for request in stage.service.requests if request.tools]
    assert len(turns) == len(lines)
    assert_every_call_was_answered(turns[-1])
    assert len({request.session for request in turns[: len(uses) + 1]}) == 1
    # Thoughts and calls come back as they went out, so nothing has to be read twice.
    for before, after in pairwise(turns):
        assert after.tools == before.tools
        assert after.messages[: len(before.messages)] == before.messages
    assert [message.reasoning for message in turns[-1].messages if message.reasoning] == [
        line.thinking for line in lines if isinstance(line, Use) and line.thinking
    ]


COUNT = "/v1/messages/count_tokens"
"""Asked by `shepherd launch` itself, to see which names lead somewhere."""


def assert_every_call_was_answered(request: Request) -> None:
    calls = [call.id for message in request.messages for call in message.calls]
    results = [part.call_id for message in request.messages for part in message.parts if hasattr(part, "call_id")]
    assert calls == results


@pytest.mark.parametrize("path", ["", "/v1"])
async def test_claude_code_needs_nothing_but_the_address(
    path: str, staging: Staging, installed: Callable[[str], None]
) -> None:
    """It asks for models of Anthropic's, and many users end the address in /v1."""
    installed("claude")
    lines: list[Line] = []
    with staging(play(lines)) as stage:
        lines += [*claude_uses(str(stage.user.project / "hello.txt")), "All of it is done."]
        told = (f"ANTHROPIC_BASE_URL={stage.url}{path}", "ANTHROPIC_AUTH_TOKEN=any")
        ran = await stage.user.run("env", *told, "claude", *CLAUDE, "Write the file")
        assert ran.status == 0, ran
        assert (stage.user.project / "hello.txt").read_text() == WRITTEN + "done\n"
        assert {each.status for each in stage.seen if each.method == "POST"} == {200}
    assert all(request.model.startswith("claude-") for request in stage.service.requests)


BY_HAND = {
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "pi": ".pi/agent/models.json",
}


@pytest.mark.parametrize("name", BY_HAND)
async def test_an_agent_can_be_set_up_by_hand_as_its_ready_configuration_says(
    name: str, staging: Staging, installed: Callable[[str], None]
) -> None:
    installed(name)
    comments = re.findall(r"^#(.*)$", (CONFIGS / f"{name}.toml").read_text(), re.MULTILINE)
    (start,) = (index for index, line in enumerate(comments) if line.endswith(f"{Path(BY_HAND[name]).name}:"))
    with staging(play(["All of it is done."])) as stage:
        file = stage.user.home / BY_HAND[name]
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(comments[start + 1 :]).replace("http://127.0.0.1:8000", stage.url))
        ran = await stage.user.run(name, *AGENTS[name].ask, "Hello")
        assert ran.status == 0, ran
        assert "All of it is done." in ran.out
        assert stage.refused == []
        assert {each.path for each in stage.seen if each.method == "POST"} == {AGENTS[name].surface}


PATCH = """*** Begin Patch
*** Add File: hello.txt
+Good day, Shepherd ünd 🐑
*** End Patch
"""


async def test_codex_is_given_patches_as_free_text(staging: Staging, installed: Callable[[str], None]) -> None:
    """What it calls a custom tool is a function with one argument to the model."""
    installed("codex")
    lines: list[Line] = [Use("apply_patch", {"input": PATCH}, "I write it."), "All of it is done."]
    with staging(play(lines)) as stage:
        catalog = httpx2.get(f"{stage.url}/v1/models").json()["models"]
        entry = {**catalog[0], "apply_patch_tool_type": "freeform"}
        served = LaunchTarget(stage.url, "scripted", n_ctx=200_000, catalog=(entry,))
        settings = CLIENTS["codex"].configure(served, ())
        for name, text in settings.files.items():
            (stage.user.home / name).write_text(text)
        arguments = settings.in_folder(str(stage.user.home))
        ran = await stage.user.run("env", *told(settings), "codex", *arguments, *AGENTS["codex"].ask, "Write the file")
        assert ran.status == 0, ran
        assert (stage.user.project / "hello.txt").read_text() == WRITTEN
        assert stage.refused == []
    assert_every_call_was_answered(stage.service.requests[-1])
    (call,) = (call for message in stage.service.requests[-1].messages for call in message.calls)
    assert json.loads(call.arguments) == {"input": PATCH}


WHOLE_FILE = "Here it is:\n\nhello.txt\n```\nGood day, Shepherd\n```\n"


async def test_aider_knows_the_model_and_takes_a_file_from_its_text(
    staging: Staging, installed: Callable[[str], None]
) -> None:
    installed("aider")
    quiet = ("--yes-always", "--no-git", "--no-analytics", "--no-check-update", "--no-show-release-notes")
    with staging(saying(*pieces(WHOLE_FILE)), n_ctx=65_536) as stage:
        ran = await stage.launch("aider", *quiet, "--edit-format", "whole", "--message", "Write the file")
        assert ran.status == 0, ran
        assert (stage.user.project / "hello.txt").read_text() == "Good day, Shepherd\n"
        assert stage.refused == []
    assert "Applied edit to hello.txt" in ran.out
    # It would say so of a model that it has no figures of.
    assert "Unknown context window" not in ran.out + ran.err


def told(settings: Settings) -> list[str]:
    return [f"{name}={value}" for name, value in settings.variables.items()]


@agents
async def test_an_agent_tells_its_user_that_the_context_is_full(
    name: str, staging: Staging, installed: Callable[[str], None]
) -> None:
    installed(name)
    with staging(playing(ContextFull(needed=70_000, limit=65_536)), n_ctx=65_536) as stage:
        ran = await stage.launch(name, *AGENTS[name].ask, "Hello")
        assert {each.status for each in stage.refused} <= {400}
        assert "ontext" in ran.out + ran.err or "too long" in ran.out + ran.err, ran
        # It does not ask for ever.
        assert len(stage.seen) < 20


@agents
async def test_an_agent_and_a_server_survive_a_model_that_says_nonsense(
    name: str, user: User, installed: Callable[[str], None], lamb: Path, tmp_path: Path
) -> None:
    """The whole thing: a server of our own, a real engine, a long first prompt, and answers that mean nothing."""
    installed(name)
    model = tmp_path / "nonsense.gguf"
    nonsense.write(lamb, model)
    serving = ("--model", str(model), "--context-size", "128k", "--reserve", "400", "--port", "0", "--threads", "1")
    command = (sys.executable, "-m", "shepherd", "launch", name, *serving, "--temperature", "0.8", "--seed", "1", "--")
    for words in (AGENTS[name].ask, AGENTS[name].go_on):
        ran = await user.run(*command, *words, "Write the file", timeout_s=160)
        # Whether an answer of nothing is a success is the client's opinion; that it ends is ours.
        assert ran.status in {0, 1}, ran
    logs = [file.read_text() for file in user.home.glob(".local/state/shepherd/log/*.log")]
    assert len(logs) == 2
    for log in logs:
        assert "Traceback" not in log
        statuses = re.findall(r"^\[INFO \].* status=(\d+)", log, re.MULTILINE)
        assert statuses
        assert set(statuses) <= {"200", "0"}, log


async def test_claude_code_on_its_ready_configuration(
    user: User, installed: Callable[[str], None], lamb: Path, tmp_path: Path, start_server: Serving
) -> None:
    """Scenarios 18 and 19, on a model that says nonsense: what was read once is not read again, and a side task that
    does not fit into its small cache is refused without a trace in the large one."""
    installed("claude")
    nonsense.write(lamb, tmp_path / "nonsense.gguf")
    ready = (CONFIGS / "claude-code.toml").read_text()
    model = "hf:Qwen/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M"
    assert model in ready
    ready = ready.replace(model, "nonsense.gguf")
    (tmp_path / "ready.toml").write_text(f"max_tokens = 300\n{ready}")
    log = tmp_path / "server.log"
    with start_server("--config", str(tmp_path / "ready.toml"), log=log) as url:
        command = (
            sys.executable,
            "-m",
            "shepherd",
            "launch",
            "claude",
            "--url",
            url,
            "--reserve",
            "4000",
            "--",
            *CLAUDE,
        )
        await user.run(*command, "Say something")
        aside = await user.run(*command, "--model", "haiku", "A title, please")
        assert "too long" in aside.out + aside.err, aside
        await user.run(*command, "--continue", "Go on")
    said = log.read_text()
    assert "Traceback" not in said
    asked = re.findall(r"anthropic-messages model=(\S+) .* cache=(\S+) .*in=(\d+) cached=(\d+) .* status=(\d+)", said)
    assert {(model, cache) for model, cache, *_, status in asked if status == "200"} == {("coder", "main")}
    assert {status for model, *_, status in asked if model != "coder"} == {"400"}
    (_, _, prompt, cached, _), *later = [each for each in asked if each[-1] == "200"]
    assert (int(prompt) > 20_000, cached) == (True, "0")
    assert later
    for _, _, prompt, cached, _ in later:
        assert int(cached) > 0.9 * int(prompt)
