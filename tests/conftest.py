"""What many tests need: the embedded model, the shared data that a clone may lack, and how a run is spread.

A run of whole folders takes four workers, a file to each at a time; `-n 0`, and a run that names files or tests, takes
none. `@pytest.mark.grid(share)` marks a grid of which the gate takes a fixed part (`cases.py`), `@pytest.mark.search` a
test or a case of which it takes nothing. README.md tells the three folders apart.
"""

import gc
import importlib.util
import itertools
import os
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import cases
from tests.places import CONFORMANCE, ROOT, SOURCE
from tests.proven import CACHE

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


def _keep_programs() -> None:
    """Leave uv's packages and Playwright's browsers where they are: the cache folder of a test is another one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("UV_CACHE_DIR", str(cache / "uv"))
    if sys.platform == "linux":  # elsewhere they are in folders of the system
        os.environ.setdefault("PLAYWRIGHT_BROWSERS_PATH", str(cache / "ms-playwright"))


_keep_bytecode()
_trust_one()
_keep_programs()

from hypothesis import HealthCheck, settings  # noqa: E402 - more than 100 modules, of which bytecode is kept by now
from hypothesis.internal.conjecture import providers  # noqa: E402

WORKERS = 4
"""Of a whole run, on two cores: a third of a worker's time is waiting, which others fill, also beside a compiler."""

HANG_UP = getattr(signal, "SIGHUP", None)
"""None on Windows."""
COMPILING_S = 120
"""A worker waits so long for the one that compiles."""

PROCESS = "tests/process/"
"""What starts programs: of each room, one worker runs all tests, one after the other."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread a run of whole folders over workers, unless the command line decides it."""
    if hasattr(config, "workerinput"):  # this is a worker
        return
    option = config.option
    alone = option.usepdb or option.capture == "no" or option.collectonly or getattr(option, "setupplan", False)
    if option.numprocesses is None and option.dist == "no" and not alone and not _names_tests(config):
        option.numprocesses, option.dist, option.loadscopereorder = WORKERS, "loadfile", False


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file to each worker at a time; of `tests/process` a room."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # only where a run is spread

    class RoomsOfProcesses(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(PROCESS):
                return nodeid.partition("::")[0].removeprefix(PROCESS).rpartition("/")[0].partition("/")[0]
            return str(super()._split_scope(nodeid))

    return RoomsOfProcesses(config, log)


# The gate's examples follow from the source of each test, a search's from its seed. A slow machine fails neither.
settings.register_profile(
    "shepherd",
    max_examples=cases.examples(100),
    derandomize=cases.SEED is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    print_blob=True,
)
settings.load_profile("shepherd")
if cases.SEED is None:  # Hypothesis would draw from the constants of all modules that are loaded at this moment
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if cases.SEED is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(cases.SEED)
    # A worker, like any background job of a shell, ignores SIGINT, and one behind `nohup` ignores SIGHUP, too: its
    # children would inherit that.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (HANG_UP, signal.SIG_DFL)):
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_report_header() -> str | None:
    return None if cases.SEED is None else f"search: SHEPHERD_SEARCH={cases.SEED} repeats it"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put `tests/process` and the largest files first, and leave out what the gate does not take."""
    sizes = {path: path.stat().st_size for path in {item.path for item in items}}
    items.sort(key=lambda item: (not item.nodeid.startswith(PROCESS), -sizes[item.path], item.path))
    if _names_tests(config) or config.option.keyword:
        return
    grids = {item: mark for item in items if (mark := item.get_closest_marker("grid"))}

    def family(item: pytest.Item) -> tuple[str, object]:
        test, name = item.nodeid.partition("[")[0], grids[item].kwargs.get("family")
        if name is None:
            return test, None
        assert isinstance(item, pytest.Function)
        return test, item.callspec.params[name]

    taken = cases.few(grids, lambda item: grids[item].args[0], name=lambda item: item.nodeid, family=family)
    left_out = grids.keys() - taken
    if cases.SEED is None:
        left_out |= {item for item in items if item.get_closest_marker("search")}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    gc.disable()  # nothing that is collected is garbage: looking for some again and again takes a fifth of the time
    mark = _compiled(session.config)
    if mark is not None and _worker(session.config) != "gw0" and not _is_compiled():
        give_up = time.monotonic() + COMPILING_S
        while not mark.exists() and time.monotonic() < give_up:
            time.sleep(0.1)


def pytest_collection_finish(session: pytest.Session) -> None:
    mark = _compiled(session.config)
    if mark is not None and _worker(session.config) == "gw0":
        mark.touch()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)  # each look at all objects takes as long as a hundred tests
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    mark = _compiled(session.config)
    if mark is not None and _worker(session.config) == "gw0":  # by now, all workers have collected
        mark.unlink(missing_ok=True)


def _worker(config: pytest.Config) -> str:
    """The name of this worker; empty where there are none."""
    return str(getattr(config, "workerinput", {}).get("workerid", ""))


def _compiled(config: pytest.Config) -> Path | None:
    """The file that says that a worker has compiled all modules, for the other workers, each of which would compile
    them all in a fresh clone; None where there are none."""
    if not _worker(config):
        return None
    return Path(tempfile.gettempdir()) / f"shepherd-compiled-{config.workerinput['testrunuid']}"  # type: ignore[attr-defined]


def _is_compiled() -> bool:
    """Whether a run before this one has compiled the modules, as far as one of them shows."""
    return Path(importlib.util.cache_from_source(str(SOURCE / "wire" / "openai" / "chat.py"))).exists()


def _names_tests(config: pytest.Config) -> bool:
    """Whether files or tests are asked for by name, not whole folders."""
    return any(not Path(name).is_dir() for name in config.args)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No test finds what another one said, or what the developer did; what is drawn without a seed is the same."""
    random.seed(f"{cases.seed()} {item.nodeid}")
    os.environ["RAG_DB_PATH"] = f"{MEMORIES.name}/{next(number)}.db"
    os.environ["XDG_DATA_HOME"] = f"{MEMORIES.name}/data"
    os.environ["XDG_STATE_HOME"] = f"{MEMORIES.name}/state"
    os.environ["XDG_CACHE_HOME"] = CACHE.name
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
