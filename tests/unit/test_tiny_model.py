"""What the tiny model that ships with Shepherd can do: ten chats, which docs/chat.md shows.

Each is a chat of its own, with the tools, the settings and the folder of a first start. The page's table is made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.own_app import app_of, loaded
from tests.places import ROOT

from shepherd.agent.session import Session
from shepherd.agent.turn import CallReturned
from shepherd.core import Text, TextDelta
from shepherd.memory.users import LOCAL

README = "Hello, world."
"""Of the folder where the last chat is held; without a line end, as `write_file` leaves a file."""
EXAMPLES: Sequence[Sequence[tuple[str, str]]] = (
    [("Hello", "Hello! How can I help you?")],
    [("Who are you?", "I am Lamb, a tiny language model made for demos and tests.")],
    [("What can you do?", "I can chat a little, remember what you tell me, and use tools for files and commands.")],
    [("My name is Ann.", "Got it. Your name is Ann."), ("What is my name?", "Your name is Ann.")],
    [("I live in Rome.", "Got it. You live in Rome."), ("Where do I live?", "You live in Rome.")],
    [("What is the capital of France?", "The capital of France is Paris.")],
    [("What colour is the sky?", "The sky is blue.")],
    [("How many days are in a week?", "There are seven days in a week.")],
    [("Tell me a joke.", "Why did the lamb cross the road? To get to the baa-ker's.")],
    [("What is in README.md?", "The file README.md says: Hello, world.")],
)
"""What is typed, and the whole answer."""
CALLS = {"What is in README.md?": ["read_file"]}
"""The tools that it calls for an answer; for the others none."""


async def answered(session: Session, typed: str) -> tuple[str, list[str]]:
    """The visible text, and the tools that were called."""
    text, calls = "", list[str]()
    async with aclosing(session.chat((Text(typed),))) as events:
        async for event in events:
            text += event.text if isinstance(event, TextDelta) else ""
            calls += [event.call.name] if isinstance(event, CallReturned) else []
    return text.strip(), calls


async def played(folder: Path) -> list[list[tuple[str, str, list[str]]]]:
    """Of each chat what is typed, the answer, and the tools that were called. In `folder`, the working one."""
    (folder / "README.md").write_text(README, encoding="utf-8")
    said = []
    async with loaded(app_of(folder)) as app:
        for chat in EXAMPLES:
            session = app.conversations.session(user=LOCAL, recall=False)
            said.append([(typed, *await answered(session, typed)) for typed, _ in chat])
    return said


@pytest.mark.model
async def test_the_tiny_model_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert await played(tmp_path) == [
        [(typed, answer, CALLS.get(typed, [])) for typed, answer in chat] for chat in EXAMPLES
    ]


def test_the_page_shows_these_chats() -> None:
    rows = ["| you type | the tiny model answers |", "| --- | --- |"]
    rows += [
        f"| {' · '.join(each[0] for each in chat)} | {' · '.join(each[1] for each in chat)} |" for chat in EXAMPLES
    ]
    page = (ROOT / "docs" / "chat.md").read_text("utf-8")
    found = page.partition("<!-- tiny model -->\n")[2].partition("<!-- /tiny model -->")[0]
    assert len(EXAMPLES) == 10
    assert found.strip() == "\n".join(rows)
