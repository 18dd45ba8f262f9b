"""The caller by headers and shapes: recorded ones of real clients, and similar ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import Completion, Message, Request, ToolSpec
from shepherd.server.http.caller import is_side_task, named_session, named_user, with_caller
from shepherd.server.observe.record import CALLER, Caller
from shepherd.wire.base import Decoded


def scope(**headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"headers": named, CALLER: Caller("", "127.0.0.1", is_alone=True)}


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({}, None),
        ({"x_claude_code_session_id": "s"}, "s"),
        ({"x_claude_code_session_id": "s", "x_claude_code_agent_id": "a"}, "s/a"),
        ({"x_claude_code_agent_id": "a"}, None),
        ({"x_session_id": "s", "x_session_affinity": "t"}, "s"),
        ({"x_session_affinity": "t"}, "t"),
        ({"session_id": "s", "thread_id": "s", "x_codex_window_id": "s:0"}, "s"),
        ({"session_id": "s", "thread_id": "t", "x_codex_window_id": "s:1"}, "s/t"),
        ({"x_openwebui_chat_id": "c"}, "c"),
        ({"x_session_id": "", "session_id": "s"}, "s"),
        ({"x_session_id": "x" * 1000}, "x" * 200),
    ],
)
def test_each_client_names_its_conversations_in_its_own_way(headers: Mapping[str, str], session: str | None) -> None:
    assert named_session(scope(**headers)) == session


def test_recorded_clients_keep_the_name_of_a_conversation(conformance: Path) -> None:
    names: dict[str, list[str]] = {}
    for path in sorted(conformance.glob("clients/*/*.json")):
        headers = json.loads(path.read_bytes())["headers"]
        found = named_session({"headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]})
        assert found, path
        names.setdefault(path.parent.name, []).append(found)
    assert len(set(names["claude-code"][:7])) == len(set(names["claude-code"][7:])) == 1
    assert names["claude-code"][0] != names["claude-code"][7]
    assert len(set(names["codex"])) == len(set(names["opencode"])) == 1


SYSTEM, ASK = Message.system("You make titles."), Message.user("Fix the bug")
TASK = Message.user(
    "### Task:\nMake a title.\n### Guidelines:\n- Short\n### Chat History:\n<chat_history>x</chat_history>"
)
CLAUDE, OPENCODE, CODEX = "claude-cli/2.1.197 (external, cli)", "opencode/1.18 ai-sdk", "codex_exec/0.169.0"


@pytest.mark.parametrize(
    ("messages", "program", "is_one"),
    [
        ((SYSTEM, ASK), CLAUDE, True),
        ((SYSTEM, ASK, ASK), OPENCODE, True),
        ((ASK,), CODEX, True),
        ((SYSTEM, ASK), "python-httpx/1.0", False),
        ((SYSTEM, ASK), "", False),
        ((SYSTEM, ASK, Message.assistant("Done."), ASK), CLAUDE, False),
        ((TASK,), "", True),
        ((SYSTEM, TASK), "aiohttp", True),
        ((ASK, Message.assistant("Yes?"), TASK), "", False),
        ((ASK, TASK), "", False),
        ((Message.user("### Task:\nWrite a poem."),), "", False),
        ((Message.user("Explain '### Task:\n### Output:'"),), "", False),
    ],
)
def test_side_tasks_are_known_by_their_shape(messages: tuple[Message, ...], program: str, is_one: bool) -> None:
    assert is_side_task(Request("m", messages), program) == is_one
    assert not is_side_task(Request("m", messages, (ToolSpec("f"),)), program)


def test_what_the_headers_say_reaches_every_choice_and_stands_above_the_body() -> None:
    choices = (Request("m", (ASK,), user="body", session="body"), Request("m", (ASK,)))
    told = scope(x_shepherd_user=" ann ", x_session_id="s", user_agent=OPENCODE)
    made = with_caller(Decoded(choices, False, None), told, trace=True)
    assert [(r.user, r.session, r.background, r.trace) for r in made.requests] == [("ann", "s", True, True)] * 2
    unnamed = with_caller(Decoded(choices, False, None), scope(x_shepherd_user="ann"), trace=False)
    assert unnamed.request.session == "ann"  # the body's user is no conversation, and neither is this one
    silent = with_caller(Decoded(choices, False, None), scope(), trace=False)
    assert silent.requests == choices
    assert named_user(scope()) is None
    bound = {**told, CALLER: Caller("key", "", is_alone=False, user="ada")}
    assert named_user(bound) == "ada"


def test_what_is_said_to_be_no_side_task_stays_none() -> None:
    asked = Decoded((Request("m", (ASK,), background=False),), False, None)
    assert with_caller(asked, scope(user_agent=CLAUDE), trace=False).request.background is False


def test_a_bare_prompt_of_a_plain_program_is_no_side_task() -> None:
    assert not is_side_task(Request("m", completion=Completion("### Task:\nx\n### Output:\n")), "curl/8")
