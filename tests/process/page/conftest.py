"""One browser and one house for all tests of the page: a server on the embedded model and on a scripted provider.

Everything here runs on the session's event loop: the browser's driver, the provider and the tests.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from tests import started
from tests.browser import Visit, chromium, needed, visiting
from tests.places import TESTS
from tests.proven import proven
from tests.providers_scripted import Said, ScriptedProvider, scripted

from shepherd.agent.storage import ConversationStore, SavedConversation
from shepherd.core import Message

if importlib.util.find_spec("playwright") is None:

    class WithoutBrowser(pytest.Module):
        """A file of this folder: its imports alone need Playwright."""

        def collect(self) -> NoReturn:
            pytest.skip("no playwright: `uv sync --group page` installs it", allow_module_level=True)

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
        return WithoutBrowser.from_parent(parent, path=module_path)


Visiting = Callable[..., AbstractAsyncContextManager[Visit]]
"""The type of `visiting`: a visit to an address, with the browser of all tests."""

Start = Callable[..., AbstractAsyncContextManager[str]]
"""Starts a further server, with these words, and a home and a memory of its own; its address. Killed at the end."""

CONFIG = """\
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
overflow = "evict"
[caches.small]
model = "lamb"
n_ctx = 512
overflow = "evict"
[providers.script]
type = "openai_compat"
base_url = "{provider}"
model = "m"
[tools]
roots = ["{folder}"]
enabled = ["filesystem", "desk_*"]
[memory]
recall = false
[chat]
keep = 1000
[[mcp_servers]]
name = "desk"
command = {python}
args = {desk}
"""
DESK = TESTS / "unit" / "tools" / "mcp" / "scripted.py"
"""A server of tools, one of which asks the person."""


@dataclass
class House:
    """A server with its person's folders."""

    address: str
    home: Path
    provider: ScriptedProvider
    """What stands behind the model `script`; a test sets its `script`."""

    @property
    def folder(self) -> Path:
        """Where the tools may write."""
        return self.home / "scratch"

    def save(self, title: str, messages: Sequence[Message], *, model: str = "script") -> str:
        """Keep a conversation as the terminal does; its name."""
        return self.chats.save(SavedConversation(title, tuple(messages), title=title, model=model))

    @property
    def chats(self) -> ConversationStore:
        """The conversations of the terminal and the page."""
        return ConversationStore(self.home / ".local" / "share" / "shepherd" / "conversations", keep=1000)


def furnish(home: Path, provider: ScriptedProvider, config: str = CONFIG) -> None:
    """Write what a server with this home reads at its start."""
    folder, settings = home / "scratch", home / ".config" / "shepherd" / "config.toml"
    for each in (folder, settings.parent):
        each.mkdir(parents=True)
    proven(home / ".cache" / "shepherd")
    settings.write_text(
        config.format(
            provider=provider.url,
            folder=folder,
            python=json.dumps(sys.executable),
            desk=json.dumps([str(DESK), '{"only": "ask_user"}']),
        )
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Any]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    needed()
    home = tmp_path_factory.mktemp("house")
    with ExitStack() as stack:
        async with scripted("openai.chat", lambda heard: Said("Hello.")) as provider:
            furnish(home, provider)
            _, address = await asyncio.to_thread(stack.enter_context, started.serving(home))
            yield House(address, home, provider)
            stack.close()  # before the provider, which waits for its connections


@pytest.fixture(scope="session")
def start(house: House, tmp_path_factory: pytest.TempPathFactory) -> Start:
    @asynccontextmanager
    async def start(*words: str, home: Path | None = None) -> AsyncIterator[str]:
        if home is None:
            home = tmp_path_factory.mktemp("other")
            furnish(home, house.provider)
        with ExitStack() as stack:
            _, address = await asyncio.to_thread(stack.enter_context, started.serving(home, words=words))
            yield address

    return start


@pytest.fixture(name="visiting")
def visiting_fixture(browser: Any) -> Visiting:
    return partial(visiting, browser)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guest(house: House, browser: Any) -> AsyncIterator[Visit]:
    """The one visit that most tests take in turn: a page that is in the browser's cache opens in half the time."""
    async with visiting(browser, house.address, None) as guest:
        yield guest
        await guest.begin_again()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(guest: Visit) -> AsyncIterator[Visit]:
    """A visit to the house, before an empty tab."""
    await guest.begin_again()
    yield guest
    guest.check()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(tab: Visit) -> Visit:
    """A visit to the page of the house, before a new chat."""
    await tab.page.goto(tab.address)
    return tab


@pytest_asyncio.fixture(loop_scope="session")
async def script(house: House, tab: Visit) -> Visit:
    """A visit to a new chat with the model that says what the test wants; `Hello.` as long as it wants nothing."""
    house.provider.script = lambda heard: Said("Hello.")
    made = await tab.context.request.post(tab.address + "v1/chats", data={"model": "script"})
    assert made.ok, await made.text()
    await tab.page.goto(f"{tab.address}#/chat/{(await made.json())['id']}")
    return tab
