"""The layers, and the program that holds them."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import ROOT, SOURCE
from tests.unit.test_architecture import MODULES

PROGRAM = Path(sys.executable).parent / "lint-imports"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not PROGRAM.exists(), reason="import-linter is not installed (uv sync --group lint)")
def test_the_layers_hold_and_a_planted_upward_import_is_caught(tmp_path: Path) -> None:
    assert lint_imports(ROOT).returncode == 0
    package = tmp_path / "shepherd"
    for path in MODULES:
        copy = package / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text("utf-8"))
    (package / "core" / "request.py").write_text("import shepherd.backends.local.backend\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    run = "import sys; sys.path.insert(0, '.'); import importlinter.cli; importlinter.cli.lint_imports_command()"
    program = [sys.executable, "-c", run]
    caught = subprocess.run([*program, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert caught.returncode == 1
    assert "BROKEN" in caught.stdout
