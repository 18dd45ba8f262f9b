"""The living window on scripted events: what it says of each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Route, expect
from tests.browser import Visit
from tests.process.page.conftest import House, Visiting

from shepherd.core import Message

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELLO = {"version": 1, "server": "0.1.0", "caches": {"main": {"model": "lamb", "n_ctx": 2048}}}
POOL = {"caches": {"main": {"model": "lamb", "n_ctx": 2048, "used": 1000, "ram_bytes": 4_000_000, "sequences": []}}}
AT_S = 1_700_000_000


def spans(session: str) -> dict[str, Any]:
    """Of 2,048 cells 700 are held: a message has left whole, and one in part."""
    kinds = [
        ("system", 0, 80, None, True, 80),
        ("tools", 80, 200, None, True, 120),
        ("user", 200, 300, 1, False, 0),
        ("assistant", 300, 400, 2, False, 40),
        ("markup", 400, 404, None, True, 4),
        ("result", 404, 860, 3, False, 456),
    ]
    names = ("kind", "start", "stop", "message", "keep", "held")
    rows = [dict(zip(names, row, strict=True)) for row in kinds]
    place = {"cache": "main", "seq": 0, "session": session, "tier": "cells", "n_ctx": 2048}
    return {**place, "tokens": 860, "held": 700, "spans": rows}


def stream(*events: tuple[str, Mapping[str, Any]]) -> str:
    return "".join(f"event: {name}\ndata: {json.dumps(fields)}\n\n" for name, fields in events)


async def open_chat(house: House, visit: Visit, *happened: tuple[str, Mapping[str, Any]], version: int = 1) -> Page:
    """The page at a saved chat, whose window gets these events."""
    name = house.save("A hamster", [Message.user("My hamster is Biscuit."), Message.assistant("Hello.")], model="lamb")
    answer = await visit.context.request.get(f"{visit.address}v1/chats/{name}")
    session = (await answer.json())["session"]
    first = [("hello", {**HELLO, "version": version}), ("spans", spans(session)), ("pool", POOL)]
    events = stream(*first, *((kind, {"cache": "main", "session": session, **fields}) for kind, fields in happened))
    # The stream ends here; the page connects again, and gets no further event.
    answers = iter([events])

    async def tell(route: Route) -> None:
        await route.fulfill(content_type="text/event-stream", body=next(answers, ""))

    await visit.page.route("**/v1/window/events", tell)
    await visit.page.goto(f"{visit.address}#/chat/{name}")
    return visit.page


async def test_the_bar_says_what_is_held_what_has_left_and_what_is_free(house: House, tab: Visit) -> None:
    page = await open_chat(house, tab, ("grow", {"seq": 0, "tokens": 900, "held": 740, "kind": "assistant"}))
    bar = page.get_by_role("group", name="Cells of this conversation")
    await expect(bar).to_contain_text(
        "740 of 2,048 tokens: system 80, tools 120, answer 80, result 456, markup 4, has left 160, other chats 260, "
        "protected 244, free 1,048."
    )
    await expect(page.get_by_role("button", name="Left before you looked")).to_contain_text("160 tokens")
    button = bar.get_by_role("button")
    await button.focus()
    told = []
    for _ in range(6):
        await page.keyboard.press("ArrowRight")
        told.append(await button.get_attribute("aria-label"))
    assert told == [
        "System · 80 tokens · protected",
        "Tools · 120 tokens · protected",
        "Has left · message 1 · 100 tokens",
        "Answer · message 2 · 40 tokens",
        "Has left · message 2 · 60 tokens",
        "Result · message 3 · 456 tokens",
    ]
    assert await tab.violations() == ""


async def test_what_has_left_is_read_brought_back_and_forgotten(house: House, tab: Visit) -> None:
    asked: list[Any] = []

    async def archive(route: Route) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query)["messages"])
        message = {"index": 1, "role": "user", "text": "Biscuit <b>eats</b> seeds.", "id": 7}
        await route.fulfill(json={"messages": [message]})

    async def forget(route: Route) -> None:
        asked.append(route.request.post_data_json)
        await route.fulfill(json={"messages": 1, "facts": 0})

    await tab.page.route("**/v1/window/left?*", archive)
    await tab.page.route("**/v1/memory/forget", forget)
    left = {"at": AT_S, "messages": [1, 2], "tokens": 160, "ms": 0.12, "reason": "oldest exchange"}
    page = await open_chat(house, tab, ("left", left))
    await page.get_by_role("button", name="Left: oldest exchange").click()
    dialog = page.get_by_role("dialog", name="What has left")
    await expect(dialog).to_contain_text("Biscuit <b>eats</b> seeds.")
    await dialog.get_by_role("button", name="Bring back").click()
    await expect(dialog).to_have_count(0)
    name = urlsplit(page.url).fragment.removeprefix("/chat/")
    await expect(page.get_by_role("list", name="Goes with the message")).to_contain_text("1 message brought back")
    brought = "(name) => import('/web/js/chat/store.js').then(({chatOf}) => chatOf(name).quotes.value)"
    assert await page.evaluate(brought, name) == [{"id": 7, "role": "user", "text": "Biscuit <b>eats</b> seeds."}]

    await page.get_by_role("button", name="Left: oldest exchange").click()
    await dialog.get_by_role("button", name="Forget…").click()
    question = page.get_by_role("dialog", name="Forget what has left?")
    await expect(question).to_contain_text("1 message would be forgotten")
    await question.get_by_role("button", name="Forget 1").click()
    await expect(question).to_have_count(0)
    assert asked == [["1,2"], ["1,2"], {"messages": [7], "dry_run": True}, {"messages": [7]}]


async def test_a_piece_shows_its_tokens_page_by_page(house: House, tab: Visit) -> None:
    async def tokens(route: Route) -> None:
        query = {
            name: int(*value)
            for name, value in parse_qs(urlsplit(route.request.url).query).items()
            if value[0].isdigit()
        }
        await route.fulfill(
            json={"tokens": [{"id": at, "text": f" t{at}"} for at in range(query["start"], query["stop"])]}
        )

    await tab.page.route("**/v1/window/tokens?*", tokens)
    page = await open_chat(house, tab, ("grow", {"seq": 0, "tokens": 1500, "held": 1340, "kind": "assistant"}))
    button = page.get_by_role("group", name="Cells of this conversation").get_by_role("button")
    await button.focus()
    await page.keyboard.press("End")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Answer · 640 tokens · protected")
    await expect(dialog).to_contain_text("t860")
    await expect(dialog).to_contain_text("Tokens 860 to 1,360")
    await dialog.get_by_role("button", name="Later").click()
    await expect(dialog).to_contain_text("t1499")
    await expect(dialog.get_by_role("button", name="Later")).to_be_disabled()


async def test_every_happening_is_one_sentence_with_its_reason(house: House, tab: Visit) -> None:
    page = await open_chat(
        house,
        tab,
        ("left", {"at": AT_S, "messages": [1], "tokens": 412, "ms": 0.1, "reason": "oldest exchange"}),
        ("recalled", {"at": AT_S, "messages": [1], "tokens": 86, "words": ["hamster"], "ids": [7], "oldest_s": AT_S}),
        ("miss", {"at": AT_S, "token": 812, "of": 1204, "was": "\nFriday", "is": " Saturday", "message": 3}),
        ("moved", {"at": AT_S, "from": "cells", "to": "memory", "tokens": 740, "ms": 2.1, "why": "idle"}),
        ("spans", {**spans("other"), "seq": 1}),
        ("turn", {"session": "other", "seq": 1, "at": AT_S, "cached": 600, "new": 40, "first_token_s": 0.12}),
        ("a later kind of event", {"at": AT_S}),
    )  # fmt: skip
    log = page.get_by_role("log", name="What left, came back, was missed and moved").get_by_role("listitem")
    await expect(log).to_contain_text(
        [
            "Moved: cells to memory740 tokens, 2.1 ms, idle",
            "Cache missed from token 812 of 1,204was “↵Friday”, is “ Saturday”, in message 3",
            "Came back: you said hamster86 tokens, from Nov 14, 2023",
            "Left: oldest exchange412 tokens, 0.1 ms",
        ]
    )
    await page.get_by_role("button", name="Session other").click()
    await expect(page.get_by_role("row").last).to_contain_text("600 cached, 40 computed120 ms")


async def test_events_of_another_version_are_refused_with_a_sentence(house: House, tab: Visit) -> None:
    page = await open_chat(house, tab, version=2)
    await expect(page.get_by_role("alert")).to_have_text(
        "The server sends version 2 of the window; this page reads 1. Reload it."
    )
    await expect(page.get_by_role("group", name="Cells of this conversation")).to_have_count(0)


async def test_on_a_narrow_screen_a_low_bar_opens_and_closes_the_window(house: House, visiting: Visiting) -> None:
    async with visiting(house.address, None, size=(390, 844), scheme="dark") as visit:
        page = await open_chat(house, visit)
        bar = page.get_by_role("button", name="Open the living window. 700 of 2,048 tokens")
        await bar.click()
        await expect(page.get_by_role("heading", name="Living window")).to_be_visible()
        await page.get_by_role("button", name="Close the living window").click()
        await expect(bar).to_be_visible()


async def test_a_chat_with_a_provider_says_that_no_cell_holds_it(house: House, tab: Visit) -> None:
    name = house.save("Elsewhere", [Message.user("Hello?"), Message.assistant("Hello.")], model="script")
    await tab.page.goto(f"{tab.address}#/chat/{name}")
    await expect(tab.page.get_by_role("complementary", name="Living window")).to_contain_text("is at a provider")
