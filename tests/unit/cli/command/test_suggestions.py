"""The table of first models: what is computed in it, and what must hold for each row."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.cli.conftest import Home

from shepherd.models.pull.source import HubSource, WheelSource, parse
from shepherd.models.sizing import about_needed
from shepherd.models.suggestions import SUGGESTIONS


def test_each_row_is_a_source_with_a_format_a_licence_and_where_its_size_is_from() -> None:
    for each in SUGGESTIONS:
        source = parse(each.spec)
        assert isinstance(source, WheelSource) or (isinstance(source, HubSource) and source.label == each.quant)
        assert each.licence in ("Apache-2.0", "MIT")
        assert each.source
        stated = re.search(r": ([\d.]+) ([MG])B$", each.source)
        assert stated is None or round(float(stated[1]) / {"M": 1000, "G": 1}[stated[2]], 2) == each.size_gb


def test_the_memory_is_computed_from_the_size_and_orders_the_table() -> None:
    needed = [each.needed_bytes for each in SUGGESTIONS]
    assert needed == [about_needed(round(each.size_gb * 1e9)) for each in SUGGESTIONS] == sorted(needed)


@pytest.mark.parametrize("index", [0, 5, len(SUGGESTIONS) - 1])
def test_what_fits_is_computed_from_the_memory_of_this_machine(home: Home, index: int) -> None:
    """The budget is exactly what one row needs, and then a byte less."""
    needed = SUGGESTIONS[index].needed_bytes
    for budget, n_fitting in ((needed, index + 1), (needed - 1, index)):
        (home.folder / "shepherd.toml").write_text(f"memory_budget = {budget}\n")
        done = home.run("models", "suggest", "--json")
        assert done.returncode == 0, done.stderr
        assert [each["fits"] for each in json.loads(done.stdout)] == [at < n_fitting for at in range(len(SUGGESTIONS))]
    lines = home.run("models", "suggest").stdout.splitlines()[1:]
    assert sum(" fits " in line for line in lines) == index
