"""A file that is in memory in small pages is read again in large ones, and says the same."""

import os
import sys
from pathlib import Path

import pytest

from shepherd.engine.llamacpp import pages, weights

LARGE = 2 << 20
SIZE = 12 * LARGE + 12_345

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked for large pages")


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LEAST_BYTES", 0)


def written(path: Path, piece: int) -> bytes:
    """A file that was written in pieces of so many bytes."""
    content = os.urandom(1 << 20) * (SIZE // (1 << 20) + 1)
    content = content[:SIZE]
    with path.open("wb", buffering=0) as file:
        for at in range(0, SIZE, piece):
            file.write(content[at : at + piece])
        os.fdatasync(file.fileno())
    return content


def held(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        return pages._held(file.fileno(), SIZE, LARGE)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "model"
    written(path, 4096)
    with path.open("rb") as file:
        if not pages._load(file.fileno(), 0, 4 * LARGE, LARGE):
            pytest.skip("this system keeps no file in large pages")
    return path, written(path, 4096)


def test_a_file_that_was_written_in_pieces_is_in_large_pages_then_and_says_the_same(small: tuple[Path, bytes]) -> None:
    path, content = small
    n_held, n_large = held(path)
    assert n_held > SIZE / 2
    assert n_large < n_held / 2
    is_read_again = pages.read_in_large_pages(path)
    assert path.read_bytes() == content
    if not is_read_again:
        pytest.skip("this system has no large pages left")
    assert not pages.read_in_large_pages(path), "once is enough"


def test_what_is_not_in_memory_is_left_to_the_library(small: tuple[Path, bytes]) -> None:
    path, _ = small
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not pages.read_in_large_pages(path)
    assert held(path)[0] < SIZE / 2


@pytest.mark.parametrize("least", ["LEAST_BYTES", "MOST_S"])
def test_a_small_file_and_a_slow_disk_stay_as_they_are(
    small: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch, least: str
) -> None:
    path, content = small
    monkeypatch.setattr(pages, least, {"LEAST_BYTES": SIZE + 1, "MOST_S": 0.0}[least])
    assert not pages.read_in_large_pages(path)
    assert held(path)[1] < SIZE / 2
    assert path.read_bytes() == content


def test_where_nothing_can_be_read_nothing_fails(tmp_path: Path) -> None:
    assert not pages.read_in_large_pages(tmp_path / "absent")
    assert not pages.read_in_large_pages(tmp_path)
    (tmp_path / "empty").touch()
    assert not pages.read_in_large_pages(tmp_path / "empty")


@pytest.mark.model
@pytest.mark.parametrize(
    ("options", "is_looked_at"),
    [({}, True), ({"mmap": True}, True), ({"mmap": False}, False), ({"vocab_only": True}, False)],
)
def test_a_file_is_looked_at_before_its_weights_are_mapped(
    lamb: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], is_looked_at: bool
) -> None:
    looked = list[Path]()
    monkeypatch.setattr(weights, "read_in_large_pages", looked.append)
    weights.Weights.load(lamb, cpu_only=True, **options).close()  # type: ignore[arg-type]  # each is a flag
    assert looked == [lamb] * is_looked_at
