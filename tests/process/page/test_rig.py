"""What watches the page sees each kind of fault: shown on pages that have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Any

import pytest
from tests.browser import PAYLOADS, Visit
from tests.in_time import until
from tests.process.page.conftest import House, Visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

FAULTS = {
    "<script>console.error('alas')</script>": "console error: alas",
    "<script>console.warn('alas')</script>": "console warning: alas",
    "<script>missing()</script>": "error: ReferenceError: missing is not defined",
    "<script>Promise.reject(new Error('alas'))</script>": "error: Error: alas",
    "<script>alert('alas')</script>": "a dialog of the browser: alas",
    "<script>open('planted')</script>": "a window opened",
    "<script>new WebSocket('ws://127.0.0.1:9/')</script>": "a socket opened: ws://127.0.0.1:9/",
    "<img src='http://elsewhere.invalid/x'>": "a request has left: GET http://elsewhere.invalid/x",
    "<link rel=stylesheet href='http://127.0.0.1:9/x'>": "a request has left: GET http://127.0.0.1:9/x",
    "<img src=missing>": "console error: Failed to load resource: the server responded with a status of 404",
}
RUNNING = (
    "<script>RUN</script>",
    "<script src=data:,RUN></script>",
    "<img src=x onerror=RUN>",
    "<svg onload=RUN>",
    '<iframe srcdoc="<script>parent.RUN</script>"></iframe>',
    "<input autofocus onfocus=RUN>",
)


async def plant(visit: Visit, html: str, policy: str = "") -> None:
    """Open a page of ours in the first tab, at the address of the real one."""
    headers = {"content-type": "text/html", **({"content-security-policy": policy} if policy else {})}
    # With an icon of its own: a browser asks for one at the server when it finds the time, and that has none there.
    html = f"<!doctype html><title>Planted</title><link rel='icon' href='data:,'>{html}"
    await visit.context.unroute_all()
    await visit.context.route("**/planted", lambda route: route.fulfill(body=html, headers=headers))
    await visit.page.goto(f"{visit.address}planted")


def contains(words: str, record: str) -> bool:
    return words in record


async def comes(records: list[Any], holds: Callable[[Any], bool]) -> None:
    """Wait until a record comes that is like this."""
    await until(lambda: any(map(holds, records)))


async def test_each_kind_of_fault_is_seen_and_fails_the_visit(house: House, visiting: Visiting) -> None:
    async with visiting(house.address, None) as visit:
        for html, words in FAULTS.items():
            await plant(visit, html)
            await comes(visit.faults, partial(contains, words))
            with pytest.raises(AssertionError, match=re.escape(words)):
                visit.check()
            visit.faults.clear()


async def test_a_payload_that_runs_is_seen_and_one_that_the_policy_stops_too(house: House, visiting: Visiting) -> None:
    payloads = [each for each in PAYLOADS if re.sub(r"shepherd_test_ran\(\d+\)", "RUN", each) in RUNNING]
    assert len(payloads) == len(RUNNING)
    async with visiting(house.address, None) as visit:
        for payload in payloads:
            await plant(visit, payload)
            await comes(visit.ran, partial(eq, PAYLOADS.index(payload)))
        visit.faults.clear()
        with pytest.raises(AssertionError, match=r"these ran: .*onerror"):
            visit.check()
        visit.ran.clear()
        for payload in payloads:
            await plant(visit, payload, "default-src 'self'")
            await comes(visit.faults, partial(contains, "CSP: script-src"))
            visit.faults.clear()


async def test_an_expected_fault_passes_and_one_that_stays_away_does_not(house: House, visiting: Visiting) -> None:
    async with visiting(house.address, None) as visit:
        visit.expect_fault("alas")
        visit.expect_fault("other")
        await plant(visit, "<script>console.error('alas')</script>")
        with pytest.raises(AssertionError, match=r"expected, and did not come: .*other"):
            visit.check()
        await plant(visit, "<script>console.error('other')</script>")


async def test_axe_finds_an_image_without_words(house: House, visiting: Visiting) -> None:
    async with visiting(house.address, None) as visit:
        await plant(visit, "<img src='data:,x'>")
        assert "image-alt" in await visit.violations()
