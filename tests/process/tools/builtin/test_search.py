"""The tests of `tests/unit/tools/builtin/test_search.py` that start programs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.builtin.test_search import context, find, refusal, top  # noqa: F401 - fixtures

from shepherd.process.isolated import run_isolated
from shepherd.tools.builtin.search import search_files
from shepherd.tools.results import ResultStore
from shepherd.tools.tool import ToolContext


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": r"^def \w+alk\("}, ["a.py:4:def walk(top):", "src/deep/b.py:1:def talk():"]),
        ({"pattern": "[[o]n"}, ["docs/readme.md:2:walk (on) "]),  # of which Python warns
        ({"pattern": "WALK (", "ignore_case": True, "fixed": True}, ["docs/readme.md:2:walk (on) "]),
        ({"pattern": r"^def|^import", "context": 1},
         ["a.py:1:import os", "a.py-2-", "a.py-3-", "a.py:4:def walk(top):", "a.py-5-    return os.walk(top)",
          "--", "src/deep/b.py:1:def talk():", "src/deep/b.py-2-    pass"]),
    ],
)  # fmt: skip
async def test_lines_that_match_a_pattern_are_found_by_a_child(
    context: ToolContext, arguments: dict[str, Any], lines: list[str]
) -> None:
    assert (await find(context, **arguments)).content.split("\n") == lines


async def test_large_files_are_searched_when_they_are_named_in_every_part(top: Path, context: ToolContext) -> None:
    n_lines = 1_000_000
    with_needles = {1: "first", 700_001: "middle", n_lines: "last"}
    with (top / "work/large").open("w") as file:
        for start in range(0, n_lines, 100_000):
            block = ["12345678\n"] * 100_000
            for line, word in with_needles.items():
                if start < line <= start + 100_000:
                    block[line - 1 - start] = f"needle {word}\n"
            file.write("".join(block))
    lines = [f"large:{line}:needle {word}" for line, word in with_needles.items()]
    assert (await find(context, pattern="needle", path="large")).content.split("\n") == lines
    assert (await find(context, pattern="needl[e]", path="large")).content.split("\n") == lines
    assert (await find(context, pattern="needle")).content == (
        'No line matches "needle" in 4 files.\n[skipped: 1 too large]'
    )


async def test_a_pattern_that_takes_for_ever_is_stopped(
    top: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = partial(run_isolated, deadline_s=0.5)  # the usual limit is seconds of processor time
    monkeypatch.setattr("shepherd.tools.builtin.search.run_isolated", soon)
    (top / "work/trap").write_text("a" * 60 + "!")
    said = await refusal(context, pattern="(a+)+$", path="trap")
    assert said.startswith('the pattern "(a+)+$": ')
    assert "stopped" in said


@pytest.mark.parametrize(
    "arguments", [{"pattern": "("}, {"pattern": "(", "glob": "*.nothing"}], ids=["in all", "in no"]
)
async def test_a_wrong_pattern_is_refused_whatever_files_there_are(
    context: ToolContext, arguments: dict[str, Any]
) -> None:
    said = await refusal(context, **arguments)
    assert said.startswith('the pattern "(": it is not a regular expression (missing )')
    assert said.endswith("fixed=true searches for plain text")


async def test_a_kept_result_is_searched(context: ToolContext) -> None:
    kept = ResultStore()
    name, _ = kept.keep("one\ntwo\nthree\n")
    found = await find(replace(context, kept=kept), pattern="t[wh]", path=name)
    assert found.content == "result:1:2:two\nresult:1:3:three"


async def test_a_search_that_is_cancelled_ends(top: Path, context: ToolContext) -> None:
    (top / "work/trap").write_text("a" * 22 + "!")  # a part of a second: its child ends by itself
    task = asyncio.ensure_future(search_files.run(context, {"pattern": "(a+)+$", "path": "trap"}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
