"""How many lines each room of `src/shepherd` has, and how many it may have: `make size`.

A room may have as many lines as its row in `tests/sizes.toml` allows. A commit that adds a capability raises the row
and gives the reason in its message; a commit that takes something away lowers it (`--lower`).
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shepherd"
LIMITS = Path(__file__).parent / "sizes.toml"
STEP = 10
"""Limits are multiples of it, so that a comment more needs no new limit."""


def measured(source: Path = SOURCE) -> dict[str, int]:
    """Lines of the Python files of each room, sub-rooms counted by themselves; `shepherd` is what lies in no room."""
    sizes: dict[str, int] = {}
    for path in sorted(source.rglob("*.py")):
        room = path.parent.relative_to(source).as_posix()
        name = "shepherd" if room == "." else room
        sizes[name] = sizes.get(name, 0) + len(path.read_bytes().splitlines())
    return sizes


def limits(file: Path = LIMITS) -> dict[str, int]:
    return dict(tomllib.loads(file.read_text("utf-8"))["lines"])


def faults(sizes: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """A sentence for each room that is too large, has no limit, or is gone."""
    told = [
        f"{room} has {n} lines, {n - allowed[room]} more than tests/sizes.toml allows: take something away, or raise "
        f"its line and say why"
        for room, n in sizes.items()
        if room in allowed and n > allowed[room]
    ]
    told += [
        f"{room} has no line in tests/sizes.toml: add {room!r} = {_up(n)}"
        for room, n in sizes.items()
        if room not in allowed
    ]
    return told + [
        f"{room} is no room any more: take its line out of tests/sizes.toml" for room in allowed if room not in sizes
    ]


def _up(n: int) -> int:
    return -(-n // STEP) * STEP


def _lowered(text: str, sizes: dict[str, int]) -> str:
    """The file with each limit that is higher than it needs to be lowered; comments stay."""

    def lower(found: re.Match[str]) -> str:
        room, limit = found[1].strip('"'), int(found[2])
        return f"{found[1]} = {min(limit, _up(sizes.get(room, limit)))}"

    return re.sub(r'(?m)^("?[\w/]+"?) = (\d+)', lower, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower every limit to what its room has now")
    if parser.parse_args().lower:
        LIMITS.write_text(_lowered(LIMITS.read_text("utf-8"), measured()), "utf-8")
    sizes, allowed = measured(), limits()
    most = max(sizes.values())
    table = Table("room", box=None, pad_edge=False, header_style="bold")
    table.add_column("lines", justify="right")
    table.add_column("allowed", justify="right", style="dim")
    table.add_column("")
    for room, n in sizes.items():
        limit = allowed.get(room, 0)
        table.add_row(room, f"{n:,}", f"{limit:,}", "█" * round(30 * n / most), style="red" if n > limit else "")
    table.add_row("", f"{sum(sizes.values()):,}", f"{sum(allowed.values()):,}", style="bold")
    console = Console(highlight=False)
    console.print(table)
    found = faults(sizes, allowed)
    for sentence in found:
        console.print(sentence, style="red", markup=False)
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
