"""The tests of `tests/unit/tools/builtin/test_search.py` that start programs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.builtin.test_search import context, find, refusal, top  # noqa: F401 - fixtures

from shepherd.tools.builtin.search import search_files
from shepherd.tools.results import ResultStore
from shepherd.tools.tool import ToolContext


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "walk"},
         ["a.py:4:def walk(top):", "a.py:5:    return os.walk(top)", "docs/readme.md:2:walk (on) "]),
        ({"pattern": r"^def \w+alk\("}, ["a.py:4:def walk(top):", "src/deep/b.py:1:def talk():"]),
        ({"pattern": "walk (on)", "fixed": True}, ["docs/readme.md:2:walk (on) "]),
        ({"pattern": "WALK", "ignore_case": True, "path": "docs"},
         ["docs/readme.md:1:Walk the dog.", "docs/readme.md:2:walk (on) "]),
        ({"pattern": "WALK (", "ignore_case": True, "fixed": True}, ["docs/readme.md:2:walk (on) "]),
        ({"pattern": "walk", "glob": "*.py", "path": "a.py"},
         ["a.py:4:def walk(top):", "a.py:5:    return os.walk(top)"]),
        ({"pattern": "def", "glob": "src/**/*.py"}, ["src/deep/b.py:1:def talk():"]),
        ({"pattern": "def", "glob": "deep/*.py", "path": "src"}, ["src/deep/b.py:1:def talk():"]),
        ({"pattern": "walk", "mode": "files"}, ["a.py", "docs/readme.md"]),
        ({"pattern": "walk", "mode": "count"}, ["a.py: 2", "docs/readme.md: 1"]),
        ({"pattern": "dog[.]$"}, ["docs/readme.md:1:Walk the dog."]),
        ({"pattern": "def walk", "context": 1},
         ["a.py-3-", "a.py:4:def walk(top):", "a.py-5-    return os.walk(top)"]),
        ({"pattern": r"^def|^import", "context": 1},
         ["a.py:1:import os", "a.py-2-", "a.py-3-", "a.py:4:def walk(top):", "a.py-5-    return os.walk(top)",
          "--", "src/deep/b.py:1:def talk():", "src/deep/b.py-2-    pass"]),
        ({"glob": "*.py"}, ["a.py", "link.py", "src/deep/b.py"]),
        ({"pattern": "**/*.md"}, ["docs/readme.md"]),
        ({"pattern": "*.{md,txt}"}, ["docs/old.txt", "docs/readme.md"]),
        ({"glob": "*", "path": "docs"}, ["docs/old.txt", "docs/readme.md"]),
        ({"pattern": "dog.\nwalk", "fixed": True}, ['No line matches "dog.\\nwalk" in 4 files.']),
        ({"pattern": "top):\n    return", "fixed": True}, ["a.py:4:def walk(top):"]),
        ({"pattern": "outside"}, ['No line matches "outside" in 4 files.']),
        ({"glob": "*.c"}, ["No file has such a name."]),
    ],
)  # fmt: skip
async def test_lines_and_names_are_found(context: ToolContext, arguments: dict[str, Any], lines: list[str]) -> None:
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


async def test_a_pattern_that_takes_for_ever_is_stopped(top: Path, context: ToolContext) -> None:
    (top / "work/trap").write_text("a" * 60 + "!")
    said = await refusal(context, pattern="(a+)+$", path="trap")
    assert said.startswith('the pattern "(a+)+$": ')
    assert "stopped" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pattern": "("}, "fixed=true searches for plain text"),
        ({"pattern": "(", "glob": "*.nothing"}, "it is not a regular expression"),
        ({"pattern": "[[a]"}, ""),
        ({"pattern": "a{99999999999}"}, "it is not a regular expression"),
        ({}, "give a pattern, for text in files, or a glob"),
        ({"pattern": "x", "mode": "everything"}, "mode must be content, files or count, not 'everything'"),
        ({"pattern": "x", "limit": 0}, "limit must be at least 1"),
        ({"pattern": "x", "context": -1}, "context at least 0"),
        ({"pattern": "x" * 3_000}, "may have 2,000 characters"),
        ({"pattern": "x", "path": "nowhere"}, 'there is no "nowhere"'),
        ({"pattern": "x", "path": "../outside.py"}, "is outside the folders"),
        ({"pattern": "x", "path": "link.py"}, "is outside the folders"),
        ({"glob": "*", "path": ".."}, "is outside the folders"),
        ({"glob": "{a,b}" * 30}, "stands for more than 64"),
        ({"pattern": "x", "path": "result:1"}, "this conversation stores no results"),
    ],
)
async def test_what_cannot_be_searched_is_said(context: ToolContext, arguments: dict[str, Any], sentence: str) -> None:
    if sentence:
        assert sentence in await refusal(context, **arguments)
    else:
        await find(context, **arguments)


async def test_a_kept_result_is_searched(context: ToolContext) -> None:
    kept = ResultStore()
    name, _ = kept.keep("one\ntwo\nthree\n")
    found = await find(replace(context, kept=kept), pattern="t[wh]", path=name)
    assert found.content == "result:1:2:two\nresult:1:3:three"


async def test_a_search_that_is_cancelled_ends(top: Path, context: ToolContext) -> None:
    (top / "work/trap").write_text("a" * 60 + "!")
    task = asyncio.ensure_future(search_files.run(context, {"pattern": "(a+)+$", "path": "trap"}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
