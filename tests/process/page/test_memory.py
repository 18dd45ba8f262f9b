"""The panels of memory and usage: what was said is found, read, corrected and forgotten; figures are text as well."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.browser import Visit
from tests.process.page.conftest import House
from tests.process.page.person import Person
from tests.providers_scripted import Said

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_was_said_is_found_read_and_forgotten(house: House, script: Visit) -> None:
    house.provider.script = lambda heard: Said("A quokka lives on Rottnest.")
    page, person = script.page, Person(script.page)
    await person.says("Where does the quokka live?")
    await person.hears("Rottnest")
    await page.get_by_role("link", name="Memory").click()
    main = page.get_by_role("main")
    await main.get_by_role("searchbox", name="Search what was said").fill("quokka")
    await page.keyboard.press("Enter")
    hit = main.get_by_role("listitem").filter(has_text="A quokka lives on Rottnest.")
    await hit.get_by_role("link").click()
    said = main.get_by_role("article").filter(has_text="Where does the quokka live?")
    await expect(said).to_be_visible()
    assert await script.violations() == ""

    await said.get_by_role("button", name="More about this message").click()
    await page.get_by_role("menuitem", name="Forget…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget 1").click()
    await expect(said).to_have_count(0)
    await expect(main.get_by_role("article").filter(has_text="A quokka lives on Rottnest.")).to_be_visible()
    await main.get_by_role("button", name="Forget…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget 1").click()
    await main.get_by_role("searchbox", name="Search what was said").fill("quokka")
    await page.keyboard.press("Enter")
    await expect(main.get_by_role("status")).to_have_text("0 exchanges")


async def test_a_fact_and_the_profile_are_added_corrected_and_deleted(visit: Visit) -> None:
    page, main, dialog = visit.page, visit.page.get_by_role("main"), visit.page.get_by_role("dialog")
    await page.goto(f"{visit.address}#/memory/facts")
    await main.get_by_role("button", name="Add a fact").click()
    await dialog.get_by_label("Name").fill("tea")
    await dialog.get_by_label("Value").fill("Assam")
    await page.keyboard.press("Tab")
    await dialog.get_by_role("button", name="Save").click()
    row = main.get_by_role("listitem").filter(has_text="tea")
    await row.get_by_role("button", name="Correct tea").click()
    await dialog.get_by_label("Value").fill("Darjeeling")
    await dialog.get_by_role("button", name="Save").click()
    await row.get_by_role("button", name="history").click()
    await expect(row.get_by_role("listitem")).to_contain_text(["Darjeeling now", "Assam until"])
    await row.get_by_role("button", name="Delete tea").click()
    await dialog.get_by_role("button", name="Cancel").press("Escape")
    await expect(dialog).to_have_count(0)
    await row.get_by_role("button", name="Delete tea").click()
    await dialog.get_by_role("button", name="Delete").click()
    await expect(main.get_by_role("button", name="Delete tea")).to_have_count(0)

    await main.get_by_role("button", name="Add to the profile").click()
    await dialog.get_by_label("What always holds").fill("Answer in verse.")
    await dialog.get_by_role("button", name="Save").click()
    entry = main.get_by_role("listitem").filter(has_text="Answer in verse.")
    await expect(entry).to_contain_text("instruction")
    await entry.get_by_role("button", name="Remove").click()
    await expect(entry).to_have_count(0)


async def test_a_plot_has_its_figures_as_a_table_for_each_day(house: House, script: Visit) -> None:
    house.provider.script = lambda heard: Said("Hello.")
    await Person(script.page).says("Hello!")
    await Person(script.page).hears("Hello.")
    answer = await script.context.request.get(f"{script.address}v1/usage?days=1")
    (today,) = [each for each in (await answer.json())["days"] if each["name"] == "script"]
    await script.page.get_by_role("link", name="Usage").click()
    used = script.page.get_by_role("region", name="script")
    await expect(used).to_contain_text("provider")
    await used.get_by_text("As a table").first.click()
    table = used.get_by_role("table", name="Tokens of script, day by day")
    await expect(table.get_by_role("row")).to_have_count(1 + 7)
    figures = [f"{today[name]:,}" for name in ("input", "cached", "output")]
    await expect(table.get_by_role("row").last.get_by_role("cell")).to_have_text(figures)
    await expect(used.locator(".plot-box")).to_have_attribute("aria-hidden", "true")
    await script.page.get_by_role("radio", name="30 days").check(force=True)
    await expect(table.get_by_role("row")).to_have_count(1 + 30)
    assert await script.violations() == ""
