"""Which files of a tree are meant: globs, and what a .gitignore leaves out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.folder import Folder
from shepherd.tools.sandbox.tree import DEEPEST, MOST_RULES, alternatives, glob_matches, walk


def means(glob: str, path: str) -> bool:
    return any(glob_matches(parts, path.split("/")) for parts in alternatives(glob))


@pytest.mark.parametrize(
    ("glob", "taken", "left"),
    [
        ("*.py", "a.py src/b.py .c.py", "a.pyc py a.PY"),
        ("/*.py", "a.py", "src/a.py"),
        ("src/*.py", "src/a.py", "a.py src/x/a.py x/src/a.py"),
        ("src/**/*.py", "src/a.py src/x/y/a.py", "a.py x/src/a.py"),
        ("**/test_*", "test_a x/y/test_b", "x/a_test_"),
        ("**", "a x/y", ""),
        ("src/**", "src/a src/x/y", "a x/src/a"),
        ("a/**/b/**/c", "a/b/c a/x/b/y/z/c", "a/c a/b a/b/c/d"),
        ("*.{py,md}", "a.py x/b.md", "a.txt"),
        ("{src,tests}/**/{a,b{1,2}}.py", "src/a.py tests/x/b2.py", "src/b.py docs/a.py"),
        ("*.py,*.md", "a.py x/b.md", "a.txt"),
        ("[ab]?.txt", "a1.txt b2.txt", "c1.txt a.txt"),
        ("[!a].txt", "b.txt", "a.txt"),
        ("./src/a", "src/a", "a"),
        ("{", "{", "a"),
    ],
)
def test_a_glob_takes_what_shells_take(glob: str, taken: str, left: str) -> None:
    assert [path for path in f"{taken} {left}".split() if means(glob, path)] == taken.split()


def test_globs_that_stand_for_many_are_refused_and_stars_cost_little() -> None:
    with pytest.raises(ToolError, match="stands for more than 64 globs"):
        alternatives("{a,b}" * 40)
    assert not means("/".join(["**"] * 30 + ["*a*a*a*a*a*a*a*a*b"]), "/".join(["a" * 100] * 60))


PARTS = st.sampled_from(["**", "*", "a", "b", "a*"])


@settings(deadline=None, max_examples=examples(250))
@given(parts=st.lists(PARTS, max_size=5), names=st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=5))
def test_a_glob_is_what_a_regular_expression_says_of_the_whole_path(parts: list[str], names: list[str]) -> None:
    words = {"**": "(?:[^/]+/)*", "*": "[^/]+/", "a": "a/", "b": "b/", "a*": "a[^/]*/"}
    naive = re.fullmatch("".join(words[part] for part in parts), "".join(f"{name}/" for name in names))
    assert glob_matches(parts, names) == (naive is not None)


def names_below(top: Path) -> list[str]:
    with Folder.top(str(top)) as folder:
        return ["/".join(names) for _, names, kind in walk(folder) if kind != "directory"]


def test_a_tree_is_walked_in_a_stable_order_without_what_nobody_means(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    for path in (
        "b/x",
        "b/a/y",
        "a.txt",
        "C.txt",
        ".git/config",
        "b/node_modules/m/index.js",
        ".venv/z",
        "src/.hidden",
    ):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).touch()
    (top / "link").symlink_to("b")
    (top / "round").symlink_to("..")
    assert names_below(top) == ["a.txt", "b/a/y", "b/x", "C.txt", "link", "round", "src/.hidden"]
    assert names_below(top / ".git") == ["config"]


def test_what_a_gitignore_says_is_left_out(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "src/build").mkdir(parents=True)
    (top / "build").mkdir()
    for path in ("a.log", "keep.log", "src/b.log", "build/x", "src/build/y", "src/gen", "gen", "src/z"):
        (top / path).touch()
    (top / ".gitignore").write_text("# what is made\n*.log\n!keep.log\n/gen\nsrc/build/\n\nz/\n")
    (top / "src/.gitignore").write_text("!b.log\n")
    assert names_below(top) == [
        ".gitignore", "build/x", "keep.log", "src/.gitignore", "src/b.log", "src/gen", "src/z"
    ]  # fmt: skip
    (top / ".gitignore").write_text("never/*\n" * MOST_RULES + "*\n")
    assert "build/x" in names_below(top)
    (top / ".gitignore").unlink()
    os.mkfifo(top / ".gitignore")
    assert "a.log" in names_below(top)


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ("\\#c", "#c"),
        ("\\!d", "!d"),
        ("#c", ""),
        ("sp  ", "sp"),
        ("sp\\ ", "sp "),
        (" sp", ""),
        ("sp\t", ""),
        ("\\[x\\]", "[x]"),
        ("a[^b]", "ac"),
        ("q\\?", "q?"),
        ("a.txt\r", "a.txt"),
        ("./sp,//sp,sp/.,dir//x", ""),
        ("dir/**/", "dir/sub/y"),
        ("dir/**,!dir/x", "dir/sub/y"),
        ("dir/*,!dir/x", "dir/sub/y"),
        ("dir,!dir/x", "dir/sub/y,dir/x"),
        ("***/y", "dir/sub/y"),
        ("/**/x", "dir/x"),
        ("**/", "dir/sub/y,dir/x"),
    ],
)
def test_a_gitignore_means_what_git_makes_of_it(tmp_path: Path, rules: str, hidden: str) -> None:
    """`hidden`: the files that git 2.39 leaves out."""
    top = tmp_path.resolve()
    (top / "dir/sub").mkdir(parents=True)
    for path in ("#c", "!d", "sp", "sp ", "[x]", "ab", "ac", "q?", "a.txt", "dir/x", "dir/sub/y"):
        (top / path).touch()
    before = names_below(top)
    (top / ".gitignore").write_text(rules.replace(",", "\n") + "\n", newline="")
    left = names_below(top)
    assert ",".join(name for name in before if name not in left) == hidden


def test_the_stars_of_a_gitignore_cost_little(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*a" * 20 + "b\n")
    (tmp_path / ("a" * 250)).touch()
    assert len(names_below(tmp_path.resolve())) == 2


def test_a_tree_without_a_bottom_is_left(tmp_path: Path) -> None:
    deep = tmp_path.resolve()
    for level in range(DEEPEST + 5):
        deep /= "d"
        deep.mkdir()
        (deep / f"f{level}").touch()
    closed: list[str] = []
    with Folder.top(str(tmp_path.resolve())) as folder:
        found = [names for _, names, kind in walk(folder, closed) if kind == "file"]
    assert len(found) == DEEPEST - 1
    assert closed == [f"{tmp_path.resolve()}{'/d' * DEEPEST}"]
