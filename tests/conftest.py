"""What many tests need: the embedded model, and the shared data that a clone may lack."""

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from shepherd.engine.llamacpp import Weights

ROOT = Path(__file__).parent.parent
LAMB = ROOT / "src" / "shepherd" / "models" / "lamb.gguf"

MEMORIES = tempfile.TemporaryDirectory(prefix="shepherd-memories-")
number = itertools.count()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No test finds what another one said, or what the developer did."""
    os.environ["RAG_DB_PATH"] = f"{MEMORIES.name}/{next(number)}.db"
    os.environ["XDG_DATA_HOME"] = f"{MEMORIES.name}/data"


@pytest.fixture(scope="session")
def lamb() -> Path:
    """The embedded model's file."""
    return LAMB


@pytest.fixture(scope="session")
def weights(lamb: Path) -> Iterator[Weights]:
    """The embedded model, loaded once."""
    loaded = Weights.load(lamb)
    yield loaded
    loaded.close()


@contextmanager
def running_server(*arguments: str, log: Path | None = None, **variables: str) -> Iterator[str]:
    """The address of a really started server, for the length of the block; it must end by itself with status 0.

    What it says on stderr goes to the file `log`.
    """
    command = [sys.executable, "-m", "shepherd", "serve", "--port", "0", "--threads", "1", *arguments]
    environment = {**os.environ, **variables}
    with (
        open(log or os.devnull, "w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr if log else None, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Listening on: "):
                break
        assert lines[-1].startswith("Listening on: "), "".join(lines)
        try:
            yield lines[-1].removeprefix("Listening on: ").strip()
        finally:
            process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="session")
def start_server() -> Callable[..., AbstractContextManager[str]]:
    """Starts further servers, with other arguments and variables; see `running_server`."""
    return running_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """One server on the embedded model for all tests that only ask."""
    with running_server() as address:
        yield address


@pytest.fixture(scope="session")
def two_caches() -> str:
    """A configuration in TOML: a small cache for background requests beside the main one, of one model."""
    return """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
[caches.fast]
model = "lamb"
n_ctx = 512
sequences = 1
[[routes]]
match = "*haiku*"
cache = "fast"
[[routes]]
match = "claude-*"
cache = "main"
[[routes]]
match = "lamb"
cache = "main"
"""


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of real templates and outputs; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("CONFORMANCE_DIR", ROOT.parent / "shared" / "conformance"))
    if not folder.is_dir():
        pytest.skip(f"no conformance data at {folder} (set CONFORMANCE_DIR)")
    return folder
