"""What is long: a conversation of 10,000 turns, an answer of 5 MB."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.process.page.conftest import House, Visiting
from tests.process.page.person import Person

from shepherd.core import Message, Text

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_NODES = 3_000
"""Elements of the whole page."""


async def test_of_10000_turns_only_those_in_sight_are_in_the_page(house: House, visiting: Visiting) -> None:
    turns = []
    for n in range(10_000):
        turns += [Message("user", (Text(f"Question {n}."),)), Message("assistant", (Text(f"Answer {n}."),))]
    name = house.save("Ten thousand", turns)
    async with visiting(house.address, f"#/chat/{name}") as visit:
        person = Person(visit.page)
        await expect(person.answers.last).to_contain_text("Answer 9999.")
        nodes = "document.querySelectorAll('*').length"
        assert await visit.page.evaluate(nodes) < MOST_NODES
    house.chats.remove(name)
