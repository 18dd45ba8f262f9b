"""Each state of the page, in both colour schemes and sizes: without a violation for axe-core, and as a picture.

The gate takes two of the four looks.

visit ─ state by state ─▶ axe: [] ─▶ build/page/NAME.png ─ make page-pictures ─▶ docs/pictures/page-NAME.png
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from PIL import Image
from playwright.async_api import Page, expect
from tests.browser import NARROW, WIDE
from tests.cases import amount
from tests.places import ROOT
from tests.process.page.conftest import House, Visiting
from tests.process.page.person import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER = ROOT / "build" / "page"
N_COLOURS = 128
"""Of a picture: so it stays small."""
TALK = (
    "My hamster is called Flocke.",
    "List the files in .",
    "What is the capital of France?",
    "Hello!",
    "Who are you?",
    "What is my hamster called?",
)


async def talk(page: Page) -> None:
    """A conversation with a call; its beginning, in the gate."""
    person = Person(page)
    for text in TALK[: amount(2, len(TALK))]:
        await person.says(text)
        await expect(person.questions.last).to_contain_text(text)  # its turn has begun
        await person.hears("")


async def follow(page: Page, link: str) -> None:
    """Choose a link of the sidebar, which is a drawer on a narrow screen."""
    drawer = page.get_by_role("button", name="Chats and panels")
    if await drawer.is_visible():
        await drawer.click()
    await page.get_by_role("link", name=link, exact=True).click()


async def consent(page: Page) -> None:
    """The model wants to write a file."""
    await follow(page, "New chat")
    await expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    await Person(page).says("Write Buy milk to list.txt.")
    await expect(page.get_by_role("region", name="A question waits for your answer")).to_be_visible()


async def panel(page: Page, name: str, shown: str) -> None:
    """A panel, when it has its figures: then it shows this text."""
    await follow(page, name)
    await expect(page.get_by_role("main").get_by_text(shown).first).to_be_visible()


STATES: dict[str, Callable[[Page], Awaitable[None]]] = {
    "new": lambda page: expect(Person(page).message).to_be_visible(),
    "chat": talk,
    "consent": consent,
    "models": lambda page: panel(page, "Models", "Suggestions for this machine"),
    "memory": lambda page: panel(page, "Memory", "My hamster is called"),
    "usage": lambda page: panel(page, "Usage", "Tokens from the cache"),
}


async def keep(page: Page, name: str) -> None:
    """Write what the tab shows, for the documentation: in a search."""
    if amount(True, False):
        return
    taken = await page.screenshot(animations="disabled", caret="hide")
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.png"
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(N_COLOURS).save(file, optimize=True)


LOOKS = {"wide-light": ("light", WIDE), "narrow-dark": ("dark", NARROW)}
REST = {"narrow-light": ("light", NARROW), "wide-dark": ("dark", WIDE)}
TAKEN = LOOKS | amount({}, REST)


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("scheme", "size"), TAKEN.values(), ids=TAKEN)
async def test_no_state_has_a_violation_for_axe(
    scheme: Literal["light", "dark"], size: tuple[int, int], house: House, visiting: Visiting
) -> None:
    async with visiting(house.address, size=size, scheme=scheme) as visit:
        found = ""
        for name, reach in STATES.items():
            await reach(visit.page)
            await keep(visit.page, f"{name}-{scheme}" + ("-narrow" if size == NARROW else ""))
            if report := await visit.violations():
                found += f"{name}: {report}"
        assert not found, found
