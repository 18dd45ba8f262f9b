"""Questions to the person during a turn: the lines on the screen, the meaning of the keys, and no accidental yes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.cli.small_terminal import Terminal

from shepherd.cli.terminal.consent import TerminalPerson, exposed
from shepherd.cli.terminal.keyboard import END, ENTER, TerminalKeyboard
from shepherd.cli.terminal.screen import Screen
from shepherd.tools.base import Effect, Form, Question, Verdict
from shepherd.tools.permission import EFFECTS

COMMAND = Question("execute_command", {"command": "npm test", "timeout": 30}, "run", "npm test")


class Keys:
    """A keyboard whose keys are known, or come when the test sends them."""

    def __init__(self, *keys: str, lines: tuple[str | None, ...] = ()) -> None:
        self.keys: asyncio.Queue[str] = asyncio.Queue()
        for key in keys:
            self.keys.put_nowait(key)
        self.lines = list(lines)
        self.asked: list[tuple[str, str]] = []
        self.n_listening = 0
        self.on_wait: Callable[[], None] = lambda: None

    @contextmanager
    def listen(self) -> Iterator[None]:
        self.n_listening += 1
        assert self.n_listening == 1
        try:
            yield
        finally:
            self.n_listening -= 1

    async def key(self) -> str:
        assert self.n_listening == 1
        self.on_wait()
        return await self.keys.get()

    async def line(self, prompt: str, default: str = "") -> str | None:
        self.asked.append((prompt, default))
        return self.lines.pop(0)


class Asked:
    """A person with these keys in front of a small terminal."""

    def __init__(self, *keys: str, lines: tuple[str | None, ...] = (), width: int = 80, height: int = 60) -> None:
        self.terminal = Terminal(width, height)
        console = Console(file=self.terminal, force_terminal=True, width=width, height=height, highlight=False)  # type: ignore[arg-type]  # what a console needs of a file
        self.screen = Screen(console)
        self.keys = Keys(*keys, lines=lines)
        self.person = TerminalPerson(self.screen, cast("TerminalKeyboard", self.keys))
        self.while_asked: list[list[str]] = []
        """What stood there at every wait for a key."""
        self.keys.on_wait = lambda: self.while_asked.append(self.terminal.lines)

    @property
    def lines(self) -> list[str]:
        return self.terminal.lines


# -- may this be done -------------------------------------------------------------------------------------------------


async def test_a_question_shows_the_call_and_gives_way_to_the_answer() -> None:
    asked = Asked("y")
    assert await asked.person.allow(COMMAND) == "once"
    question = ["", "execute_command wants to run a program", "  npm test", "  timeout: 30"]
    keys = "[y] once  [s] this conversation  [a] always here  [n] no  [d] never  Enter: no"
    assert asked.while_asked == [[*question, keys]]
    assert asked.lines == [*question, "Allowed once."]


@pytest.mark.parametrize(
    ("key", "verdict"),
    [("y", "once"), ("s", "session"), ("a", "always"), ("n", "no"), ("d", "never"), (ENTER, "no"), (END, "no")],
)
async def test_every_key_has_its_verdict_and_others_have_none(key: str, verdict: Verdict) -> None:
    asked = Asked("x", "Y", "escape", "v", "c-m", key, "a")
    assert await asked.person.allow(COMMAND) == verdict
    assert asked.keys.keys.qsize() == 1


async def test_a_question_of_each_time_offers_no_answer_that_lasts() -> None:
    asked = Asked("s", "a", "y")
    assert await asked.person.allow(Question("write_file", {}, "write", "shepherd.toml", each_time=True)) == "once"
    assert asked.while_asked[0][-1] == "[y] once  [n] no  [d] never  Enter: no"


@pytest.mark.parametrize(
    ("effect", "wants"),
    [("read", "look at something"), ("write", "change something"), ("run", "run a program"), ("net", "call another")],
)
async def test_the_question_says_what_may_happen_and_why_it_is_asked(effect: Effect, wants: str) -> None:
    asked = Asked("n")
    await asked.person.allow(Question("f", {}, effect, "x", why="outside of the working folder"))
    assert asked.lines[1].startswith(f"f wants to {wants}")
    assert asked.lines[1].endswith(" (outside of the working folder)")
    asked = Asked("n")
    await asked.person.allow(Question("f", {}, effect, "x", why=EFFECTS[effect]))
    assert "(" not in asked.lines[1]


@pytest.mark.parametrize(("key", "expected"), [("y", True), ("n", False), (ENTER, False), (END, False)])
async def test_a_question_of_the_program_is_answered_with_yes_or_no(key: str, expected: bool) -> None:
    asked = Asked("x", key)
    assert await asked.person.confirm("a\nb.md exists. Overwrite it?") is expected
    assert asked.while_asked[0] == ["", "a␊b.md exists. Overwrite it?", "[y] yes  [n] no  Enter: no"]
    assert asked.lines[-1] == ("Yes." if expected else "No.")


async def test_a_diff_is_shown_and_can_be_seen_whole() -> None:
    diff = "--- a\n+++ a\n@@ -1 +1,90 @@\n" + "".join(f"+line {n}\n" for n in range(90))
    asked = Asked("v", "v", "n", height=40)
    question = Question("write_file", {"path": "a", "content": "x\n" * 90}, "write", "a", diff)
    assert await asked.person.allow(question) == "no"
    first, whole, _ = asked.while_asked
    assert first[2:6] == ["  a", "  content:", "    x", "    x"]
    assert "  … 65 more lines" in first
    assert "[v] view all of it" in " ".join(first[-2:])
    assert "  +line 89" not in first
    assert "  +line 89" in whole
    assert "[v]" not in "".join(whole[-2:])
    assert whole == asked.while_asked[2]


async def test_a_question_that_is_short_has_nothing_to_view() -> None:
    asked = Asked("v", "n")
    await asked.person.allow(COMMAND)
    assert asked.while_asked[0] == asked.while_asked[1]
    assert "[v]" not in "".join(asked.while_asked[0])


async def test_no_sign_of_a_command_can_hide_another_one() -> None:
    command = "echo hi\r\x1b[2K\x1b[1A\trm\u00a0-rf \u202e~\u200b\u2066 \u2028\x00\x9b2K\ud800" + " " * 300 + "; reboot"
    asked = Asked("n")
    await asked.person.allow(Question("execute_command", {"command": command}, "run", command))
    shown = "".join(asked.lines)
    for sign in ("echo hi␍␛[2K␛[1A␉rm�-rf �~�� �␀�2K�", "; reboot"):
        assert sign in shown


@given(st.text(), st.booleans())
def test_exposed_text_has_nothing_that_is_not_seen(text: str, in_one_line: bool) -> None:
    shown = exposed(text, in_one_line=in_one_line)
    assert len(shown) == len(text)
    assert all(character.isprintable() for character in shown.replace("\n", ""))
    assert not (in_one_line and "\n" in shown)


async def test_questions_wait_for_each_other() -> None:
    asked = Asked()
    first = asyncio.create_task(asked.person.allow(Question("one", {}, "run", "1")))
    second = asyncio.create_task(asked.person.allow(Question("two", {}, "run", "2")))
    third = asyncio.create_task(asked.person.fill(Form("server", "three")))
    waiting = asyncio.Event()
    asked.keys.on_wait = waiting.set
    await waiting.wait()
    assert "one wants to run a program" in asked.lines
    assert not any("two" in line for line in asked.lines)
    asked.keys.keys.put_nowait("y")
    asked.keys.keys.put_nowait("d")
    asked.keys.keys.put_nowait("n")
    assert await first == "once"
    assert await second == "never"
    assert await third is None
    assert [line for line in asked.lines if line.endswith((".", "program", ":"))] == [
        "one wants to run a program",
        "Allowed once.",
        "two wants to run a program",
        "Not allowed in this conversation.",
        "The MCP server server asks:",
        "No.",
    ]


async def test_it_is_said_how_many_questions_wait() -> None:
    asked = Asked()
    first = asyncio.create_task(asked.person.allow(COMMAND))
    waiting = asyncio.Event()
    asked.keys.on_wait = waiting.set
    await waiting.wait()
    assert "question" not in " ".join(asked.lines[-2:])
    others = [asyncio.create_task(asked.person.allow(COMMAND)) for _ in range(2)]
    await asyncio.sleep(0)
    assert "(2 more questions)" in " ".join(asked.lines[-2:])
    others[0].cancel()
    await asyncio.wait(others[:1])
    assert "(1 more question)" in " ".join(asked.lines[-2:])
    for _ in range(2):
        asked.keys.keys.put_nowait("n")
    assert [await first, await others[1]] == ["no", "no"]


async def test_a_turn_that_is_stopped_takes_its_questions_away() -> None:
    asked = Asked()
    asked.screen.update([], ["a call that runs"])
    waiting = asyncio.Event()
    asked.keys.on_wait = waiting.set
    tasks = [asyncio.create_task(asked.person.allow(COMMAND)) for _ in range(2)]
    await waiting.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert asked.lines[-3:] == ["Not answered.", "", "a call that runs"]
    asked.keys.keys.put_nowait("y")
    assert await asked.person.allow(COMMAND) == "once"


async def test_what_is_drawn_meanwhile_comes_behind_the_question() -> None:
    asked = Asked()
    asked.screen.update([], ["⠋ a call"])

    def draw() -> None:
        asked.screen.update(["a result"], ["⠙ a call"])
        assert asked.lines[-1].startswith("[y] once")
        asked.keys.keys.put_nowait("y")

    asked.keys.on_wait = draw
    await asked.person.allow(COMMAND)
    assert asked.lines[-4:] == ["Allowed once.", "", "a result", "⠙ a call"]


@pytest.mark.parametrize("width", [1, 9, 30])
@pytest.mark.parametrize("height", [1, 5])
async def test_no_terminal_is_too_small_for_a_question(width: int, height: int) -> None:
    asked = Asked("v", "y", width=width, height=height)
    text = "日本語 " * 30 + "\n" * 30
    assert await asked.person.allow(Question("f", {"a": text, "b": [1]}, "write", text, "+" + text)) == "once"


# -- may a server have that -------------------------------------------------------------------------------------------

FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "description": "Where you\nlive"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "unit": {"type": "string", "enum": ["c", "f"], "enumNames": ["Celsius", "Fahrenheit"]},
    },
    "required": ["city"],
}


async def test_a_form_is_asked_field_by_field_until_every_answer_fits() -> None:
    asked = Asked("y", lines=("", "Wien", "9", "5", "celsius"))
    assert await asked.person.fill(Form("weather", "Where?", FORM)) == {"city": "Wien", "days": 5, "unit": "c"}
    drafts = [("City", ""), ("City", ""), ("days", "3"), ("days", "9"), ("unit", "")]
    assert asked.keys.asked == [(f"  {title}: ", draft) for title, draft in drafts]
    assert asked.lines == [
        "",
        "The MCP server weather asks:",
        "  Where?",
        "Ctrl-D refuses.",
        "  Where you␊live",
        "  (text)",
        "  City:",
        "  This needs an answer; Ctrl-D refuses the whole form.",
        "  City: Wien",
        "  (a whole number from 1 to 7; may stay empty)",
        "  days: 9",
        "  '9' is not a whole number from 1 to 7.",
        "  days: 5",
        "  1. Celsius",
        "  2. Fahrenheit",
        "  (its number or name; may stay empty)",
        "  unit: celsius",
        "Sent.",
    ]
    assert asked.while_asked[0][-1] == "[y] send  [e] fill in again  [n] no"


async def test_a_form_can_be_filled_in_again_and_what_stays_empty_is_left_out() -> None:
    asked = Asked("e", ENTER, "y", lines=("Wien", "5", "", "Graz", "", "2"))
    assert await asked.person.fill(Form("weather", "Where?", FORM)) == {"city": "Graz", "unit": "f"}
    assert asked.keys.asked[3:] == [("  City: ", "Wien"), ("  days: ", "5"), ("  unit: ", "")]


@pytest.mark.parametrize("keys", ["n", END])
async def test_a_form_that_is_filled_in_is_not_sent_without_a_yes(keys: str) -> None:
    assert await Asked(keys, lines=("Wien", "5", "")).person.fill(Form("weather", "Where?", FORM)) is None


async def test_a_form_with_one_field_is_sent_at_once_and_can_be_refused() -> None:
    one = {"properties": {"ok": {"type": "boolean"}}}
    assert await Asked(lines=("yes",)).person.fill(Form("s", "Well?", one)) == {"ok": True}
    assert await Asked(lines=("",)).person.fill(Form("s", "Well?", one)) == {}
    asked = Asked(lines=(None,))
    assert await asked.person.fill(Form("s", "Well?", one)) is None
    assert asked.lines[-1] == "Refused."


@pytest.mark.parametrize(("key", "values"), [("y", {}), ("n", None), (ENTER, None), (END, None)])
@pytest.mark.parametrize("fields", [{}, {"type": "object", "properties": {}}])
async def test_a_form_without_fields_is_a_yes_or_no(key: str, values: Any, fields: dict[str, Any]) -> None:
    asked = Asked(key)
    assert await asked.person.fill(Form("s", "May it ask the model:\nuser: hi\x1b[2J", fields)) == values
    assert asked.lines[:4] == ["", "The MCP server s asks:", "  May it ask the model:", "  user: hi␛[2J"]


async def test_an_address_is_shown_with_its_machine_and_not_opened() -> None:
    asked = Asked("y")
    assert await asked.person.fill(Form("s", "Sign in", url="https://user@аpple.com:80/a?b=1\u202e")) == {}
    assert asked.lines[3:6] == [
        "It asks you to open this page yourself. Answer yes to agree:",
        "  https://user@аpple.com:80/a?b=1�",
        "  on the machine xn--pple-43d.com",
    ]


async def test_a_form_that_cannot_be_asked_is_refused_in_a_sentence() -> None:
    asked = Asked()
    form = Form("s", "Well?", {"properties": {"x": {"type": "object"}}})
    assert await asked.person.fill(form) is None
    assert asked.lines[-1] == "The field 'x' has the type 'object', which forms do not allow. Refused."
