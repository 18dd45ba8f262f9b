"""Names of strangers stay text: of files in the picker and among the attachments, of facts and memories."""

from __future__ import annotations

import pytest
from playwright.async_api import FilePayload, expect
from tests.browser import PAYLOADS, Visit
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.process.page.test_hostile import unsafe

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
