"""Which tools are offered."""

import pytest

from shepherd.core import ToolSpec
from shepherd.tools.choice import choose, unknown

GROUPS = {
    "memory": [ToolSpec("search"), ToolSpec("get"), ToolSpec("set")],
    "files": [ToolSpec("read"), ToolSpec("write")],
}


@pytest.mark.parametrize(
    ("enabled", "disabled", "n_ctx", "chosen"),
    [
        (None, (), 4000, ["search", "get", "set", "read", "write"]),
        (None, (), 2400, ["search", "get", "set"]),
        (None, (), 799, []),
        (None, ("memory",), 4000, ["read", "write"]),
        (None, ("s*",), 4000, ["get", "read", "write"]),
        (("memory",), (), 100, ["search", "get", "set"]),
        (("READ", "get"), (), 100, ["get", "read"]),
        (("files",), ("write",), 100, ["read"]),
        ((), (), 4000, []),
    ],
)
def test_what_is_asked_for_is_offered_else_what_fits(
    enabled: tuple[str, ...] | None, disabled: tuple[str, ...], n_ctx: int, chosen: list[str]
) -> None:
    found = choose(GROUPS, enabled=enabled, disabled=disabled, n_ctx=n_ctx, cost=lambda spec: 100)
    assert [spec.name for spec in found] == chosen


def test_names_that_stand_for_nothing_are_told() -> None:
    assert unknown(("memory", "read", "wr*", "http", "fly"), GROUPS) == ["http", "fly"]
