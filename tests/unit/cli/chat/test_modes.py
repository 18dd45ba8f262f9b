"""The modes of a chat, and what the model reads of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.cli.playing import Play, Scripted

from shepherd.agent import modes
from shepherd.core import Message, Text
from shepherd.tools.permission import MODES


def texts(backend: Scripted) -> list[list[str]]:
    """The messages of the user in each request, with the notices."""
    return [[message.text for message in request.messages if message.role == "user"] for request in backend.requests]


async def test_the_model_reads_of_plan_mode_once_and_of_its_end_and_no_earlier_message_changes(play: Play) -> None:
    backend = Scripted()
    await play("one", "/mode plan", "two", "three", "/mode edits", "four", "five", backend=backend)
    sent = texts(backend)
    assert sent[-1] == ["one", f"{modes.PLAN_BEGINS}two", "three", f"{modes.PLAN_ENDS}four", "five"]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before


async def test_a_notice_that_was_taken_back_comes_again(play: Play) -> None:
    backend = Scripted()
    await play("/mode plan", "one", "/undo", "two", "/edit other", backend=backend)
    assert [sent[-1] for sent in texts(backend)] == [f"{modes.PLAN_BEGINS}{text}" for text in ("one", "two", "other")]


async def test_the_command_shows_and_changes_the_mode_and_names_the_others(play: Play) -> None:
    done = await play("/mode", "/mode accept  edits", "/mode PLAN", "/mode bypass")
    assert "Mode: ask. It asks before" in done.out
    assert "/mode edits and /mode plan change it" in done.out
    assert "Mode: accept edits. It writes files in the working folder without a question" in done.out
    assert done.chat.mode == "plan"
    assert "there is no mode 'bypass'; the modes are ask, edits, plan" in done.out


def test_the_key_goes_through_all_modes_and_back() -> None:
    seen = ["ask"]
    while (mode := modes.following(modes.read(seen[-1]))) != "ask":
        seen.append(mode)
    assert seen == [*MODES]


def test_a_conversation_that_was_saved_in_plan_mode_goes_on_outside_of_it() -> None:
    saved = [Message("user", (Text(modes.PLAN_BEGINS, aside=True), Text("Hi"))), Message.assistant("Yes")]
    assert modes.notices("plan", saved) == ()
    assert modes.notices("ask", saved) == (Text(modes.PLAN_ENDS, aside=True),)
    assert modes.notices("ask", [Message.user(modes.PLAN_BEGINS)]) == (), "only our own notice counts"


@pytest.mark.parametrize("line", ["!ls", "!", "!important: read this"])
async def test_a_pipe_runs_no_command_and_says_how_to_send_such_a_message(play: Play, line: str) -> None:
    backend = Scripted()
    done = await play(line, f" {line}", backend=backend)
    assert done.status == 1
    assert "put a space before such a message" in done.err
    assert texts(backend) == [[line]]
