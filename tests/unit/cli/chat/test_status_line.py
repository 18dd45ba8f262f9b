"""The line below the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.playing import Play, Stage

from shepherd.cli.chat import status_line
from shepherd.cli.chat.status_line import Facts
from shepherd.cli.text import n_columns
from shepherd.core.status import ActiveModel

LONG = Facts(
    "qwen3-30b-a3b-instruct-2507-Q4_K_M", "~/work/customers/acme/backend", "feature/rewind", 12_345, 32_768, "0.25"
)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (130, f"{LONG.model} · ask · {LONG.folder} (feature/rewind) · ▕███░░░░░▏ 12,345/32,768 · cost 0.25"),
        (100, "qwen3-30b-a3b-instruct-… · ask · backend (feature/rewind) · 12,345/32,768 · cost 0.25"),
        (80, "qwen3-30b-a3b-instruct-… · ask · backend · 12,345/32,768 · cost 0.25"),
        (60, "qwen3-30b-a… · ask · backend · 12,345/32,768 · cost 0.25"),
        (45, "qwen3-30b-a… · ask · 12,345/32,768"),
        (20, "ask"),
        (2, "a…"),
    ],
)
def test_parts_become_shorter_and_then_fewer(width: int, expected: str) -> None:
    assert status_line.line(LONG, "ask", width) == expected


def test_a_wide_terminal_shows_how_full_the_context_is() -> None:
    facts = Facts("lamb", "~", n_held=2_048, n_ctx=4_096)
    assert status_line.line(facts, "accept edits", 80) == "lamb · accept edits · ~ · ▕████░░░░▏ 2,048/4,096"
    assert status_line.line(Facts("gpt-5", "~"), "plan", 80) == "gpt-5 · plan · ~"


async def test_a_context_that_is_not_known_has_no_size_in_any_line(play: Play) -> None:
    class Elsewhere(Stage):
        @property
        def active(self) -> ActiveModel:
            return ActiveModel("cloud", "m", Path("m"), 0, False, "", "mine", is_provider=True)

    stage = Elsewhere(None)
    played = await play("Hello", "/model", stage=stage, is_person=True)
    assert played.chat.session.n_ctx == 100, "assumed"
    assert status_line.gather(played.chat).n_ctx == 0
    assert "Context: not known" in " ".join(played.out.split())
    assert "15 in the context" in played.out
    assert "/100" not in played.out


async def test_what_the_context_holds_is_not_known_after_turns_are_taken_back(play: Play) -> None:
    for lines, is_known in (
        (["Hello"], True),
        (["Hello", "/undo"], False),
        (["Hello", "/rewind 1"], False),
        (["Hello", "/undo", "Hello"], True),
        (["Hello", "/model ram"], False),
        (["Hello", "/model lamb"], True),
    ):
        played = await play(*lines, stage=Stage(None, names=["lamb", "ram"]), is_person=True)
        assert (status_line.gather(played.chat).n_held is not None) == is_known, lines


@given(
    st.builds(Facts, st.text(), st.text(), st.text(), st.integers(0, 10**9), st.integers(0, 10**9)), st.integers(1, 99)
)
def test_it_is_one_row_of_printable_characters(facts: Facts, width: int) -> None:
    line = status_line.line(facts, "ask", width)
    assert n_columns(line) <= width
    assert "\n" not in line


def test_the_branch_is_that_of_the_repository_around_the_folder(tmp_path: Path) -> None:
    git, inner = tmp_path / "repo" / ".git", tmp_path / "repo" / "src" / "deep"
    inner.mkdir(parents=True)
    git.mkdir()
    assert status_line.branch_of(inner) == ""
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    assert status_line.branch_of(inner) == "feature/x"
    (git / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert status_line.branch_of(inner) == "01234567"
    other = tmp_path / "other"
    (git / "worktrees" / "other").mkdir(parents=True)
    (git / "worktrees" / "other" / "HEAD").write_text("ref: refs/heads/side\n")
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {git / 'worktrees' / 'other'}\n")
    assert status_line.branch_of(other) == "side"
    (other / ".git").write_bytes(b"\0\xff" * 5_000)
    assert status_line.branch_of(other) == ""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("/home/ada", "~"), ("/home/ada/work", "~/work"), ("/home/adam", "/home/adam"), ("/", "/"), ("/srv", "/srv")],
)
def test_the_home_folder_is_short(folder: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert status_line.shortened(Path(folder)) == expected
