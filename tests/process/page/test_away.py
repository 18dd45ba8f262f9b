"""A chat whose server goes away in the middle of an answer, and comes back, as it was or with another key."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.browser import Visit
from tests.fakes.prefix import prefixed
from tests.process.page.conftest import House, Start, Visiting, furnish
from tests.process.page.person import Person
from tests.process.page.test_chat import Pausing
from tests.process.page.test_frame import AWAY, CANNOT_BE_REACHED
from tests.providers_scripted import Said

CONFIG = """\
[models.lamb]
path = "embedded"
load = "demand"
[caches.main]
model = "lamb"
[providers.script]
type = "openai_compat"
base_url = "{provider}"
model = "m"
[tools]
enabled = []
"""
"""Of a server that starts soon: no model is loaded, and nothing else is started."""
REFUSED = r"console error: Failed to load resource: the server responded with a status of 401"
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def begun(page: Page, house: House) -> Person:
    """A chat with one answer, and another that is being written."""
    house.provider.script = lambda heard: Said("Hello.")
    person = Person(page)
    await page.get_by_role("button", name="Model: ").click()
    await page.get_by_role("menuitemradio", name="script").click()
    await person.says("Hello!")
    await person.hears("Hello.")
    house.provider.script = Pausing()
    await person.says("Count.")
    await expect(person.answers.last).to_contain_text("four five")
    return person


async def test_a_chat_goes_on_when_its_server_comes_back_as_it_was_or_with_another_key(
    house: House, start: Start, visiting: Visiting, tmp_path: Path
) -> None:
    furnish(home := tmp_path / "home", house.provider, CONFIG)
    async with prefixed("/ai") as proxy, AsyncExitStack() as stays:
        async with start("--api-key", "first", home=home) as proxy.target:
            visit = await stays.enter_async_context(visiting(proxy.url, None))
            visit.expect_fault(AWAY)
            visit.expect_fault(REFUSED)
            await visit.page.goto(visit.address)
            await a_key_is_asked_for_until_it_is_right(visit, "first")
            person = await begun(visit.page, house)
        banner = visit.page.get_by_text(CANNOT_BE_REACHED)
        await expect(banner.first).to_be_visible()
        async with start("--api-key", "first", home=home) as proxy.target:
            await expect(banner).to_have_count(0)
            await goes_on(person, house)
            house.provider.script = Pausing()
            await person.says("Count.")
            await expect(person.answers.last).to_contain_text("four five")
        async with start("--api-key", "second", home=home) as proxy.target:
            dialog = visit.page.get_by_role("dialog", name="API key")
            await expect(dialog).to_contain_text("The server no longer takes this key.")
            await give_key(visit.page, "second")
            await expect(dialog).to_have_count(0)
            await goes_on(person, house)
            assert {url.startswith(f"{proxy.url}/") for url in visit.requests} == {True}, "all below the prefix"
            await stays.aclose()


async def a_key_is_asked_for_until_it_is_right(visit: Visit, key: str) -> None:
    """And a new tab asks again, as nothing keeps it."""
    await give_key(visit.page, "wrong")
    await give_key(visit.page, key)
    await expect(visit.page.get_by_role("dialog")).to_have_count(0)
    async with visit.page.expect_response("**/v1/chats?*") as answer:
        await visit.page.reload()
    assert (await answer.value).ok
    await expect(visit.page.get_by_role("dialog")).to_have_count(0)
    kept = await visit.page.evaluate("JSON.stringify([localStorage, document.cookie, location.href])")
    assert key not in kept
    other = await visit.tab()
    await expect(other.get_by_role("dialog", name="API key")).to_be_visible()
    await other.close()


async def give_key(page: Page, key: str) -> None:
    dialog = page.get_by_role("dialog", name="API key")
    await dialog.get_by_label("API key", exact=True).fill(key)
    await page.keyboard.press("Enter")


async def goes_on(person: Person, house: House) -> None:
    """What was said before is there, and the next message gets an answer."""
    house.provider.script = lambda heard: Said("The capital of France is Paris.")
    await expect(person.stop).to_have_count(0)
    await expect(person.answers.first).to_contain_text("Hello.")
    await person.says("What is the capital of France?")
    await person.hears("The capital of France is Paris.")
