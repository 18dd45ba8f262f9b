"""The frame of the page: its policy, and a server that changes, goes and comes back."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Route, expect
from tests.browser import Visit
from tests.in_time import until
from tests.process.page.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
