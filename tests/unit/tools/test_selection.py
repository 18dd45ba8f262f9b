"""Which tools are offered."""

from collections.abc import Mapping

import pytest

from shepherd.tools.base import Result
from shepherd.tools.selection import (
    DISABLED,
    FIRST,
    NO_ROOM,
    NOT_ENABLED,
    context_for,
    cost,
    matches,
    rank,
    reasons_off,
    unknown,
)
from shepherd.tools.tool import Tool, ToolContext


async def nothing(context: ToolContext, arguments: Mapping[str, object]) -> Result:
    return Result()


def made(name: str, category: str = "other", *, offered: bool = True, aliases: tuple[str, ...] = ()) -> Tool:
    return Tool(name, "", {}, nothing, category, offered=offered, aliases=aliases)


TOOLS = [
    made("search", "memory"),
    made("get", "memory"),
    made("read", "filesystem", aliases=("Open",)),
    made("execute", "command_execution", offered=False, aliases=("Bash",)),
    made("github_search", "mcp", aliases=("github:search",)),
]
ALL = ["search", "get", "read", "execute", "github_search"]


@pytest.mark.parametrize(
    ("enabled", "disabled", "n_ctx", "offered"),
    [
        (None, (), None, ["search", "get", "read", "github_search"]),
        (None, (), 3200, ["search", "get", "read", "github_search"]),
        (None, (), 2400, ["search", "get", "read"]),
        (None, (), 799, []),
        (None, ("memory",), 3200, ["read", "github_search"]),
        (None, ("s*",), 3200, ["get", "read", "github_search"]),
        (("memory",), (), 100, ["search", "get"]),
        (("READ", "get"), (), 100, ["get", "read"]),
        (("filesystem",), ("read",), 100, []),
        ((), (), 4000, []),
        (("command",), (), 100, ["execute"]),
        (("command_execution",), (), 100, ["execute"]),
        (("bash", "open"), (), 100, ["read", "execute"]),
        (("execute", "command"), ("command_execution",), 100, []),
        (("command_execution",), ("command",), 100, []),
        (("command", "read"), ("BASH",), 100, ["read"]),
        (("*",), (), 1, ALL),
        (("git*:*",), (), 1, ["github_search"]),
        ((" get ",), (), 1, ["get"]),
    ],
)
def test_what_is_asked_for_is_offered_else_what_fits_and_disabled_wins(
    enabled: tuple[str, ...] | None, disabled: tuple[str, ...], n_ctx: int | None, offered: list[str]
) -> None:
    off = reasons_off(TOOLS, enabled=enabled, disabled=disabled, n_ctx=n_ctx, cost=lambda spec: 100)
    assert [tool.name for tool in TOOLS if tool.name not in off] == offered


def test_why_a_tool_is_not_offered_is_said() -> None:
    off = reasons_off(
        TOOLS,
        disabled=("get",),
        lacking={"memory": "there is no memory", "nothing": "-"},
        n_ctx=800,
        cost=lambda spec: 100,
    )
    assert off == {
        "search": "there is no memory",
        "get": DISABLED,
        "execute": NOT_ENABLED,
        "github_search": NO_ROOM,
    }


def test_the_context_with_room_for_every_tool_is_known() -> None:
    tools, each = [made(name) for name in ("a", "b", "c")], cost(made("a").spec, len)
    for n_ctx, expected in ((8 * each, 24 * each), (24 * each - 1, 24 * each), (24 * each, 0)):
        off = reasons_off(tools, n_ctx=n_ctx, cost=lambda spec: cost(spec, len))
        assert context_for(tools, off, len) == expected
    assert not context_for(tools, {"a": DISABLED}, len), "no context has room for what the user does not want"


def test_a_tool_that_is_too_long_to_be_described_does_not_keep_out_those_behind_it() -> None:
    tools = [made("long"), made("a"), made("b"), made("c")]
    off = reasons_off(tools, n_ctx=160, cost=lambda spec: 1000 if spec.name == "long" else 10)
    assert off == {"long": NO_ROOM, "c": NO_ROOM}


def test_names_that_stand_for_nothing_are_told_and_categories_always_stand_for_something() -> None:
    patterns = ("memory", "read", "gi*", "http", "command", "fly", "Bash", "x*", "gitlab_search", "gitlab:x")
    assert unknown(patterns, TOOLS) == ["fly", "x*", "gitlab_search", "gitlab:x"]
    assert unknown(patterns, TOOLS, servers=["gitlab"]) == ["fly", "x*"]
    assert unknown(["my_server_search"], TOOLS, servers=["My Server"]) == []


def test_what_somebody_has_added_comes_before_the_rest_of_ours() -> None:
    names = ["http_put", "call_mcp_tool", "theirs", "github_search", "read_file", "list_directory"]
    categories = ["http", "mcp", "other", "mcp", "filesystem", "filesystem"]
    tools = sorted(map(made, names, categories), key=rank)
    assert [tool.name for tool in tools] == [
        "list_directory", "read_file", "theirs", "github_search", "http_put", "call_mcp_tool",
    ]  # fmt: skip
    assert [rank(made(name)) for name in FIRST] == list(range(len(FIRST)))


@pytest.mark.parametrize("pattern", ["[", "", "(", "\\", "***", "\udcff"])
def test_any_text_is_a_pattern(pattern: str) -> None:
    assert matches(TOOLS[0], [pattern]) == (pattern == "***")
