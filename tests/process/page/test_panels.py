"""The panel of models, with a hub on loopback: a first visit, pulls that stop and go on, a first chat."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Route, expect
from tests import started
from tests.browser import Visit
from tests.fakes.hub import Hub, Slow
from tests.process.page.conftest import Visiting
from tests.process.page.person import Person
from tests.process.page.test_states import keep
from tests.proven import proven

from shepherd.models import catalog
from shepherd.models.pull import staging
from shepherd.models.pulled import PARTIAL, models_folder

pytestmark = pytest.mark.asyncio(loop_scope="session")

WATCH = """() => {
  window.shepherd_test_loading = [];
  const keep = (each) => shepherd_test_loading.push(each.innerText);
  const look = () => document.querySelectorAll(".loading").forEach(keep);
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
"""Keeps what a chat has said while its model was loaded."""
TELL = "([name, event]) => import('/web/js/chat/store.js').then(({chatOf}) => chatOf(name).on_loading(event))"
"""As an event of the server, of a model that is too large for a test."""


async def test_a_first_visit_leads_to_the_models_and_a_stopped_pull_goes_on(visiting: Visiting, tmp_path: Path) -> None:
    content = catalog.embedded().read_bytes()
    settings = tmp_path / ".config" / "shepherd" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[server]\nmanage_models = true\n")
    (tmp_path / "AGENTS.md").write_text("Be short.")
    proven(tmp_path / ".cache" / "shepherd")
    left = models_folder({}, tmp_path) / PARTIAL / ("0" * 64)
    left.mkdir(parents=True)
    (left / "other.gguf.part").write_bytes(bytes(2_000_000))
    plan = {"identity": "0", "name": "hf:acme/other-GGUF", "spec": "hf:acme/other-GGUF", "size_bytes": 9_000_000}
    staging.plan_file(left).write_text(json.dumps(plan))
    with Hub() as hub, ExitStack() as stack:
        hub.put_repo("acme/lamb-GGUF", {"lamb-F16.gguf": content})
        hub.fail("cdn", Slow(200_000, 0.1))
        server = started.serving(tmp_path, before=("env", "-u", "SHEPHERD_TRUST", f"HF_ENDPOINT={hub.url}"))
        _, address = await asyncio.to_thread(stack.enter_context, server)
        async with visiting(address) as visit:
            page = visit.page
            await expect(page.get_by_role("heading", name="Choose a model")).to_be_visible()
            other = page.get_by_role("listitem").filter(has_text="hf:acme/other-GGUF")
            await expect(other).to_contain_text("2.0 MB of 9.0 MB")
            await other.get_by_role("button", name="Discard…").click()
            await page.get_by_role("dialog").get_by_role("button", name="Discard").click()
            await expect(other).to_have_count(0)
            assert not left.exists()
            await page.get_by_label("Name", exact=True).fill("hf:acme/lamb-GGUF")
            await page.get_by_role("button", name="Pull", exact=True).first.click()
            await expect(page.get_by_text(re.compile(rf"[3-9]\.\d MB of {len(content) / 1e6:.1f} MB"))).to_be_visible()
            await page.get_by_role("button", name="Stop").click()
            await page.get_by_role("button", name="Go on").first.click()
            row = page.get_by_role("listitem").filter(has_text="hf:acme/lamb-GGUF:F16")
            await row.get_by_role("button", name="Load", exact=True).click()
            await expect(row.get_by_role("button", name="Unload")).to_be_visible()
            assert not hub.ranges("cdn")[-1].startswith("bytes=0-"), "it went on where it was"
            await page.route("**/v1/chats/*/events*", late)
            await row.get_by_role("button", name="Chat", exact=True).click()
            await a_new_folder_is_asked_about_and_the_model_loads(visit)
            await page.get_by_role("link", name="Models").click()
            await row.get_by_role("button", name="More about").click()
            await page.get_by_role("menuitem", name="Delete").click()
            await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            await expect(row).to_have_count(0)
            assert await visit.violations() == ""


async def late(route: Route) -> None:
    """The way to the server is slow: what is sent at the same time is there before."""
    await asyncio.sleep(0.5)
    await route.continue_()


async def a_new_folder_is_asked_about_and_the_model_loads(visit: Visit) -> None:
    """The model leaves while the question waits, so that the turn loads it behind the answer."""
    page, person = visit.page, Person(visit.page)
    await page.evaluate(WATCH)
    await person.says("Hello!")
    await expect(person.question).to_contain_text(re.compile(r"AGENTS.md \(1 line\) is new here.* Trust it\?"))
    leaves = {"model": "hf:acme/lamb-GGUF:F16", "keep_alive": 0}
    assert (await visit.context.request.post(f"{visit.address}api/generate", data=leaves)).ok
    name = urlsplit(page.url).fragment.removeprefix("/chat/")
    for event, shown in (
        ({"share": None, "loaded_bytes": None, "total_bytes": None}, ""),
        ({"share": 0.5, "loaded_bytes": None, "total_bytes": None}, "50 %"),
        ({"share": 0.26, "loaded_bytes": 1_204_000_000, "total_bytes": 4_631_000_000}, "1.2 of 4.6 GB, 26 %"),
    ):
        await page.evaluate(TELL, [name, {"model": "a-large-model", "stage": "weights", **event}])
        await expect(page.get_by_role("status").filter(has_text="Loading a-large-model")).to_be_visible()
        await expect(page.locator(".loading .figures")).to_have_text(shown)
    await expect(person.question).to_be_visible()
    assert await visit.violations() == ""
    await keep(page, "loading")
    await person.question.get_by_role("button", name="Yes").click()
    await expect(page.get_by_text(re.compile(r"The model has read AGENTS.md: \d+ tokens"))).to_be_visible()
    await person.hears("")
    await expect(page.get_by_role("progressbar")).to_have_count(0)
    seen = await page.evaluate("shepherd_test_loading")
    assert [each for each in seen if "lamb-F16" in each], seen
