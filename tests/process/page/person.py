"""What a person does at the chat, by the roles and names that a screen reader hears."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


class Person:
    """At one tab with the chat."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @property
    def message(self) -> Locator:
        """Where the next message is written."""
        return self.page.get_by_role("textbox", name="Message")

    @property
    def answers(self) -> Locator:
        return self.page.get_by_role("article", name="Answer")

    @property
    def questions(self) -> Locator:
        return self.page.get_by_role("article", name="You")

    @property
    def question(self) -> Locator:
        """What a tool asks: may it run, or a form."""
        return self.page.get_by_role("region", name="A question waits for your answer")

    async def says(self, text: str) -> None:
        await self.message.fill(text)
        await self.page.keyboard.press("Enter")

    async def hears(self, text: str) -> None:
        """Wait until the last answer has this text, and has ended."""
        await expect(self.answers.last).to_contain_text(text)
        await expect(self.stop).to_have_count(0)

    @property
    def stop(self) -> Locator:
        return self.page.get_by_role("button", name="Stop (Esc)")
