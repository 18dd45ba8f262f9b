"""Texts of strangers stay text, wherever the page shows them: payloads in answers, names, results, files, memories."""

from __future__ import annotations

import pytest
from playwright.async_api import Page
from tests.browser import PAYLOADS, Visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNSAFE = """() => {
  const brings = new Set("SCRIPT STYLE IFRAME OBJECT EMBED BASE META LINK FRAME APPLET".split(" "));
  const found = [];
  for (const each of document.querySelectorAll("body *")) {
    if (brings.has(each.tagName.toUpperCase())) found.push(each.outerHTML);
    for (const {name, value} of each.attributes) {
      const place = value.replace(/[\\u0000-\\u0020]/g, "").toLowerCase();
      const leads = /^(src|href|xlink:href|action|formaction|data|poster|background|srcdoc|ping)$/i.test(name);
      if (/^on/i.test(name) || (leads && /^(javascript|vbscript|data:text|\\/\\/|x)/.test(place)))
        found.push(`${each.tagName} ${name}=${value}`);
    }
    each.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    each.dispatchEvent(new FocusEvent("focus"));
  }
  return found;
}"""
"""What could run or load of all that the page holds, with the gestures that would run it. The page's own elements have
no such attribute: its handlers are functions."""
WRITE = """async ([payloads, step]) => {
  const {MarkdownStream} = await import(new URL("web/js/markdown.js", document.baseURI).href);
  const boxes = [];
  for (const payload of payloads) {
    const box = document.body.appendChild(document.createElement("div"));
    boxes.push(box);
    const stream = new MarkdownStream(box);
    for (let end = step; step && end < payload.length; end += step) stream.update(payload.slice(0, end), false);
    stream.update(payload, true);
  }
  return boxes.map((box) => box.innerHTML);
}"""


async def unsafe(page: Page) -> list[str]:
    found: list[str] = await page.evaluate(UNSAFE)
    return found


async def test_no_payload_in_an_answer_runs_however_it_is_cut(visit: Visit) -> None:
    whole = await visit.page.evaluate(WRITE, [PAYLOADS, 0])
    assert await unsafe(visit.page) == []
    cut = await visit.page.evaluate(WRITE, [PAYLOADS, 7])
    assert await unsafe(visit.page) == []
    assert [each for each in zip(PAYLOADS, whole, cut, strict=True) if each[1] != each[2]] == []


async def test_what_a_payload_would_bring_is_found(visit: Visit) -> None:
    visit.expect_fault("CSP: ")
    visit.expect_fault("console error")
    for payload in (
        each for each in PAYLOADS if each.startswith(("<img src=x onerror=s", "<iframe srcdoc", "<a href="))
    ):
        await visit.page.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', html)", payload)
        assert await unsafe(visit.page), payload
        await visit.page.evaluate("document.body.lastElementChild.remove()")
    assert not await unsafe(visit.page)
