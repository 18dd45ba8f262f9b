"""search_files: what it finds, how it says so, and that no pattern holds it up."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.search import lines_that_match, search_files
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import ToolContext

FILES = {
    "a.py": "import os\n\n\ndef walk(top):\n    return os.walk(top)\n",
    "docs/readme.md": "Walk the dog.\r\nwalk (on) \r\n",
    "docs/old.txt": "nothing\n",
    "src/deep/b.py": "def talk():\n    pass\n",
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    work = tmp_path.resolve() / "work"
    for name, text in FILES.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(text.encode())
    (tmp_path / "outside.py").write_text("walk outside\n")
    (work / "link.py").symlink_to("../outside.py")
    return tmp_path.resolve()


@pytest.fixture
def context(top: Path) -> ToolContext:
    work = str(top / "work")
    return ToolContext(roots=Roots.of([work], work), budget=1_000, count=lambda text: len(text) // 4 + 1)


async def find(context: ToolContext, /, **arguments: Any) -> Result:
    result = await search_files.run(context, arguments)
    assert result.success
    assert context.count(result.content) <= context.budget
    return result


async def refusal(context: ToolContext, /, **arguments: Any) -> str:
    with pytest.raises(ToolError) as error:
        await search_files.run(context, arguments)
    return error.value.message


async def test_a_limit_and_the_room_cut_what_is_found_and_say_so(top: Path, context: ToolContext) -> None:
    (top / "work/many").write_text("".join(f"row {number}\n" for number in range(5_000)))
    found = await find(context, pattern="row", limit=3)
    assert found.content.split("\n") == [
        "many:1:row 0", "many:2:row 1", "many:3:row 2", "[there is more; narrow it down with path, glob or pattern]"
    ]  # fmt: skip
    assert found.summary == "3 lines in 1 file"
    assert "there is more" not in (await find(context, pattern="walk", limit=3)).content
    assert "there is more" in (await find(context, pattern="walk", limit=2)).content
    assert "there is more" in (await find(context, pattern="walk", limit=1, mode="files")).content
    assert "there is more" not in (await find(context, pattern="walk", limit=2, mode="files")).content
    assert "there is more" in (await find(context, glob="*.py", limit=2)).content
    assert (await find(context, pattern="row", mode="count")).content == "many: 5,000"
    tight = await find(replace(context, budget=100), pattern="row", limit=1_000)
    assert tight.content.endswith("[there is more; narrow it down with path, glob or pattern]")
    assert (await find(context, pattern="row", limit=10**9)).content.startswith("many:1:row 0\n")


async def test_a_long_line_is_shown_around_what_was_found(top: Path, context: ToolContext) -> None:
    (top / "work/long").write_text("x" * 5_000 + " needle " + "y" * 5_000)
    content = (await find(context, pattern="needle")).content
    assert "… " not in content
    assert content == f"long:1:…{'x' * 74} needle {'y' * 218}…"


async def test_what_is_no_text_is_skipped(top: Path, context: ToolContext) -> None:
    (top / "work/image").write_bytes(b"\x89PNG\r\n\x1a\n\0\0walk")
    (top / "work/latin").write_bytes(b"caf\xe9 needle\n")
    (top / "work/wide").write_bytes("needle\n".encode("utf-16"))
    os.mkfifo(top / "work/fifo")
    found = await find(context, pattern="needle")
    assert found.content == "latin:1:caf\ufffd needle\nwide:1:needle\n[skipped: 1 not text]"
    assert "is a FIFO; only files can be searched" in await refusal(context, pattern="x", path="fifo")


def test_it_is_offered_under_the_names_that_models_know() -> None:
    assert list(search_files.parameters["properties"]) == [
        "pattern", "path", "glob", "fixed", "ignore_case", "context", "mode", "limit"
    ]  # fmt: skip
    assert {"Grep", "Glob"} <= set(search_files.aliases)
    assert (search_files.effect, search_files.category, search_files.subject) == ("read", "filesystem", "path")
    assert search_files.argument_aliases["output_mode"] == "mode"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "walk"},
         ["a.py:4:def walk(top):", "a.py:5:    return os.walk(top)", "docs/readme.md:2:walk (on) "]),
        ({"pattern": "walk (on)", "fixed": True}, ["docs/readme.md:2:walk (on) "]),
        ({"pattern": "walk", "glob": "*.py", "path": "a.py"},
         ["a.py:4:def walk(top):", "a.py:5:    return os.walk(top)"]),
        ({"pattern": "def", "glob": "src/**/*.py"}, ["src/deep/b.py:1:def talk():"]),
        ({"pattern": "def", "glob": "deep/*.py", "path": "src"}, ["src/deep/b.py:1:def talk():"]),
        ({"pattern": "walk", "mode": "files"}, ["a.py", "docs/readme.md"]),
        ({"pattern": "walk", "mode": "count"}, ["a.py: 2", "docs/readme.md: 1"]),
        ({"pattern": "def walk", "context": 1},
         ["a.py-3-", "a.py:4:def walk(top):", "a.py-5-    return os.walk(top)"]),
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
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
    assert sentence in await refusal(context, **arguments)


def hits(pattern: str, *texts: str, ignore_case: bool = False) -> list[list[tuple[int, int]]]:
    """What the child finds."""
    return lines_that_match({"pattern": pattern, "ignore_case": ignore_case, "texts": texts, "most": 9})


def test_a_pattern_is_sought_in_each_line_whatever_ends_it() -> None:
    assert hits("dog[.]$", "Walk the dog.\r\nwalk (on) \r\n", "dog.\n") == [[(0, 9)], [(0, 0)]]
    assert hits("WALK", "Walk the dog.\r\nwalk (on) \r\n", ignore_case=True) == [[(0, 0), (1, 0)]]


def test_what_is_no_pattern_is_refused() -> None:
    for pattern in ("(", "a{99999999999}"):
        with pytest.raises(ToolError, match=r"it is not a regular expression .*; fixed=true searches for plain text"):
            hits(pattern)
