"""Names of strangers stay text: of files in the picker and among the attachments, of facts, memories and models."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import FilePayload, Route, expect
from tests.browser import PAYLOADS, Visit
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.process.page.test_hostile import unsafe

from shepherd.core import Message

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMES = [each for each in PAYLOADS if "/" not in each and len(each.encode()) < 200][:20]
"""Those that a file can have."""


async def test_no_payload_runs_as_the_name_of_a_file(house: House, visit: Visit) -> None:
    for name in NAMES:
        (house.folder / f"zz{name}").write_text("Nothing.")
    person = Person(visit.page)
    await expect(person.message).to_be_focused()
    await visit.page.keyboard.type("@zz")
    await expect(visit.page.get_by_role("option").first).to_contain_text("zz")
    assert await unsafe(visit.page) == []
    await visit.page.keyboard.press("Escape")
    await visit.page.locator("input[type=file]").set_input_files(
        [FilePayload(name=f"{name}.txt", mimeType="text/plain", buffer=b"Nothing.") for name in NAMES]
    )
    files = visit.page.get_by_role("list", name="Goes with the message").get_by_role("listitem")
    await expect(files).to_have_count(len(NAMES))
    assert await unsafe(visit.page) == []
    for name in NAMES:
        (house.folder / f"zz{name}").unlink()


async def test_no_payload_runs_as_a_fact_or_a_memory(house: House, script: Visit) -> None:
    for at, payload in enumerate(NAMES):
        fact = {"key": f"{at} {payload}", "value": payload}
        made = await script.context.request.put(f"{script.address}v1/memory/facts", data=fact)
        assert made.ok, await made.text()
    person = Person(script.page)
    await person.says(NAMES[0])
    await person.hears("Hello.")
    await script.page.get_by_role("link", name="Memory").click()
    await expect(script.page.get_by_role("main").get_by_text(NAMES[0]).first).to_be_visible()
    assert await unsafe(script.page) == []
    await script.page.get_by_role("main").get_by_text("Facts and profile").click()
    await expect(script.page.get_by_role("button", name="Delete 0 ")).to_be_visible()
    assert await unsafe(script.page) == []
    for at, payload in enumerate(NAMES):
        gone = await script.context.request.delete(
            f"{script.address}v1/memory/facts", params={"key": f"{at} {payload}"}
        )
        assert gone.ok, await gone.text()


def hostile(value: Any, at: int = 0) -> Any:
    """An answer of the server whose lists have a further row for each payload, with that as each of its texts."""
    if isinstance(value, dict):
        return {name: hostile(each) for name, each in value.items()}
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return value
    return [*value, *({name: spoilt(each, payload) for name, each in value[0].items()} for payload in NAMES)]


def spoilt(value: Any, payload: str) -> Any:
    return payload if isinstance(value, str) else [payload] if isinstance(value, list) else value


async def test_no_payload_runs_as_the_name_of_a_model(house: House, tab: Visit) -> None:
    """Of a hub, of an upstream, of a saved conversation: in the picker, in the lines of a turn, in the panels."""

    async def spoil(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=hostile(await answer.json()))

    saved = [house.save(name, (Message.user("Hello?"), Message.assistant("Hello.")), model=name) for name in NAMES]
    page, person = tab.page, Person(tab.page)
    for path in ("v1/chats/options?*", "v1/models/here", "v1/usage?*"):
        await page.route(f"{tab.address}{path}", spoil)
    await page.goto(f"{tab.address}#/chat/{saved[0]}")
    await person.says("Hello!")
    await expect(page.get_by_text(f"{NAMES[0]} is not there any more")).to_be_visible()
    await person.hears("Hello")
    await page.get_by_role("button", name="Model: ").click()
    await expect(page.get_by_role("menuitemradio", name=NAMES[-1])).to_be_visible()
    assert await unsafe(page) == []
    for panel in ("Models", "Usage"):
        await page.goto(f"{tab.address}#/{panel.lower()}")
        await expect(page.get_by_role("main").get_by_text(NAMES[-1]).first).to_be_visible()
        assert await unsafe(page) == []
    for each in saved:
        house.chats.remove(each)
