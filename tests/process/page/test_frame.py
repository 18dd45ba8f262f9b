"""The frame of the page: its policy, its key, and a server that changes, goes and comes back."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, Route, expect
from tests.browser import Visit
from tests.fakes.prefix import Prefix
from tests.in_time import until
from tests.process.page.conftest import House, Visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = r"console error: Failed to load resource: the server responded with a status of 401"
AWAY = r"console error: Failed to load resource: net::ERR_(EMPTY_RESPONSE|INTERNET_DISCONNECTED|INCOMPLETE_CHUNKED)"
CANNOT_BE_REACHED = "The server cannot be reached"


async def test_the_page_asks_this_server_only_and_its_policy_allows_no_other(house: House, visit: Visit) -> None:
    await expect(visit.page.get_by_role("main")).to_be_visible()
    await until(lambda: {"", "web", "v1"} == {url.removeprefix(visit.address).split("/")[0] for url in visit.requests})
    answer = await visit.context.request.get(visit.address, headers={"accept": "text/html"})
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'sha256-[\w+/]+=*'", policy["script-src"])
    assert policy["style-src"] == policy["connect-src"] == policy["font-src"] == "'self'"
    assert {policy[name] for name in ("base-uri", "frame-ancestors", "form-action")} == {"'none'"}
    assert not [part for part in policy.values() if "unsafe" in part or "http" in part or "*" in part]


async def test_a_key_is_asked_for_until_it_is_right_and_a_new_tab_asks_again(keyed: Prefix, visiting: Visiting) -> None:
    async with visiting(keyed.url) as visit:
        visit.expect_fault(REFUSED)
        await give_key(visit.page, "wrong")
        await give_key(visit.page, "right")
        await expect(visit.page.get_by_role("dialog")).to_have_count(0)
        async with visit.page.expect_response("**/v1/chats?*") as answer:
            await visit.page.reload()
        assert (await answer.value).ok
        await expect(visit.page.get_by_role("dialog")).to_have_count(0)
        kept = await visit.page.evaluate("JSON.stringify([localStorage, document.cookie, location.href])")
        assert "right" not in kept
        other = await visit.tab()
        await expect(other.get_by_role("dialog", name="API key")).to_be_visible()
        assert {url.startswith(f"{keyed.url}/") for url in visit.requests} == {True}, "all below the prefix"


async def give_key(page: Page, key: str) -> None:
    dialog = page.get_by_role("dialog", name="API key")
    await dialog.get_by_label("API key", exact=True).fill(key)
    await page.keyboard.press("Enter")


async def test_a_page_that_is_older_than_its_server_offers_to_load_itself_again(visit: Visit) -> None:
    async def older(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(
            response=answer, body=re.sub('data-version="[^"]+"', 'data-version="0.0.1"', await answer.text())
        )

    await visit.context.route(visit.address, older)
    banner = visit.page.get_by_text("The server is a newer one than this page")
    await visit.page.reload()
    await expect(banner).to_be_visible()
    await visit.context.unroute_all()
    async with visit.page.expect_response("**/v1/models") as answer:
        await visit.page.get_by_role("button", name="Reload", exact=True).click()
    assert "x-shepherd-version" in (await answer.value).headers
    await expect(banner).to_have_count(0)


async def test_offline_is_said_and_ends_by_itself(visit: Visit) -> None:
    visit.expect_fault(AWAY)
    banner = visit.page.get_by_text(CANNOT_BE_REACHED)
    await visit.context.set_offline(True)
    await visit.page.get_by_role("link", name="Models").click()
    await expect(banner.first).to_be_visible()
    await visit.context.set_offline(False)
    await expect(banner).to_have_count(0)
