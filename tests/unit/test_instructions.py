"""AGENTS.md: which files a folder has, in which order, and the sentence about each that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd.config import instructions


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder of a repository, inside another folder that is none of its business."""
    (tmp_path / "AGENTS.md").write_text("Of a stranger.")
    inner = tmp_path / "repo" / "src" / "room"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    return tmp_path / "repo"


def names(folder: Path) -> list[str]:
    return [each.name for each in instructions.find(folder)[0]]


def test_the_files_up_to_the_root_of_the_repository_are_found_the_nearest_last(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("\ufeffUse tabs.\n")
    (repository / "src" / "room" / "AGENTS.md").write_text("Use blanks.")
    assert names(repository / "src" / "room") == ["AGENTS.md", "src/room/AGENTS.md"]
    assert names(repository / "src") == ["AGENTS.md"]
    found, wrong = instructions.find(repository / "src" / "room")
    assert wrong == ()
    assert instructions.prompt(found) == (
        "Instructions of the file AGENTS.md:\n\nUse tabs.\n\n"
        "Instructions of the file src/room/AGENTS.md:\n\nUse blanks."
    )


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Of the folder above.")
    (tmp_path / "here").mkdir()
    assert names(tmp_path / "here") == []
    (tmp_path / "here" / "AGENTS.md").write_text("Mine.")
    assert names(tmp_path / "here") == ["AGENTS.md"]


def test_claude_md_counts_in_a_folder_that_has_no_agents_md(repository: Path) -> None:
    (repository / "CLAUDE.md").write_text("For one product.")
    assert names(repository) == ["CLAUDE.md"]
    (repository / "AGENTS.md").write_text("For all.")
    assert names(repository) == ["AGENTS.md"]
    (repository / "AGENTS.md").write_text(" \n")
    assert names(repository) == []


def test_a_link_counts_as_the_file_that_it_leads_to(repository: Path) -> None:
    (repository / "README.md").write_text("Read me.")
    (repository / "AGENTS.md").symlink_to("README.md")
    (found,), _ = instructions.find(repository)
    assert (found.name, found.text, found.file.path) == ("AGENTS.md", "Read me.", repository / "README.md")


def _folder(path: Path) -> None:
    path.mkdir()


def _dead_link(path: Path) -> None:
    path.symlink_to("nowhere.md")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _latin(path: Path) -> None:
    path.write_bytes("Größe".encode("latin-1"))


def _too_long(path: Path) -> None:
    path.write_bytes(b"x" * (instructions.MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (_folder, "it is a folder; remove or rename it"),
        (_dead_link, "it is a link to nowhere.md, which does not exist; mend or remove it"),
        (_circle, "Too many levels of symbolic links"),
        (_pipe, "it is no regular file; remove or rename it"),
        (_latin, "it is not text in UTF-8 (byte 2); save it as UTF-8"),
        (_too_long, "it has more than 65,536 bytes, the limit for such a file"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence_and_the_others_count(
    repository: Path, made: object, reason: str
) -> None:
    assert callable(made)
    made(repository / "src" / "AGENTS.md")
    (repository / "AGENTS.md").write_text("Use tabs.")
    found, wrong = instructions.find(repository / "src")
    assert [each.name for each in found] == ["AGENTS.md"]
    assert wrong == (f"{repository / 'src' / 'AGENTS.md'}: left out: {reason}",)
