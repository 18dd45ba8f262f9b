"""A browser whose clock is wrong by years."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.process.page.conftest import House, Visiting
from tests.process.page.person import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("now", ["1999-12-31T23:59:59Z", "2099-01-01T00:00:00Z"])
async def test_a_chat_works_and_no_time_is_nonsense_where_the_clock_is_wrong(
    house: House, visiting: Visiting, now: str
) -> None:
    async with visiting(house.address, None) as visit:
        await visit.page.clock.install(time=now)
        await visit.page.goto(visit.address)
        person = Person(visit.page)
        await person.says("Hello!")
        await person.hears("Hello! How can I help you?")
        for path in ("#/memory", "#/usage", "#/models", "#/chat"):
            await visit.page.goto(visit.address + path)
            await expect(visit.page.get_by_role("main")).to_be_visible()
            await expect(visit.page.locator("body")).not_to_contain_text("NaN")
            await expect(visit.page.locator("body")).not_to_contain_text("Invalid Date")
