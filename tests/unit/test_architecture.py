"""The map is the territory: files that the page of the architecture names exist, modules have heads, layers hold."""

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest
from tests.places import ROOT, SOURCE

MODULES = sorted(path for path in SOURCE.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@functools.cache
def first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def missing(text: str) -> list[str]:
    """The files, folders and names in files that a page names in code spans and that are nowhere."""
    known = {f"/{name(path)}" for path in MODULES} | {
        f"/{path.relative_to(ROOT)}" for path in ROOT.glob("tests/**/*.py")
    }
    folders = {path.rpartition("/")[0] for path in known}
    gone = [
        file for file in re.findall(r"`([\w/]+\.py)`", text) if not any(path.endswith(f"/{file}") for path in known)
    ]
    gone += [
        folder
        for folder in re.findall(r"`([a-z_]+/(?:[a-z_]+/)*)`", text)
        if not any(f"{path}/".endswith(f"/{folder}") for path in folders)
        and not any((where / folder).is_dir() for where in (ROOT / "docs", SOURCE))
    ]
    for word, file in re.findall(r"`([A-Za-z_]+)`[^|`;.]* (?:in|of) `([\w/]+\.py)`", text):
        where = [ROOT / path[1:] for path in known if path.endswith(f"/{file}")]
        sources = [at if at.exists() else SOURCE / at.relative_to(ROOT) for at in where]
        if not any(re.search(rf"\b{word}\b", source.read_text("utf-8")) for source in sources):
            gone.append(f"{word} in {file}")
    return gone


def test_what_the_page_of_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert missing(text) == []
    planted = "`engine/nowhere.py`, `engine/nowhere/`, `Nothing` in `engine/base.py`"
    assert missing(text + planted) == ["engine/nowhere.py", "engine/nowhere/", "Nothing in engine/base.py"]


def test_every_module_says_what_it_is() -> None:
    assert MODULES
    silent = [name(path) for path in MODULES if not first_line(path).endswith((".", "?", "!"))]
    assert silent == [], "these have no header docstring"


@pytest.mark.parametrize(
    "package", [pytest.param("shepherd", marks=pytest.mark.model), "shepherd.core", "shepherd.dialects"]
)
def test_public_names_exist_and_are_named_once(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


def test_no_room_is_called_by_what_it_holds_together() -> None:
    assert not {path.stem for path in MODULES} & {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
