"""`shepherd` in a process of its own, whose home and working folder are those of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.proven import proven


def program(home: Path, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """`shepherd WORDS`; `before`: a program that starts it."""
    command = [*before, sys.executable, "-m", "shepherd", *words]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment(home), cwd=home
    )


def played(home: Path, *words: str, lines: Sequence[str]) -> str:
    """What a chat prints that plays these lines to its end."""
    command, text = [sys.executable, "-m", "shepherd", *words], "".join(f"{line}\n" for line in lines)
    return subprocess.run(
        command, input=text, stdout=subprocess.PIPE, text=True, check=True, env=environment(home), cwd=home
    ).stdout


def environment(home: Path) -> dict[str, str]:
    """Of a program whose home this is."""
    proven(home / ".cache" / "shepherd")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "SHEPHERD_"))}
    return kept | {"HOME": str(home), "SHEPHERD_TRUST": "1", "RAG_DB_PATH": str(home / "memory.db")}


@contextmanager
def serving(
    home: Path, before: Sequence[str] = (), *, words: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with the options `words`, and its address; killed if it still runs at the end."""
    with program(home, "serve", "--port", "0", "--threads", "1", *words, before=before) as process:
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if line.startswith("Listening on: "))
            yield process, address.removeprefix("Listening on: ").strip()
        finally:
            process.kill()
