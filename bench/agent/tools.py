"""What a call of a tool costs beside the tool: the box, its parts, and bringing results of any size to a few tokens.

    uv run python -m bench.agent.tools [--rounds 5] [--quick]

*Calls*: a tool that does nothing, awaited bare, by its `Tool.run`, and through `Box.run`, on the event loop and in a
thread; eight at once; a small file by `open` and by `read_file`. *Parts*: finding the tool among 200, its arguments,
the rules. *Results*: texts of 100 kB to 1 GB brought to 2,000 tokens of the embedded model's vocabulary, and the whole
of it tokenised for comparison where that ends; how much memory it takes on top of the text.

Microseconds per call, the median of the rounds; the lists have a number per round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from bench.engine.grammar import open_vocabulary
from bench.rig import machine
from bench.rig.machine import EMBEDDED
from rich.console import Console
from rich.table import Table

from shepherd.core import ToolCall
from shepherd.tools.arguments import read_arguments
from shepherd.tools.base import Result
from shepherd.tools.builtin.files import read_file
from shepherd.tools.permission import Permission, about
from shepherd.tools.registry import find
from shepherd.tools.results import shorten
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.signature import tool
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox

BUDGET = 2_000
PROSE = "Sheep are kept for wool, milk and meat; a flock of 40 knows its shepherd by voice, 12 do not.\n"
SIZES = {"100 kB": 10**5, "1 MB": 10**6, "100 MB": 10**8, "1 GB": 10**9}
LARGEST_COUNTED = 10**6
N_TOOLS = 200
Rounds = dict[str, list[float]]


@tool(effect="read")
async def at_once(n: int) -> str:
    """Do nothing."""
    return str(n)


@tool(effect="read")
def in_thread(n: int) -> str:
    """Do nothing, in a thread."""
    return str(n)


async def bare(n: int) -> str:
    return str(n)


async def per_call(work: Callable[[], Awaitable[Any]], n: int) -> float:
    """Microseconds."""
    for _ in range(max(1, n // 10)):
        await work()
    begun = time.perf_counter()
    for _ in range(n):
        await work()
    return (time.perf_counter() - begun) / n * 1e6


def per_step(work: Callable[[], Any], n: int) -> float:
    """Microseconds."""
    begun = time.perf_counter()
    for _ in range(n):
        work()
    return (time.perf_counter() - begun) / n * 1e6


def other_tools() -> list[Tool]:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        return Result()

    return [Tool(f"other_{n}", "Something else.", {"type": "object"}, run) for n in range(N_TOOLS)]


async def calls(rounds: Rounds, folder: Path, n: int) -> None:
    tools = [*other_tools(), at_once, in_thread, read_file]
    context = ToolContext(count=lambda text: len(text) // 4, roots=Roots.of([str(folder)], str(folder)))
    rules = [f"write_file(folder_{n}/*)" for n in range(50)]
    permission = Permission(allow=rules, deny=["*(*.env)"], folder=folder)
    box = ConversationToolbox(lambda: tools, context=context, permission=permission, n_ctx=32_768)
    plain = ConversationToolbox(lambda: tools, context=context, permission=Permission(folder=folder), n_ctx=32_768)
    file = folder / "small.txt"
    file.write_text(PROSE * 20)

    def asked(name: str, **arguments: Any) -> ToolCall:
        return ToolCall("c", name, json.dumps(arguments))

    once, thread, read = asked("at_once", n=1), asked("in_thread", n=1), asked("read_file", path="small.txt")

    async def eight() -> None:
        await asyncio.gather(*(plain.run(once, share=8) for _ in range(8)))

    async def opened() -> None:
        file.read_text()

    measured: dict[str, Callable[[], Awaitable[Any]]] = {
        "nothing: bare await": lambda: bare(1),
        "nothing: Tool.run": lambda: at_once.run(context, {"n": 1}),
        "nothing: Box.run": lambda: plain.run(once),
        "nothing: Box.run, 51 rules": lambda: box.run(once),
        "nothing: Box.run, eight at once": eight,
        "in a thread: asyncio.to_thread": lambda: asyncio.to_thread(str, 1),
        "in a thread: Tool.run": lambda: in_thread.run(context, {"n": 1}),
        "in a thread: Box.run": lambda: plain.run(thread),
        "a file of 2 kB: open": opened,
        "a file of 2 kB: Tool.run": lambda: read_file.run(context, {"path": "small.txt"}),
        "a file of 2 kB: Box.run": lambda: plain.run(read),
        "a file of 2 kB: Box.run, 51 rules": lambda: box.run(read),
    }
    for name, work in measured.items():
        rounds.setdefault(name, []).append(await per_call(work, n))
    parts: dict[str, Callable[[], Any]] = {
        f"part: find a tool among {len(tools)}": lambda: find("in_thread", tools),
        "part: say which tool was meant": lambda: find("in_thraed", tools),
        "part: read the arguments": lambda: read_arguments(once.arguments, at_once),
        "part: what a call is about, links followed": lambda: about(read_file, {"path": "small.txt"}, folder),
    }
    for name, step in parts.items():
        rounds.setdefault(name, []).append(per_step(step, n))


def results(rounds: Rounds, sizes: Mapping[str, int]) -> None:
    vocabulary = open_vocabulary(EMBEDDED)
    process = psutil.Process()

    def count(text: str) -> int:
        return len(vocabulary.tokenize(text))

    for kind, piece in (("prose", PROSE), ("one line of blanks", " ")):
        for name, size in sizes.items():
            text = piece * (size // len(piece))
            before, begun = process.memory_info().rss, time.perf_counter()
            short = shorten(text, BUDGET, count)
            seconds = time.perf_counter() - begun
            assert count(short) <= BUDGET
            rounds.setdefault(f"shorten {name} of {kind}", []).append(seconds * 1e6)
            rounds.setdefault(f"memory for {name} of {kind}, kB", []).append(
                max(0, process.memory_info().rss - before) / 1e3
            )
            if size <= LARGEST_COUNTED and kind == "prose":
                whole = per_step(lambda text=text: count(text), 1)  # type: ignore[misc]
                rounds.setdefault(f"tokenise {name} of {kind}", []).append(whole)
            del text


async def whole_results(rounds: Rounds, sizes: Mapping[str, int]) -> None:
    """Through the box, which keeps them for reading on."""
    vocabulary = open_vocabulary(EMBEDDED)
    held = {"text": ""}

    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        return Result(held["text"])

    giant = Tool("giant", "Much.", {"type": "object"}, run, effect="read")
    context = ToolContext(count=lambda text: len(vocabulary.tokenize(text)))
    box = ConversationToolbox(
        lambda: [giant, read_file], context=context, permission=Permission(), n_ctx=32_768, result_tokens=BUDGET
    )
    for name, size in sizes.items():
        held["text"] = PROSE * (size // len(PROSE))
        begun = time.perf_counter()
        await box.run(ToolCall("c", "giant", "{}"))
        rounds.setdefault(f"Box.run with a result of {name}", []).append((time.perf_counter() - begun) * 1e6)


def table(rounds: Rounds) -> Table:
    made = Table("measured", "median", "rounds", title="µs, where nothing else is said")
    for name, values in rounds.items():
        made.add_row(name, f"{statistics.median(values):,.1f}", " ".join(f"{value:,.1f}" for value in values))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few calls, nothing above 1 MB; the numbers mean little")
    options = parser.parse_args()
    n_rounds, n_calls = (1, 50) if options.quick else (options.rounds, 2_000)
    sizes = {name: size for name, size in SIZES.items() if not options.quick or size <= 10**6}
    rounds: Rounds = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(n_rounds):
            asyncio.run(calls(rounds, Path(os.path.realpath(folder)), n_calls))
            results(rounds, sizes)
            asyncio.run(whole_results(rounds, sizes))
    Console(width=120).print(table(rounds))
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    print(machine.save("tools", {"unit": "us", "medians": medians, "rounds": rounds}, quick=options.quick))


if __name__ == "__main__":
    main()
