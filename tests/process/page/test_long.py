"""What is long: a conversation of thousands of turns, to whose first a search goes; an answer of 300 kB, or five MB."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect
from tests.browser import Visit
from tests.cases import amount
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.providers_scripted import Said

from shepherd.core import Message, Text

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_NODES = 3_000
"""Elements of the whole page."""
N_TURNS = amount(3_000, 10_000)
N_SCREENS = amount(3, 12)
"""That are scrolled through."""


async def n_nodes(page: Page) -> int:
    return int(await page.evaluate("document.querySelectorAll('*').length"))


async def test_of_thousands_of_turns_only_those_in_sight_are_in_the_page(house: House, tab: Visit) -> None:
    turns = []
    for n in range(N_TURNS):
        turns += [Message("user", (Text(f"Question {n}."),)), Message("assistant", (Text(f"Answer {n}."),))]
    name = house.save("Thousands", turns)
    await tab.page.goto(f"{tab.address}#/chat/{name}")
    page, person = tab.page, Person(tab.page)
    messages = page.get_by_role("list", name="Messages")
    await expect(person.answers.last).to_contain_text(f"Answer {N_TURNS - 1}.")
    assert await n_nodes(page) < MOST_NODES
    for _ in range(N_SCREENS):
        text = await messages.inner_text()
        await messages.evaluate("(list) => { list.scrollTop -= list.clientHeight; }")
        await expect(messages).not_to_have_text(text, use_inner_text=True)
        assert await n_nodes(page) < MOST_NODES
    first = person.questions.filter(has_text="Question 0.")
    while amount(False, True) and not await first.count():
        before = await messages.get_by_role("listitem").first.get_attribute("aria-setsize")
        await messages.focus()
        await page.keyboard.press("Home")
        await expect(
            first.or_(messages.locator(f"[aria-setsize]:not([aria-setsize='{before}'])")).first
        ).to_be_visible()
        assert await n_nodes(page) < MOST_NODES
    house.chats.remove(name)


ANSWER_BYTES = amount(300_000, 5_000_000)
LINE = "The sheep of this answer are counted, and **none** of them is missing. ".replace(" ", amount("-", " "))
"""The provider sends a record for each word: in the gate this is one."""
BLOCK = LINE * 10
MOST_BLOCKS = 150
"""That the page adds at once, however much has come."""
SHOWN = """(text) => new Promise((done) => {
  window.most ??= 0;
  new MutationObserver((changes) => {
    const added = changes.filter(({target}) => target.matches?.(".markdown")).map(({addedNodes}) => addedNodes.length);
    window.most = Math.max(window.most, added.reduce((sum, n) => sum + n, 0));
  }).observe(document.body, {childList: true, subtree: true});
  const look = () => [...document.querySelectorAll(".markdown > p:last-child")].some((each) =>
    each.textContent.includes(text)) ? done(window.most) : setTimeout(look, 50);
  look();
})"""
"""Waits for a text, for which Playwright needs seconds on such a page; the most blocks that came at once."""


async def test_a_very_long_answer_comes_in_steps_and_leaves_the_page_usable(house: House, script: Visit) -> None:
    text = "\n\n".join(BLOCK for _ in range(ANSWER_BYTES // len(BLOCK)))
    house.provider.script = lambda heard: (
        Said(f"{text}\n\nNearly the end.", hangs_behind="Nearly") if heard.last == "Count." else Said("Heard.")
    )
    page, person = script.page, Person(script.page)
    await person.says("Count.")
    assert 0 < await page.evaluate(SHOWN, "Nearly") < MOST_BLOCKS
    await page.keyboard.press("Escape")
    await expect(person.stop).to_have_count(0)
    await person.says("Are you there?")
    await person.hears("Heard.")
    await page.reload()
    await person.hears("Heard.")
    messages = page.get_by_role("list", name="Messages")
    await messages.focus()
    await page.keyboard.press("Home")
    await expect(person.questions.first).to_be_in_viewport()
    assert await page.evaluate(SHOWN, "Nearly") < MOST_BLOCKS
