"""What many tests need: the embedded model, the shared data that a clone may lack, and how a run is spread and sampled.

A run of whole folders takes three workers, a file to each at a time; `-n 0`, and a run that names files or tests, takes
none. `@pytest.mark.sampled(share)` marks a grid of which a quick run takes only a share; `@pytest.mark.costly` marks a
test of seconds, which one quick run in 25 takes (`sampling.py`).
"""

import gc
import itertools
import os
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import sampling
from tests.places import CONFORMANCE, ROOT, SOURCE

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

LAMB = SOURCE / "models" / "lamb.gguf"

MEMORIES = tempfile.TemporaryDirectory(prefix="shepherd-memories-")
number = itertools.count()


def _keep_bytecode() -> None:
    """Compile no module twice, where Python is told to write no bytecode: every worker and child would compile all."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "bytecode")


def _trust_one() -> None:
    """Leave one certificate to believe in: every client reads all when it is made, which takes longer than a test."""
    every = ssl.create_default_context().get_ca_certs(binary_form=True)
    if every:
        file = Path(MEMORIES.name) / "trusted.pem"
        file.write_text(ssl.DER_cert_to_PEM_cert(every[0]))
        os.environ["SSL_CERT_FILE"] = str(file)


_keep_bytecode()
_trust_one()

WORKERS = 2 if sampling.LEVEL < 0 else 3
"""Of a whole run, on two cores: a third of a worker's time is waiting, and the third worker fills it."""

LONGEST = (
    "tests/unit/test_soak.py", "tests/unit/test_conversations.py", "tests/unit/test_scenarios.py",
    "tests/unit/cli/test_process.py", "tests/unit/test_memory.py", "tests/unit/server/endpoints/test_mcp.py",
    "tests/unit/cli/test_terminal.py", "tests/unit/server/test_stall.py", "tests/unit/test_liveness.py",
    "tests/unit/engine/test_matrix.py", "tests/unit/test_sessions.py", "tests/unit/server/test_extremes.py",
)  # fmt: skip
"""The files that take longest, and run first: no worker begins one when the other has nothing left to do."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread a run of whole folders over workers, unless the command line decides it."""
    if hasattr(config, "workerinput"):  # this is a worker
        return
    option = config.option
    alone = option.usepdb or option.capture == "no" or option.collectonly or getattr(option, "setupplan", False)
    if option.numprocesses is None and option.dist == "no" and not alone and not _names_tests(config):
        option.numprocesses, option.dist, option.loadscopereorder = WORKERS, "loadfile", False


# A slow machine fails no search. Random numbers come from the commit, like the share: a failure can be repeated.
settings.register_profile(
    "shepherd",
    max_examples=sampling.examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    print_blob=True,
)
settings.load_profile("shepherd")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if sampling.LEVEL < 2 and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(sampling.seed())
    # A worker, like any background job of a shell, ignores SIGINT, and its children would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    if sampling.LEVEL > 0:
        return None
    return f"sampled: SHEPHERD_SAMPLE={sampling.turn()} (SHEPHERD_THOROUGH=1 leaves nothing out)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, and leave out what is not in this run's share of the grids that are marked."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
    if sampling.LEVEL > 0 or _names_tests(config) or config.option.keyword:
        return
    costly = {item: mark for item in items if (mark := item.get_closest_marker("costly"))}
    shares = {item: share for item in items if (share := _share_of(item)) is not None}

    def family(item: pytest.Item) -> tuple[str, object]:
        test, name = item.nodeid.partition("[")[0], shares[item][1]
        if name is None:
            return test, None
        assert isinstance(item, pytest.Function)
        return test, item.callspec.params[name]

    chosen = sampling.sampled(shares, lambda item: shares[item][0], name=lambda item: item.nodeid, family=family)
    gone = (shares.keys() - chosen) | {item for item, mark in costly.items() if not _is_due(item, mark)}
    left_out = [item for item in items if item in gone]
    if left_out:
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


def _share_of(item: pytest.Item) -> tuple[float, str | None] | None:
    """The share of a test's cases that this run takes, and the parameter whose families it takes the first of; None
    for all cases."""
    if sampling.LEVEL < 0:
        return sampling.GLANCE, None
    if (mark := item.get_closest_marker("sampled")) is not None:
        return float(mark.args[0]), mark.kwargs.get("family")
    return None if item.get_closest_marker("costly") else (sampling.HALF, None)


def _is_due(item: pytest.Item, costly: pytest.Mark) -> bool:
    """Whether this run takes a test that is marked `costly`: all its cases, or all tests of the name in the mark."""
    return sampling.is_chosen(costly.args[0] if costly.args else item.nodeid.partition("[")[0], sampling.COSTLY)


WITHOUT_MODEL = "not model"
"""The expression (`-m`) of a run that loads no native library."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file all of whose tests need the model, where none of them is wanted."""
    if config.option.markexpr != WITHOUT_MODEL or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.model\n" in collection_path.read_text("utf-8") or None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if (
        item.config.option.markexpr == WITHOUT_MODEL
        and "llama_cpp" in sys.modules
        and not item.session.stash.get(_NATIVE, False)
    ):
        item.session.stash[_NATIVE] = True
        pytest.fail("this test loads the native library: mark it `model`, or import what it needs where it is needed")


_NATIVE = pytest.StashKey[bool]()
"""Whether a test has been found that loads the native library: only the first is reported."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()  # nothing that is collected is garbage: looking for some again and again takes a fifth of the time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)  # each look at all objects takes as long as a hundred tests
    gc.enable()


def _names_tests(config: pytest.Config) -> bool:
    """Whether files or tests are asked for by name, not whole folders."""
    return any(not Path(name).is_dir() for name in config.args)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No test finds what another one said, or what the developer did."""
    os.environ["RAG_DB_PATH"] = f"{MEMORIES.name}/{next(number)}.db"
    os.environ["XDG_DATA_HOME"] = f"{MEMORIES.name}/data"
    os.environ["XDG_STATE_HOME"] = f"{MEMORIES.name}/state"
    os.environ["SHEPHERD_TRUST"] = "1"  # tests write the files of their folders themselves; tests of trust unset it


@pytest.fixture(scope="session")
def lamb() -> Path:
    """The embedded model's file."""
    return LAMB


@pytest.fixture(scope="session")
def weights(lamb: Path) -> "Iterator[Weights]":
    """The embedded model, loaded once."""
    from shepherd.engine.llamacpp.weights import Weights

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
    if not CONFORMANCE.is_dir():
        pytest.skip(f"no conformance data at {CONFORMANCE} (set CONFORMANCE_DIR)")
    return CONFORMANCE
