"""The panel of models, with a hub on loopback: a first visit, pulls that stop, go on and are discarded, a chat."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests import started
from tests.fakes.hub import Hub, Slow
from tests.process.page.conftest import Visiting
from tests.process.page.person import Person
from tests.proven import proven

from shepherd.models import catalog
from shepherd.models.pull import staging
from shepherd.models.pulled import PARTIAL, models_folder

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
        server = started.serving(tmp_path, before=("env", f"HF_ENDPOINT={hub.url}"))
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
            await expect(page.get_by_text(re.compile(r"[3-9]\.\d MB of 10.8 MB"))).to_be_visible()
            await page.get_by_role("button", name="Stop").click()
            await page.get_by_role("button", name="Go on").first.click()
            row = page.get_by_role("listitem").filter(has_text="hf:acme/lamb-GGUF:F16")
            await row.get_by_role("button", name="Load", exact=True).click()
            await expect(row.get_by_role("button", name="Unload")).to_be_visible()
            assert not hub.ranges("cdn")[-1].startswith("bytes=0-"), "it went on where it was"
            await row.get_by_role("button", name="Chat", exact=True).click()
            await Person(page).says("Hello!")
            await expect(page.get_by_text(re.compile(r"The model has read AGENTS.md: \d+ tokens"))).to_be_visible()
            await page.get_by_role("link", name="Models").click()
            await row.get_by_role("button", name="More about").click()
            await page.get_by_role("menuitem", name="Delete").click()
            await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            await expect(row).to_have_count(0)
            assert await visit.violations() == ""
