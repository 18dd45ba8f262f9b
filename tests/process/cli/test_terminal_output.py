"""What the chat shows in a real terminal beside the answers: instructions of the folder, folds, rewinding, bells."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.process.cli.test_terminal import Person, Start, start  # noqa: F401 - a fixture
from tests.scripted_service import ScriptedService

from shepherd.core import Event, Message, Reasoning, Request, ToolCall, replay

if TYPE_CHECKING:
    from tests.process.cli.test_terminal import Listening
    from tests.unit.cli.conftest import Home

Scripted = Callable[..., Person]
FREE = ("--allow-tools", "*")

pytestmark = pytest.mark.model


def test_agents_md_is_asked_for_once_and_stands_in_the_banner(home: Home, start: Start) -> None:
    del home.env["SHEPHERD_TRUST"]
    (home.folder / "AGENTS.md").write_text("Be brief.\n")
    person = start()
    person.waits_for(r"AGENTS.md\s+\(1 line\)\s+is\s+new\s+here(.|\n)*Trust\s+it\?")
    person.types("y")
    person.waits_for(r"AGENTS.md: \d+ tokens")
    person.waits_for("> ")
    person.types("/context\r")
    person.waits_for(r"Of the system prompt, AGENTS.md: \d+ tokens")
    person.waits_for("> ")
    person.types("\x04")
    assert person.waits_for_the_end() == 0
    again = start()
    assert "Trust it?" not in again.waits_for(r"AGENTS.md: \d+ tokens")
    again.waits_for("> ")
    again.types("\x04")
    assert again.waits_for_the_end() == 0
    without = start("--no-agents-file")
    assert "AGENTS.md" not in without.waits_for("> ")
    without.types("\x04")
    assert without.waits_for_the_end() == 0


# -- a model that does as it is told ----------------------------------------------------------------------------------


def calling(name: str, **values: object) -> Message:
    return Message("assistant", (ToolCall("1", name, json.dumps(values)),))


@pytest.fixture
def scripted(home: Home, start: Start, listening: Listening) -> Iterator[Scripted]:
    """`scripted(*answers)` - a person before a chat whose model gives these answers, one for each request."""
    with ExitStack() as stack:

        def started(*answers: Message | str, arguments: Sequence[str] = (), settings: str = "") -> Person:
            left = [Message.assistant(each) if isinstance(each, str) else each for each in answers]

            async def script(request: Request) -> AsyncGenerator[Event, None]:
                for event in replay(left.pop(0), model="fake"):
                    yield event

            port = stack.enter_context(listening(ScriptedService(script)))
            address = f'type = "openai_compat"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
            (home.folder / "shepherd.toml").write_text(f"{settings}\n[providers.far]\n{address}")
            person = start("-m", "far/fake", *arguments)
            person.waits_for("> ")
            return person

        yield started


def test_rewind_shows_the_questions_and_puts_the_files_back(home: Home, scripted: Scripted) -> None:
    (home.folder / "a.txt").write_text("one\n")
    (home.folder / "a.txt").chmod(0o640)
    person = scripted(calling("write_file", path="a.txt", content="two\n"), "Changed.", "Yes.", arguments=FREE)
    person.types("Change it.\r")
    person.waits_for(r"Changed\.(.|\n)*> ")
    person.types("And?\r")
    person.waits_for(r"Yes\.(.|\n)*> ")
    assert (home.folder / "a.txt").read_text() == "two\n"
    person.types("/rewind\r")
    person.waits_for(r"Go back to before which question\?(.|\n)*› 2 +And\?(.|\n)*Esc leaves")
    person.types("\x1b[B")
    person.waits_for(r"› 1 +Change it\. +\(1 file\)")
    person.types("\r")
    person.waits_for(r"a\.txt is put back(.|\n)*Put these files back\?(.|\n)*Enter: no")
    person.types("y")
    person.waits_for(r"Put back: 1 file\.(.|\n)*Back to before: Change it\.(.|\n)*> ")
    assert (home.folder / "a.txt").read_text() == "one\n"
    assert (home.folder / "a.txt").stat().st_mode & 0o777 == 0o640
    person.types("/rewind\r")
    person.waits_for("There is nothing to go back to")
    person.types("\x04")
    assert person.waits_for_the_end() == 0


def test_a_chat_that_is_continued_later_can_be_rewound_too(home: Home, scripted: Scripted) -> None:
    person = scripted(calling("write_file", path="new/a.txt", content="two\n"), "Changed.", arguments=FREE)
    person.types("Change it.\r")
    person.waits_for(r"Changed\.(.|\n)*> ")
    person.types("\x04")
    assert person.waits_for_the_end() == 0
    assert (home.folder / "new" / "a.txt").exists()
    again = scripted(arguments=["--continue"])
    again.types("/rewind 1\r")
    again.waits_for(r"is removed(.|\n)*Put these files back\?(.|\n)*Enter: no")
    again.types("y")
    again.waits_for(r"Put back: 1 file\.(.|\n)*> ")
    assert not (home.folder / "new").exists()
    again.types("\x04")
    assert again.waits_for_the_end() == 0


def test_ctrl_o_shows_what_was_folded_whole_the_newest_first(home: Home, scripted: Scripted) -> None:
    (home.folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(40)))
    thoughts = Reasoning("\n".join(f"thought {n}" for n in range(20)))
    asked = calling("read_file", path="long.txt")
    person = scripted(replace(asked, parts=(thoughts, *asked.parts)), "It is long.")
    person.types("Read long.txt.\r")
    seen = person.waits_for(r"It is long\.(.|\n)*> ")
    assert "… 14 more lines (Ctrl-O)" in seen
    assert "  … 34 more lines (Ctrl-O)" in seen
    person.types("half a question")
    person.waits_for("half a question")
    person.types("\x0f")
    assert "line 25\n" in person.waits_for(r"2 of 2 folded(.|\n)*line 39(.|\n)*half a question")
    person.types("\x0f")
    assert "thought 12\n" in person.waits_for(r"1 of 2 folded(.|\n)*thought 19(.|\n)*half a question")
    person.types("\x03\x04")
    assert person.waits_for_the_end() == 0


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("notify", "code"), [("bell", "\a"), ("desktop", "\x1b]9;Shepherd: "), ("off", "")])
def test_the_end_of_a_long_turn_and_a_question_ring(home: Home, scripted: Scripted, notify: str, code: str) -> None:
    settings = f'[chat]\nnotify = "{notify}"\nnotify_after_s = 0\n'
    asks = calling("execute_command", command="true")
    person = scripted("Ready.", asks, "Done.", settings=settings, arguments=["--enable-tools", "command"])
    assert "\a" not in person.raw
    person.types("Hello.\r")
    person.waits_for(r"Ready\.(.|\n)*> ")
    rings = person.raw.count(code) if code else 0
    assert ("answer is ready" in person.raw) is (notify == "desktop")
    person.types("Run it.\r")
    person.waits_for("wants to run")
    person.waits_for("Enter: no")
    while code and person.raw.count(code) == rings:  # the question is drawn before the bell
        assert person.reads()
    person.types("y")
    person.waits_for(r"Done\.(.|\n)*> ")
    assert (person.raw.count("\a"), person.raw.count("\x1b]9;")) == {
        "bell": (3, 0), "desktop": (0, 3), "off": (0, 0)
    }[notify]  # fmt: skip
    person.types("\x04")
    assert person.waits_for_the_end() == 0


def test_a_pipe_never_rings(home: Home) -> None:
    (home.folder / "shepherd.toml").write_text("[chat]\nnotify_after_s = 0\n")
    assert "\a" not in home.run(text="Hello\n").stdout
