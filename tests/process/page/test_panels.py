"""The panel of models, with a hub on loopback: a first visit, and a pull that is stopped and goes on."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests import started
from tests.fakes.hub import Hub, Slow
from tests.process.page.conftest import Visiting
from tests.proven import proven

from shepherd.models import catalog

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_first_visit_leads_to_the_models_and_a_stopped_pull_goes_on(visiting: Visiting, tmp_path: Path) -> None:
    content = catalog.embedded().read_bytes()
    settings = tmp_path / ".config" / "shepherd" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[server]\nmanage_models = true\n")
    proven(tmp_path / ".cache" / "shepherd")
    with Hub() as hub, ExitStack() as stack:
        hub.put_repo("acme/lamb-GGUF", {"lamb-F16.gguf": content})
        hub.fail("cdn", Slow(200_000, 0.1))
        server = started.serving(tmp_path, before=("env", f"HF_ENDPOINT={hub.url}"))
        _, address = await asyncio.to_thread(stack.enter_context, server)
        async with visiting(address) as visit:
            page = visit.page
            await expect(page.get_by_role("heading", name="Choose a model")).to_be_visible()
            await page.get_by_label("Name", exact=True).fill("hf:acme/lamb-GGUF")
            await page.get_by_role("button", name="Pull", exact=True).first.click()
            await expect(page.get_by_text(re.compile(r"[3-9]\.\d MB of 10.8 MB"))).to_be_visible()
            await page.get_by_role("button", name="Stop").click()
            await page.get_by_role("button", name="Go on").first.click()
            row = page.get_by_role("listitem").filter(has_text="hf:acme/lamb-GGUF:F16")
            await row.get_by_role("button", name="Load", exact=True).click()
            await expect(row.get_by_role("button", name="Unload")).to_be_visible()
            assert not hub.ranges("cdn")[-1].startswith("bytes=0-"), "it went on where it was"
            await row.get_by_role("button", name="More about").click()
            await page.get_by_role("menuitem", name="Delete").click()
            await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            await expect(row).to_have_count(0)
            assert await visit.violations() == ""
