"""That a file is replaced as a whole or not at all, and that only its owner can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shepherd.process.files import replace_private


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_as_a_whole_and_is_private(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "answers.json"
    file.write_bytes(b"old")
    file.chmod(0o644)
    replace_private(file, b"new", durable=durable)
    assert file.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["answers.json"]
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        replace_private(file, b"newer", mode=0o640, durable=durable)
        assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_failure_leaves_the_old_state_and_no_draft(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in it").touch()
    with pytest.raises(OSError):  # a folder cannot be replaced by a file
        replace_private(folder, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(FileNotFoundError):
        replace_private(tmp_path / "missing" / "file", b"new")


@pytest.mark.skipif(os.name != "posix", reason="a link of POSIX")
def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_bytes(b"kept")
    link.symlink_to(other)
    replace_private(link, b"new")
    assert (other.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"kept", b"new", False)
