"""The memories of these tests: a store, a connection to its file, and one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from shepherd.memory.schema import open_file
from shepherd.memory.store import MemoryStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(path) as opened:
        yield opened


@pytest.fixture
def db(path: Path) -> Iterator[apsw.Connection]:
    connection = open_file(path)
    yield connection
    connection.close()


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    opened = open_file(":memory:")
    yield opened
    opened.close()
