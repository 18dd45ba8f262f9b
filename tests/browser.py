"""A person before the page: this machine's Chromium, which keeps what the page asks for and complains of.

    async with chromium() as browser, visiting(browser, address) as visit:
        await visit.page.get_by_role("textbox", name="Message").fill("Hello")

    requests ─ another origin? ─┐
    console, page errors ───────┼─▶ visit.faults ─ none, but those that the test has named ─▶ the end of the visit
    broken CSP, scripts run ────┘

Not a test: the tests are in tests/process/page. Playwright drives the browser; nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pytest
from tests.places import DATA

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
RAN = "shepherd_test_ran"
"""The function of the window that a script of a stranger calls, if it runs."""
PAYLOADS = tuple(
    line.replace("RUN", f"{RAN}({at})").replace("(N)", f"({at})")
    for at, line in enumerate((DATA / "page" / "payloads.txt").read_text().splitlines())
)
"""Texts that run a script or ask another machine for something, if they are taken as more than text. Each says its
index."""
LISTENER = """
document.addEventListener("securitypolicyviolation", (event) => {
  const {effectiveDirective, blockedURI, sourceFile, lineNumber, sample} = event;
  shepherd_test_violation([effectiveDirective, blockedURI, sourceFile, lineNumber, sample].join(" "));
});
"""
CRASHED = "the tab has crashed"
EMPTY = "about:blank"
"""The address of a tab before its first page."""
WIDE, NARROW = (1440, 900), (390, 844)
PATIENCE_MS = 60_000.0
"""As tests/in_time.py: so long a busy machine may take for one step."""


def needed() -> str:
    """The path of the browser. The test is skipped where the browser, or what drives it, is absent."""
    pytest.importorskip("playwright.async_api", reason="no playwright: `uv sync --group page` installs it")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: one of {', '.join(NAMES)} on the PATH")
    return found


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The browser, without a window. It knows no host but this machine."""
    path = needed()
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            chromium_sandbox=not (hasattr(os, "getuid") and os.getuid() == 0),  # which it refuses for root
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """One person, with storage of their own, in one or more tabs."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address.rstrip("/") + "/"
        self.page: Page
        """The first tab."""
        self.requests: list[str] = []
        """The addresses of all tabs, in order; the browser's own `data:` and `blob:` are not among them."""
        self.faults: list[str] = []
        self.ran: list[int] = []
        """The indexes of the `PAYLOADS` that ran."""
        self._expected: dict[str, int] = {}

    def expect_fault(self, pattern: str) -> None:
        """Let faults pass that contain this pattern. At least one has to come."""
        self._expected.setdefault(pattern, 0)

    async def tab(self, path: str | None = "") -> Page:
        """A further tab, with this path below the page's address; None: it is empty."""
        page = await self.context.new_page()
        page.on("pageerror", lambda error: self._fault(f"error: {error.stack or error}"))
        page.on("crash", lambda _: self._fault(CRASHED))
        page.on("dialog", lambda dialog: self._dialog(page, dialog))
        page.on("popup", lambda other: self._fault(f"a window opened: {other.url}"))
        page.on("websocket", lambda socket: self._fault(f"a socket opened: {socket.url}"))
        if path is not None:
            await page.goto(self.address + path)
        return page

    async def begin(self) -> None:
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.on("request", self._request)
        self.context.on("console", self._console)
        await self.context.expose_function(RAN, self._run)
        await self.context.expose_function("shepherd_test_violation", lambda told: self._fault(f"CSP: {told}"))
        await self.context.add_init_script(LISTENER)

    async def begin_again(self) -> None:
        """Close all tabs but the first, and forget what they have kept; what the browser has read of the page stays in
        its cache, and the first tab in its process, of which a start takes as long as many a test. Another person
        comes, before an empty tab."""
        first, *others = self.context.pages or (None,)
        for page in others:
            await page.close()
        await self.context.unroute_all()
        await self.context.set_offline(False)
        if first and CRASHED in self.faults:
            await first.close()
            first = None
        if first is None:
            first = await self.tab(None)
        elif first.url != EMPTY:
            await first.unroute_all()
            await first.evaluate("try { sessionStorage.clear(); } catch { /* a page without an origin has none */ }")
            await first.goto(EMPTY)
        self.page = first
        for kept in (self.requests, self.faults, self.ran, self._expected):
            kept.clear()
        devtools = await self.context.new_cdp_session(self.page)
        await devtools.send("Storage.clearDataForOrigin", {"origin": self.address[:-1], "storageTypes": "all"})
        await devtools.detach()

    async def violations(self, page: Page | None = None) -> str:
        """What axe-core finds wrong with a tab: a report with the elements; empty, if nothing."""
        from axe_playwright_python.base import AXE_SCRIPT, AxeResults  # type: ignore[import-untyped]

        page = page or self.page
        if not await page.evaluate("'axe' in window"):  # it is large, and stays as long as the document
            await page.evaluate(AXE_SCRIPT)
        results = AxeResults(await page.evaluate("axe.run({resultTypes: ['violations']})"))
        return str(results.generate_report()) if results.violations_count else ""

    def check(self) -> None:
        """Raises: AssertionError, if something came that no test has expected, or did not come."""
        missed = [pattern for pattern, n in self._expected.items() if not n]
        assert not self.faults, "\n".join(self.faults)
        assert not self.ran, f"these ran: {[PAYLOADS[at] for at in self.ran]}"
        assert not missed, f"expected, and did not come: {missed}"

    def _fault(self, words: str) -> None:
        for pattern in self._expected:
            if re.search(pattern, words):
                self._expected[pattern] += 1
                return
        self.faults.append(words)

    def _request(self, request: Request) -> None:
        if request.url.startswith(("data:", "blob:")):
            return
        self.requests.append(request.url)
        if urlsplit(request.url)[:2] != urlsplit(self.address)[:2]:
            self._fault(f"a request has left: {request.method} {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            place = message.location
            self._fault(f"console {message.type}: {message.text} ({place.get('url')}:{place.get('lineNumber')})")

    def _run(self, at: int) -> None:
        self.ran.append(at)

    async def _dialog(self, page: Page, dialog: Any) -> None:
        self._fault(f"a dialog of the browser: {dialog.message}")
        await dialog.dismiss()


@contextlib.asynccontextmanager
async def visiting(
    browser: Browser,
    address: str,
    path: str | None = "",
    *,
    size: tuple[int, int] = WIDE,
    scheme: Literal["light", "dark"] = "light",
    **options: Any,
) -> AsyncIterator[Visit]:
    """A visit to the page at `address`; `options`: those of Playwright's contexts. Its end checks it."""
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        **options,
    )
    try:
        visit = Visit(context, address)
        await visit.begin()
        visit.page = await visit.tab(path)
        yield visit
        visit.check()
    finally:
        await context.close()
