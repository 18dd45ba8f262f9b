"""Files of SQLite that several connections open at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from tests.cases import amount

from shepherd.memory.database import FileKind, file_of, open_database
from shepherd.memory.schema import open_file

KIND = FileKind("tests", "memory.database_path", 0x53485054, 1, "CREATE TABLE t(a);")


@pytest.mark.parametrize("opened", [lambda path: open_database(path, KIND), open_file], ids=["a file", "a memory"])
def test_many_that_make_a_file_at_once_all_open_it(tmp_path: Path, opened: Callable[[Path], apsw.Connection]) -> None:
    n = 8
    with ThreadPoolExecutor(n) as threads:
        for number in range(amount(5, 40)):
            together = threading.Barrier(n)

            def one(path: Path, together: threading.Barrier = together) -> None:
                together.wait()
                opened(path).close()

            list(threads.map(one, [tmp_path / f"{number}.db"] * n))


@pytest.mark.parametrize("opened", [lambda path: open_database(path, KIND), open_file], ids=["a file", "a memory"])
def test_a_folder_whose_name_is_not_utf_8_holds_a_file(
    tmp_path: Path, opened: Callable[[Path], apsw.Connection]
) -> None:
    path = tmp_path / os.fsdecode(b"h\xfc?#% \xff") / "own.db"
    opened(path).close()
    again = opened(path)
    assert file_of(again) == str(path)
    again.close()
    assert path.stat().st_size > 0
