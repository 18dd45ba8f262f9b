"""The keyboard alone: a chat that is begun, stopped, edited, its branches, and a question, without a click."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Locator, Route, expect
from tests.browser import Visit
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.process.page.test_chat import Pausing, writes
from tests.providers_scripted import Said

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_STEPS = 60


async def reach(visit: Visit, wanted: Locator, key: str = "Tab") -> None:
    """Press the key until this has the focus."""
    await expect(wanted).to_be_enabled()
    for _ in range(MOST_STEPS):
        if await wanted.count() and await wanted.evaluate("(each) => each === document.activeElement"):
            return
        await visit.page.keyboard.press(key)
    raise AssertionError(f"{key} does not lead to {wanted}")


async def choose(visit: Visit, action: str) -> None:
    """Find an action by Ctrl-K."""
    field = visit.page.get_by_role("combobox", name="Search chats and actions")
    await visit.page.keyboard.press("Control+K")
    await expect(field).to_be_focused()
    await visit.page.keyboard.type(action)
    await expect(visit.page.get_by_role("option", selected=True)).to_contain_text(action)
    await visit.page.keyboard.press("Enter")
    await expect(field).to_have_count(0)


async def test_a_chat_is_written_stopped_and_edited_without_a_click(house: House, visit: Visit) -> None:
    house.provider.script = pausing = Pausing()
    page, person, keys = visit.page, Person(visit.page), visit.page.keyboard
    await expect(person.message).to_be_focused()
    await choose(visit, "New chat")
    await expect(person.message).to_be_focused()

    await reach(visit, page.get_by_role("button", name="Model: "), "Shift+Tab")
    await keys.press("Enter")
    await reach(visit, page.get_by_role("menuitemradio", name="script"), "ArrowDown")
    await keys.press("Enter")
    await expect(page.get_by_role("button", name="Model: script")).to_be_visible()

    await reach(visit, person.message)
    await keys.type("First")
    await keys.press("Enter")
    await expect(person.answers.last).to_contain_text("four five")
    await keys.press("Escape")
    await expect(person.stop).to_have_count(0)
    pausing.go_on.set()

    house.provider.script = lambda heard: Said(f"This is about {heard.last}.")
    await expect(person.message).to_be_focused()
    await keys.press("ArrowUp")
    await expect(page.get_by_role("textbox", name="Edit question")).to_be_focused()
    await keys.press("Control+A")
    await keys.type("Second")
    await keys.press("Enter")
    await person.hears("This is about Second.")

    await reach(visit, page.get_by_role("button", name="Branch before"), "Shift+Tab")
    await keys.press("Enter")
    await person.hears("four five")
    await reach(visit, page.get_by_role("button", name="Next branch"))
    await keys.press("Enter")
    await person.hears("This is about Second.")


async def test_a_question_is_answered_without_a_click(house: House, script: Visit) -> None:
    file = house.folder / "keys.txt"
    person, keys = Person(script.page), script.page.keyboard
    house.provider.script = writes(file, "Buy milk\n")
    await expect(person.message).to_be_focused()
    refuse, is_sent = person.question.get_by_role("button", name="Do not allow"), asyncio.Event()

    async def answer_late(route: Route) -> None:
        """The server has the message, and the page hears of it when the question is there."""
        response = await route.fetch()
        await expect(refuse).to_be_focused()
        await route.fulfill(response=response)
        is_sent.set()

    await script.page.route("**/turn", answer_late)
    await keys.type("Write Buy milk to keys.txt.")
    await keys.press("Enter")
    await asyncio.wait_for(is_sent.wait(), 60)
    await script.page.evaluate("fetch('health').then((answer) => answer.text())")  # the page has read the other by then
    await expect(refuse).to_be_focused()
    assert not file.exists()
    await reach(script, person.question.get_by_role("button", name="Allow once"), "ArrowDown")
    await keys.press("Enter")
    await expect(person.question).to_have_count(0)
    await expect(person.stop).to_have_count(0)
    assert file.read_text().strip() == "Buy milk"
