"""How a program was installed is read from where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.process.installed import Installed, Way, find_way


@pytest.mark.parametrize(
    ("prefix", "files", "way"),
    [
        ("home/.local/share/uv/tools/shepherd", ["uv-receipt.toml"], "uv tool"),
        ("home/.local/share/pipx/venvs/shepherd", ["pipx_metadata.json"], "pipx"),
        ("home/.cache/uv/archive-v0/x1", [], "temporary"),
        ("home/.cache/uv/environments-v2/x1", [], "temporary"),
        ("home/.cache/uv/builds-v0/.tmpx", ["uv-receipt.toml"], "temporary"),
        ("home/.cache/pipx/1f", ["pipx_metadata.json"], "temporary"),
        ("home/.venv", [], "pip"),
    ],
)
def test_each_way_of_installing_is_known_by_what_it_leaves(
    prefix: str, files: list[str], way: Way, tmp_path: Path
) -> None:
    folder = tmp_path / prefix
    package = folder / "lib" / "python3.11" / "site-packages" / "shepherd"
    package.mkdir(parents=True)
    for name in files:
        (folder / name).touch()
    assert find_way(folder, package) == Installed(way, folder)


@pytest.mark.parametrize("git", ["folder", "file of a worktree", None])
def test_a_clone_counts_before_the_environment_that_it_is_linked_into(git: str | None, tmp_path: Path) -> None:
    prefix, clone = tmp_path / "tools" / "shepherd", tmp_path / "work"
    (clone / "src" / "shepherd").mkdir(parents=True)
    prefix.mkdir(parents=True)
    (prefix / "uv-receipt.toml").touch()
    (clone / "pyproject.toml").touch()
    if git == "folder":
        (clone / ".git").mkdir()
    elif git is not None:
        (clone / ".git").touch()
    expected = Installed("clone", clone) if git else Installed("uv tool", prefix)
    assert find_way(prefix, clone / "src" / "shepherd") == expected
