"""search_files: what it finds, how it says so, and that no pattern holds it up."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.search import search_files
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
