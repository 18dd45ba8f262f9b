"""A person chats on the page: with the embedded model, and with one that says what the test wants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests import started
from tests.browser import Visit
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.providers_replay import Way
from tests.providers_scripted import Heard, Said

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "One two three four five six seven eight nine ten."


class Pausing:
    """An answer that stops in its middle until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    def __call__(self, heard: Heard) -> Said:
        return Said(LONG, hangs_behind="five", way=Way(go_on=self.go_on))


async def test_the_embedded_model_answers_and_the_answer_is_saved(house: House, visit: Visit) -> None:
    person = Person(visit.page)
    await person.says("Hello!")
    await person.hears("Hello! How can I help you?")
    await expect(visit.page).to_have_url(re.compile(r"#/chat/\d{4}-"))
    await visit.page.reload()
    await person.hears("Hello! How can I help you?")
    saved = house.chats.load(str(house.chats.newest()))
    assert [message.text for message in saved.messages] == ["Hello!", "Hello! How can I help you?"]


async def test_escape_stops_an_answer_and_what_came_stays(house: House, script: Visit) -> None:
    house.provider.script = Pausing()
    person = Person(script.page)
    await person.says("Count.")
    await expect(person.answers.last).to_contain_text("four five")
    await script.page.keyboard.press("Escape")
    await expect(person.stop).to_have_count(0)
    await expect(person.answers.last).to_contain_text("four five")
    await expect(person.answers.last).not_to_contain_text("six")
    house.provider.script = lambda heard: Said("Heard.")
    await person.says("Are you there?")
    await person.hears("Heard.")


async def test_a_retry_and_an_edit_keep_what_was_there_as_branches(house: House, script: Visit) -> None:
    house.provider.script = lambda heard: Said(f"Answer {heard.number} to {heard.last}")
    person = Person(script.page)
    await person.says("First")
    await person.hears("to First")
    first = await person.answers.last.inner_text()
    await person.questions.last.hover()
    await script.page.get_by_role("button", name="Retry").click()
    await expect(script.page.get_by_text("2/2")).to_be_visible()
    await person.hears("to First")
    assert await person.answers.last.inner_text() != first
    await script.page.get_by_role("button", name="Branch before").click()
    await expect(script.page.get_by_text("1/2")).to_be_visible()
    await script.page.get_by_role("button", name="Edit question").click()
    await person.page.get_by_role("textbox", name="Edit question").fill("Second")
    await script.page.keyboard.press("Enter")
    await person.hears("to Second")
    await script.page.reload()
    await person.hears("to Second")
    await script.page.get_by_role("button", name="Branch before").click()
    await person.hears("to First")


def writes(file: Path, text: str) -> Callable[[Heard], Said]:
    """A model that writes this to a file, once for each message."""
    call = Said("", calls=(("write_file", {"path": str(file), "content": text}),))
    return lambda heard: Said("Done.") if heard.results else call


async def test_a_write_waits_for_consent(house: House, script: Visit) -> None:
    file, person = house.folder / "list.txt", Person(script.page)
    house.provider.script = writes(file, "Buy milk\n")
    for verdict, text in (("Do not allow", None), ("Allow once", "Buy milk")):
        await person.says("Write Buy milk to list.txt.")
        await expect(person.question).to_contain_text("write_file wants to change something")
        await expect(person.question).to_contain_text("+Buy milk")
        assert not file.exists()
        await person.question.get_by_role("button", name=verdict).click()
        await expect(person.question).to_have_count(0)
        await person.hears("Done.")
        assert (file.read_text().strip() if file.exists() else None) == text


async def test_a_form_of_a_tool_is_filled_in_on_the_page(house: House, script: Visit) -> None:
    person = Person(script.page)
    asks = Said("", calls=(("desk_ask_user", {}),))
    house.provider.script = lambda heard: Said(f"It was {heard.results}") if heard.results else asks
    await person.says("Ask me.")
    await person.question.get_by_role("button", name="Allow once").click()
    await expect(person.question).to_contain_text("Who are you?")
    await person.question.get_by_role("button", name="Send").click()
    await expect(person.question).to_contain_text("This needs an answer.")
    await person.question.get_by_role("textbox", name="name").fill("Ann")
    await script.page.keyboard.press("Enter")
    await person.hears('"name": "Ann"')


async def test_a_reload_in_the_middle_of_an_answer_loses_nothing(house: House, script: Visit) -> None:
    house.provider.script = pausing = Pausing()
    person = Person(script.page)
    await person.says("Count.")
    await expect(person.answers.last).to_contain_text("four five")
    await script.page.reload()
    await expect(person.answers.last).to_contain_text("four five")
    pausing.go_on.set()
    await person.hears(LONG)
    assert await person.answers.count() == 1


async def test_two_tabs_show_the_same_answer_while_it_comes(house: House, script: Visit) -> None:
    house.provider.script = pausing = Pausing()
    one = Person(script.page)
    await one.says("Count.")
    await expect(one.answers.last).to_contain_text("four five")
    two = Person(await script.tab(script.page.url.partition("/#")[2].join(("#", ""))))
    await expect(two.answers.last).to_contain_text("four five")
    pausing.go_on.set()
    await two.hears(LONG)
    await one.hears(LONG)
    house.provider.script = lambda heard: Said("Seen by both.")
    await two.says("Again.")
    await one.hears("Seen by both.")


async def test_a_conversation_of_the_terminal_goes_on_here_and_there_again(house: House, tab: Visit) -> None:
    first = await asyncio.to_thread(started.played, house.home, "--notools", lines=["My hamster is called Flocke."])
    assert "Your hamster is called Flocke." in first
    name = str(house.chats.newest())
    await tab.page.goto(f"{tab.address}#/chat/{name}")
    person = Person(tab.page)
    await person.hears("Your hamster is called Flocke.")
    await person.says("Hello!")
    await person.hears("Hello! How can I help you?")
    saved = house.chats.load(name)  # as `shepherd --resume` does
    assert [message.role for message in saved.messages] == ["user", "assistant"] * 2
