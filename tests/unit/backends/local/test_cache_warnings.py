"""What the log says of requests that lose their cache, or show what nobody sees: once for each change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shepherd.backends.local.cache_warnings import CacheWatch, fingerprint
from shepherd.core import Image, Message, Request, Text, ToolResult, ToolSpec

KIND, BRIEF, ASK = Message.system("Be kind."), Message.system("Be brief."), Message.user("1 + 2?")
ADD, SUB = ToolSpec("add", "", {"type": "object", "required": []}), ToolSpec("sub")


def request(*messages: Message, session: str | None = None, **fields: object) -> Request:
    return replace(Request("m", messages or (KIND, ASK), session=session), **fields)  # type: ignore[arg-type]


def told(caplog: pytest.LogCaptureFixture, requests: Sequence[Request]) -> list[str]:
    """For each request the warnings that it causes, joined."""
    watch = CacheWatch("main")
    made = []
    for each in requests:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            watch.notice(each)
        assert all(record.levelno == logging.WARNING for record in caplog.records)
        made.append(" | ".join(record.getMessage() for record in caplog.records))
    return made


def test_each_change_is_told_once_and_names_the_cache(caplog: pytest.LogCaptureFixture) -> None:  # PFX-13, PFX-14
    kind, brief = request(), request(BRIEF, ASK)
    first, again, changed, repeated, back = told(caplog, [kind, kind, brief, brief, kind])
    assert [first, again, repeated] == ["", "", ""]
    assert changed == back
    assert changed.startswith("the words of the system prompt on cache 'main' are not those of the last request: ")
    assert "potential cache miss" in changed
    assert "kind" not in caplog.text
    assert "brief" not in caplog.text


def test_it_is_told_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    requests = [request(), request(tools=(ADD,)), request(tools=(ADD, SUB)), request(BRIEF, ASK)]
    warnings = [warning.partition(" on cache")[0] for warning in told(caplog, requests)]
    assert warnings == ["", "the tools", "the tools", "the words of the system prompt and the tools"]


def test_conversations_with_a_name_are_compared_with_themselves(caplog: pytest.LogCaptureFixture) -> None:
    a, b = request(session="a"), request(BRIEF, ASK, session="b")
    assert told(caplog, [a, b, a, b, request(), request(BRIEF, ASK, session="a")])[:5] == [""] * 5
    assert "of this conversation" in told(caplog, [a, request(BRIEF, ASK, session="a")])[1]


def test_a_side_task_is_no_change_of_the_conversation_that_it_serves(caplog: pytest.LogCaptureFixture) -> None:
    for session in ("a", None):
        main, title = request(session=session, tools=(ADD,)), request(BRIEF, ASK, session=session, background=True)
        assert told(caplog, [main, title, main, title]) == [""] * 4


def test_what_says_the_same_has_one_fingerprint() -> None:
    same = [
        request(tools=(ADD,)),
        request(tools=(ADD,), tool_choice="none"),
        request(KIND, Message.user("Something else"), tools=(ADD,)),
        request(tools=(replace(ADD, parameters={"required": [], "type": "object"}),)),
        request(Message("system", (Text("Be "), Text("kind."))), ASK, BRIEF, tools=(ADD,)),
    ]
    assert len(set(map(fingerprint, same))) == 1
    other = [
        request(),
        request(tools=(ADD,), shows_tools=False),
        request(tools=(ADD, SUB)),
        request(Message.system("Be "), Message.system("kind."), ASK, tools=(ADD,)),
        request(tools=(replace(ADD, description="adds"),)),
    ]
    assert len({*map(fingerprint, other), fingerprint(same[0])}) == 5, "of no tools there are two"


def test_images_that_nobody_sees_are_told_once_per_conversation(caplog: pytest.LogCaptureFixture) -> None:
    image = Image("image/png", b"x")
    shown = Message("user", (Text("What is this?"), image))
    result = Message("tool", (ToolResult("1", (image,)),))
    answer = Message.assistant("A cat.")
    requests = [request(KIND, shown), request(KIND, shown, answer, shown), request(KIND, ASK, answer, result)]
    requests += [request(KIND, ASK, answer, result, ASK), request(KIND, ASK), request(KIND, shown, session="a")]
    warnings = told(caplog, requests)
    assert ["cannot see images" in warning for warning in warnings] == [True, False, True, False, False, True]
    assert all("'main'" in warning for warning in warnings if warning)
