"""Templates and outputs that every family is judged by: ours, and the shared ones where they are.

Ours lie in `tests/data`: a template in `templates/NAME.jinja`, what its models write in `outputs/NAME.json`. The shared
ones are real, are read in place and are no part of this project. Ours come first, and no quick run leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, TypeVar

import pytest
from tests.places import CONFORMANCE, DATA

T = TypeVar("T")

ABSENT = f"conformance data is not at {CONFORMANCE} (set CONFORMANCE_DIR)"

Json = dict[str, Any]


@cache
def shared_cases(name: str) -> tuple[Json, ...]:
    """The cases of one shared file; none when the data is absent."""
    path = CONFORMANCE / f"{name}.jsonl"
    if not path.exists():
        return ()
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


@cache
def own_cases() -> tuple[Json, ...]:
    """Our outputs, with what is said once for all of a file put into each of them."""
    made = []
    for path in sorted(DATA.glob("outputs/*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        made += [{**told, **case, "id": f"own-{path.stem}#{n}"} for n, case in enumerate(told.pop("cases"))]
    return tuple(made)


def cases(name: str) -> tuple[Json, ...]:
    """The cases of one file: of `chat_cases`, ours before the shared ones."""
    return (*own_cases(), *shared_cases(name)) if name == "chat_cases" else shared_cases(name)


@cache
def own_templates() -> dict[str, str]:
    """Our templates by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(DATA.glob("templates/*.jinja"))}


@cache
def shared_templates() -> dict[str, str]:
    """The real templates by file name; none when the data is absent."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(CONFORMANCE.glob("templates/*.jinja"))}


@cache
def templates() -> dict[str, str]:
    """All templates by file name, ours first."""
    return own_templates() | shared_templates()


def grid(
    cases: Iterable[T], share: float, *, name: Callable[[T], str], family: Callable[[T], Hashable] | None = None
) -> list[Any]:
    """Parameters of which a quick run takes a share, ours and the first of each family among them."""
    seen = set[Hashable]()
    made = []
    for case in cases:
        kind = family(case) if family else None
        is_sure = name(case).startswith("own-") or (family is not None and kind not in seen)
        seen.add(kind)
        made.append(pytest.param(case, id=name(case), marks=() if is_sure else pytest.mark.grid(share)))
    return made


def each_template(share: float, *, shared: bool = False) -> pytest.MarkDecorator:
    """Of a test with a `name`: all templates, or the shared ones; of others than ours a quick run takes a share."""
    return pytest.mark.parametrize("name", grid(shared_templates() if shared else templates(), share, name=str))
