"""The map is the territory: every module is in docs/architecture.md with its first line, and the layers hold."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shepherd"
PAGE = ROOT / "docs" / "architecture.md"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@functools.cache
def first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def table() -> dict[str, str]:
    rows = re.findall(r"^\| `([\w/.]+\.py)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def test_the_page_lists_every_module_with_its_own_first_line() -> None:
    wanted = {name(path): first_line(path) for path in MODULES if path.name != "__init__.py"}
    assert table() == wanted, "run: uv run python tests/test_architecture.py"


def test_every_module_says_what_it_is() -> None:
    assert MODULES
    silent = [name(path) for path in MODULES if not first_line(path).endswith((".", "?", "!"))]
    assert silent == [], "these have no header docstring"


def test_no_file_needs_more_than_600_lines() -> None:
    n_lines = {name(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {file: n for file, n in n_lines.items() if n > 600} == {}


@pytest.mark.parametrize("package", ["shepherd", "shepherd.core", "shepherd.dialects"])
def test_public_names_exist_and_are_named_once(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


def test_no_room_is_called_by_what_it_holds_together() -> None:
    assert not {path.stem for path in MODULES} & {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_layers_hold_and_a_planted_upward_import_is_caught(tmp_path: Path) -> None:
    assert lint_imports(ROOT).returncode == 0
    package = tmp_path / "shepherd"
    for path in MODULES:
        copy = package / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text("utf-8"))
    (package / "core" / "request.py").write_text("import shepherd.backends.local\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    run = "import sys; sys.path.insert(0, '.'); import importlinter.cli; importlinter.cli.lint_imports_command()"
    program = [sys.executable, "-c", run]
    caught = subprocess.run([*program, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert caught.returncode == 1
    assert "BROKEN" in caught.stdout


if __name__ == "__main__":
    rows = "\n".join(f"| `{name(p)}` | {first_line(p)} |" for p in MODULES if p.name != "__init__.py")
    text = PAGE.read_text("utf-8")
    old = re.search(r"(?:^\| `[\w/.]+\.py` \|.*\n?)+|@@MODULES@@\n", text, re.MULTILINE)
    assert old is not None
    PAGE.write_text(text[: old.start()] + rows + "\n" + text[old.end() :], "utf-8")
