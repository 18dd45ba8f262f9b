"""The scripts of bench/ are where pages, docstrings and the index say."""

import re
from pathlib import Path

from tests.places import BENCH, ROOT

PLACES = (
    "Makefile",
    "README.md",
    "docs/*.md",
    "bench/**/*.md",
    "bench/**/*.py",
    "src/**/*.py",
    "suites/*.py",
    "tests/**/*.py",
)


def test_every_script_that_is_named_exists() -> None:
    named = {
        (file.relative_to(ROOT), Path(name.removesuffix(".py").replace(".", "/")).with_suffix(".py"))
        for place in PLACES
        for file in ROOT.glob(place)
        for name in re.findall(r"(?<=python -m )bench\.[\w.]*\w|\bbench/[\w/]+\.py", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert [each for each in named if not (ROOT / each[1]).is_file()] == []


def test_the_index_has_every_script() -> None:
    index = (BENCH / "README.md").read_text(encoding="utf-8")
    scripts = {file for file in BENCH.glob("*/*.py") if '__name__ == "__main__"' in file.read_text(encoding="utf-8")}
    missing = {f"{file.parent.name}.{file.stem}" for file in scripts if f"`{file.parent.name}.{file.stem}" not in index}
    # Drawings, models and providers that scripts make for themselves.
    helpers = {"cloud.upstream", "memory.minilm", "memory.plot", "soak.plot"}
    assert {name for name in missing if not name.startswith("rig.")} == helpers
