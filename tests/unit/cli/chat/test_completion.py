"""What Tab offers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.chat import completion
from shepherd.cli.chat.commands import COMMANDS
from shepherd.cli.chat.state import Chat


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("notes.txt", "not es.md", ".hidden", "sub/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chat(**fields: Any) -> Chat:
    """What completion looks at of a conversation, and nothing else of it."""
    choices = [SimpleNamespace(name=name, kind="model", detail="") for name in ("lamb", "Qwen3-8B")]
    aliases = {"quick": "lamb"}
    models = SimpleNamespace(
        other_providers=tuple, choices=lambda: choices, aliases=aliases, adapted={"lamb:law": "lamb"}
    )
    tools = SimpleNamespace(servers=None)
    host = SimpleNamespace(conversations=models, tools=tools)
    session = SimpleNamespace(toolbox=None)
    return cast(Chat, SimpleNamespace(**{"app": host, "session": session, "saves": None, **fields}))


def after(before: str, of: Chat | None = None) -> list[str]:
    """What the line would be with each offer."""
    found = completion.suggestions(of or chat(), COMMANDS, before)
    return [before[: len(before) - offer.n_replaced] + offer.text for offer in found]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("/hel", ["/help "]),
        ("/ex", ["/export ", "/exit "]),
        ("/prompt", ["/prompts ", "/prompt "]),
        ("/HEL", ["/help "]),
        ("/text", ["/context "]),
        ("/xyz", []),
        ("hello /hel", []),
        ("line\n/hel", []),
        ("/hel\n", []),
        ("", []),
        ("/model q", ["/model Qwen3-8B ", "/model quick "]),
        ("/model 3-8", ["/model Qwen3-8B "]),
        ("/model lamb:", ["/model lamb:law "]),
        ("/model lamb x", []),
        ("/provider n", ["/provider next "]),
        ("/help cont", ["/help continue ", "/help context "]),
        ("/memory o", ["/memory on ", "/memory off "]),
        ("/profile k", ["/profile keep "]),
        ("/permissions f", ["/permissions forget "]),
        ("/mcp r", []),
        ("/export note", ["/export notes.txt "]),
        ("/export notes.txt h", ["/export notes.txt html "]),
        ("/export s", ["/export sub/"]),
        ("/nope x", []),
        ("/clear x", []),
        ("see @no", ['see @"not es.md"', "see @notes.txt"]),
        ("see @note", ["see @notes.txt"]),
        ('see @"not', ['see @"not es.md"', 'see @"notes.txt"']),
        ("see @sub/", ["see @sub/inner.py"]),
        ("see @s", ["see @sub/"]),
        ("(@s", ["(@sub/"]),
        ("see @.h", ["see @.hidden"]),
        ("mail@no", []),
        ("see @nowhere/", []),
        ("see @~nobody-there/", []),
        ("/model @note", ["/model @notes.txt"]),
        ("see @inn", ["see @sub/inner.py"]),
        ("see @inpy", ["see @sub/inner.py"]),
        ("see @ub/in", ["see @sub/inner.py"]),
        ("/ctx", ["/context "]),
    ],
)
def test_offers_go_on_with_what_was_typed(folder: Path, before: str, expected: list[str]) -> None:
    assert sorted(after(before)) == sorted(expected)


def test_everything_is_offered_behind_a_slash_and_hidden_files_only_when_asked_for(folder: Path) -> None:
    assert after("/") == [f"{name} " for name in COMMANDS]
    assert after("@") == ['@"not es.md"', "@notes.txt", "@sub/"]


def test_a_huge_folder_offers_its_beginning(folder: Path) -> None:
    for number in range(300):
        (folder / f"many{number:03}").touch()
    assert len(after("@many")) == completion.MAX_SUGGESTIONS


def test_a_search_below_the_folder_ends_in_a_huge_one(folder: Path) -> None:
    for number in range(completion.MOST_WALKED // 100 + 1):
        (folder / f"a{number:03}").mkdir()
        for file in range(100):
            (folder / f"a{number:03}" / f"b{file}").touch()
    (folder / "zzz").mkdir()
    (folder / "zzz" / "last.txt").touch()
    assert after("@last") == []
    assert len(after("@b9")) > 10


@given(st.text())
def test_nothing_that_is_typed_breaks_completion(before: str) -> None:
    after(before)
    after(f"/{before}")
    after(f"/model {before}")
    after(f"@{before}")
