"""Texts of strangers stay text, wherever a chat shows them: in questions, thoughts, answers, calls, results, titles."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page, expect
from tests.browser import PAYLOADS, Visit
from tests.cases import amount
from tests.process.page.conftest import House

from shepherd.core import Message, Reasoning, Text, ToolCall, ToolResult

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


def exchange(payload: str, at: int) -> tuple[Message, ...]:
    """A turn that has the payload in each of its parts."""
    call = ToolCall(f"call{at}", "read_file", json.dumps({"path": payload, payload: payload}))
    return (
        Message("user", (Text(payload),)),
        Message("assistant", (Reasoning(payload), Text(payload), call)),
        Message("tool", (ToolResult(call.id, (Text(payload),), name=call.name),)),
        Message("assistant", (Text(f"{payload}\n\nEnd of {at}."),)),
    )


SAID = PAYLOADS[:: amount(8, 1)]
"""In a conversation; all of them are tried in an answer."""
OPEN = "() => document.querySelectorAll('main details').forEach((each) => (each.open = true))"


async def test_no_payload_of_a_conversation_runs_in_questions_thoughts_calls_results_and_titles(
    house: House, tab: Visit
) -> None:
    saved = [house.save(payload, exchange(payload, at)) for at, payload in enumerate(PAYLOADS[::8])]
    turns = [message for at, payload in enumerate(SAID) for message in exchange(payload, at)]
    name = house.save("Payloads", turns)
    await tab.page.goto(f"{tab.address}#/chat/{name}")
    messages = tab.page.get_by_role("list", name="Messages")
    await expect(messages).to_contain_text(f"End of {len(SAID) - 1}.")
    seen: set[str] = set()
    while True:
        await tab.page.evaluate(OPEN)
        assert await unsafe(tab.page) == []
        text = await messages.inner_text()
        seen |= set(re.findall(r"End of \d+\.", text))
        if "End of 0." in seen:  # at the top: the list has nothing more to scroll to
            break
        await messages.evaluate("(list) => { list.scrollTop -= list.clientHeight; }")
        await expect(messages).not_to_have_text(text, use_inner_text=True)
    assert len(seen) > len(SAID) / 2
    for each in (*saved, name):
        house.chats.remove(each)
