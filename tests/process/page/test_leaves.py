"""A conversation that outgrows its context: the bar is what the cache holds, and what left is read and forgotten."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.browser import Visit
from tests.process.page.conftest import House, Start, Visiting, furnish
from tests.process.page.person import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG = """\
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 512
overflow = "evict"
[tools]
enabled = []
[memory]
recall = true
"""
N_BOXES = 5
"""Messages of boxes; with them the conversation has more tokens than the context."""


def box(at: int) -> str:
    return " ".join(f"The number of box {n} is {n * 37}." for n in range(8 * at, 8 * at + 8))


@pytest_asyncio.fixture(loop_scope="session")
async def small(house: House, start: Start, visiting: Visiting, tmp_path: Path) -> AsyncIterator[Visit]:
    """A visit to a server whose model has a small context, and a memory."""
    furnish(tmp_path / "home", house.provider, CONFIG)
    async with start(home=tmp_path / "home") as address, visiting(address) as visit:
        yield visit


async def held(visit: Visit) -> int:
    """The tokens of the only conversation in the cells, as `GET /v1/caches` has them."""
    caches = await (await visit.context.request.get(f"{visit.address}v1/caches")).json()
    (sequence,) = caches["caches"]["main"]["sequences"]
    return int(sequence["tokens"])


async def test_the_bar_is_what_the_cache_holds_and_what_left_is_read_and_forgotten(small: Visit) -> None:
    page, person = small.page, Person(small.page)
    bar = page.get_by_role("group", name="Cells of this conversation")
    left = page.get_by_role("log", name="What left, came back, was missed and moved").get_by_role("button")
    for text in ("The capital of France is Paris.", *map(box, range(N_BOXES)), "What is the capital of France?"):
        await person.says(text)
        await expect(person.questions.last).to_contain_text(text)  # its turn has begun
        await person.hears("")
        await expect(bar).to_contain_text(f"{await held(small)} of 512 tokens: ")
    await person.hears("The capital of France is Paris.")
    await expect(bar).to_contain_text(re.compile(r"has left [1-9]"))

    await expect(left.filter(has_text="oldest exchange").last).to_be_visible()
    dialog = page.get_by_role("dialog", name="What has left")
    await left.filter(has_text="oldest exchange").last.click()
    await expect(dialog).to_contain_text("The capital of France is Paris.")
    await dialog.get_by_role("button", name="Forget…").click()
    await page.get_by_role("dialog", name="Forget").get_by_role("button", name=re.compile(r"Forget \d")).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await left.filter(has_text="oldest exchange").last.click()
    await expect(dialog).to_contain_text("The archive has no text of it.")
