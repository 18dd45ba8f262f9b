"""Real clients, really run: where they are found, and a server for them that plays a script.

Tests marked `clients` run in `make clients` only, which installs the programs; see README.md.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.own_server import in_thread
from tests.scripted_service import Script, ScriptedService
from tests.search.clients.stage import Seen, Stage, Staging, User, Watch

from shepherd.core.status import ModelCard
from shepherd.server.app import create_app, serve

HEAVY = {"test_agents.py", "test_conformance.py", "test_inspector.py", "test_window.py"}
"""Not even imported unless they are asked for."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name in HEAVY and "clients" not in (config.option.markexpr or "") else None


@pytest.fixture
def user(tmp_path: Path) -> User:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    places = [os.environ["PATH"]]
    if folder := os.environ.get("SHEPHERD_CLIENTS_DIR"):
        programs = Path(folder).resolve()
        places[:0] = [str(programs / "node_modules" / ".bin"), str(programs / "bin")]
    return User(home, project, os.pathsep.join(places))


@pytest.fixture
def installed(user: User) -> Callable[[str], None]:
    """Skips the test when there is no such program."""

    def need(program: str) -> None:
        if shutil.which(program, path=user.path) is None:
            pytest.skip(f"there is no {program!r}: run 'make clients', or set SHEPHERD_CLIENTS_DIR")

    return need


@pytest.fixture
def staging(user: User) -> Staging:
    """`with staging(script) as stage:` - a server that plays `script`, in a thread: some clients block their own loop.

    Options are those of `create_app`.
    """

    @contextmanager
    def stage(script: Script, *, n_ctx: int = 200_000, **options: object) -> Iterator[Stage]:
        service = ScriptedService(script)
        service.cards = (ModelCard("scripted", n_ctx, 1_700_000_000),)
        seen: list[Seen] = []
        app = create_app(service, **options)  # type: ignore[arg-type]  # passed on
        app.add_middleware(Watch, seen=seen)

        async def run(on_ready: Callable[[int], None]) -> None:
            await serve(app, host="127.0.0.1", port=0, on_ready=on_ready)

        with in_thread(run) as port:
            yield Stage(f"http://127.0.0.1:{port}", service, user, seen)

    return stage
