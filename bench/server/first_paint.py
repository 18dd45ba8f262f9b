"""How soon the page shows something: first contentful paint of `/`, ours and llama-server's, in turn in one run.

    uv run --group page python -m bench.server.first_paint [--rounds 10] [--model EMBEDDED]

Each visit is a new person in this machine's Chromium, whose cache is empty: every file is asked for. Milliseconds after
the navigation began, as the browser counts them. A llama-server that was built without its page is left out.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx2
from bench.rig import machine
from bench.rig.machine import EMBEDDED
from bench.rig.sides import Setup, Side, running
from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser

PAINTED = """new Promise(resolve => new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({type: "paint", buffered: true}))"""


async def painted_ms(browser: Browser, address: str) -> float:
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(address, wait_until="commit")
        return float(await page.evaluate(PAINTED))
    finally:
        await context.close()


def has_page(address: str) -> bool:
    answer = httpx2.get(address, headers={"accept": "text/html", "accept-encoding": "gzip"})
    return answer.is_success and "text/html" in answer.headers.get("content-type", "")


async def measured(addresses: dict[Side, str], rounds: int) -> dict[Side, list[float]]:
    found: dict[Side, list[float]] = {side: [] for side in addresses}
    async with chromium() as browser:
        for address in addresses.values():  # what the first visit reads from the disk is not the page's
            await painted_ms(browser, address)
        for _ in range(rounds):
            for side, address in addresses.items():
                found[side].append(await painted_ms(browser, address))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    options = parser.parse_args()
    setup = Setup(options.model, 4096)
    with running("shepherd", setup) as ours, running("llama-server", setup) as theirs:
        each = {server.side: f"http://127.0.0.1:{server.port}/" for server in (ours, theirs)}
        addresses = {side: address for side, address in each.items() if has_page(address)}
        found = asyncio.run(measured(addresses, options.rounds))
    result: dict[str, Any] = {"rounds": options.rounds}
    for side, times in found.items():
        result[side] = {"median_ms": round(median(times), 1), "best_ms": round(min(times), 1)}
        print(f"{side}: {result[side]}")
    print(machine.save("first_paint", result))


if __name__ == "__main__":
    main()
