"""The wheel, in an environment of its own: what a person gets who has no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.places import ROOT

UV = os.environ.get("UV") or shutil.which("uv")


class Installed:
    """Shepherd from its wheel: the environment, and a person in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.environment, self.home = folder / "environment", folder / "home"
        self.home.mkdir()
        foreign = ("XDG_", "PYTHON", "SHEPHERD_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.variables = kept | {"HOME": str(self.home), "RAG_DB_PATH": str(self.home / "memory.db")}
        venv.create(self.environment, with_pip=False, symlinks=os.name != "nt")
        self.packages = next(self.environment.glob("lib*/**/site-packages"))
        # The packages that Shepherd needs. A .pth file among them, such as the one that names our sources, is not read.
        (self.packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
        self.commands_before = self.commands()

    def commands(self) -> set[str]:
        return {path.name for path in (self.environment / "bin").iterdir()}

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [self.environment / "bin" / words[0], *words[1:]],
            env=self.variables, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=150,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if UV is None:
        pytest.skip("the wheel is built with uv, which is not here")
    folder = tmp_path_factory.mktemp("wheel")
    build = [UV, "build", "--wheel", "--offline", "--no-config", "--out-dir", str(folder), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=150)
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("hatchling, which builds the wheel, is not in the cache of uv")
    assert built.returncode == 0, built.stderr
    installed = Installed(folder)
    (wheel,) = folder.glob("shepherd-*.whl")
    python = str(installed.environment / "bin" / "python")
    install = [UV, "pip", "install", "--offline", "--no-config", "--no-deps", "--python", python, str(wheel)]
    subprocess.run(install, capture_output=True, check=True, timeout=150)
    return installed


def test_only_shepherd_comes_onto_the_path(installed: Installed) -> None:
    assert installed.commands() - installed.commands_before == {"shepherd"}


def test_it_is_the_wheel_that_runs_and_it_is_typed(installed: Installed) -> None:
    place = Path(installed.run("python", "-c", "import shepherd; print(shepherd.__file__)").strip()).parent
    assert place == installed.packages / "shepherd"
    assert (place / "py.typed").is_file()
    assert installed.run("shepherd", "--version").startswith("shepherd ")


def test_it_has_the_pages(installed: Installed) -> None:
    assert installed.run("shepherd", "help", "window") == (ROOT / "docs" / "window.md").read_text("utf-8")


@pytest.mark.model
def test_the_embedded_model_answers(installed: Installed) -> None:
    assert (
        installed.run("shepherd", "-p", "Hello!", "--temperature", "0", "--threads", "1").strip()
        == "Hello! How can I help you?"
    )
