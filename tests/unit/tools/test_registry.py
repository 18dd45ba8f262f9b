"""All the tools there are: ours, packages', files' and those that are registered by hand."""

import json
import logging
import string
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools import Result, ToolContext, ToolError, ToolRegistry, ToolResult
from shepherd.tools import Tool as CustomTool
from shepherd.tools.arguments import read_arguments
from shepherd.tools.base import CATEGORIES
from shepherd.tools.registry import (
    BY_HAND,
    MOST_CHARS,
    OURS,
    Registry,
    find,
    free_name,
    sanitised,
)
from shepherd.tools.tool import Tool
from shepherd.tools.user_tools import as_tool, find_tools

CONTEXT = ToolContext()


def named(name: str, *, aliases: tuple[str, ...] = (), category: str = "other") -> Tool:
    async def run(context: ToolContext, arguments: object) -> Result:
        return Result(name)

    return Tool(name, f"does {name}", {}, run, category, aliases=aliases)


@pytest.fixture
def by_hand() -> Iterator[Registry]:
    """The program's registry, cleared of what a test registers."""
    yield ToolRegistry.instance()
    ToolRegistry.instance().remove(BY_HAND)


async def said_by(made: Tool, **arguments: Any) -> Result:
    return await made.run(CONTEXT, read_arguments(json.dumps(arguments), made))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("read_file", "read_file"),
        ("My Tool!", "my_tool_"),
        ("server:tool.v2", "server_tool_v2"),
        ("a-b_C9", "a-b_c9"),
        ("wörter", "w_rter"),
        ("x" * 70, "x" * 64),
    ],
)
def test_a_name_is_made_such_as_every_provider_takes(name: str, plain: str) -> None:
    assert sanitised(name) == plain


@given(wanted=st.lists(st.text(min_size=1, max_size=70), max_size=12))
def test_no_two_tools_have_one_name(wanted: list[str]) -> None:
    registry = Registry()
    names = [registry.add(named(name), group="x")[0] for name in wanted if name.strip()]
    assert len({name.casefold() for name in names}) == len(names) == len(registry.tools())
    for name in names:
        assert 0 < len(name) <= MOST_CHARS
        assert set(name) <= set(string.ascii_lowercase + string.digits + "_-")
        assert registry.get(name).name == name


def test_the_second_of_a_name_gets_a_number_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    assert registry.add(named("read"), group="ours") == ["read"]
    assert registry.add(named("Read"), named("read"), group="theirs") == ["read_2", "read_3"]
    assert [record.message for record in caplog.records] == [
        "the tool 'Read' of theirs gets the name 'read_2': ours has a tool of that name",
        "the tool 'read' of theirs gets the name 'read_3': ours has a tool of that name",
    ]
    assert registry.group_of("read_2") == "theirs"
    assert free_name("x" * 64, ["x" * 64]) == "x" * 62 + "_2"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("read_file", "read_file"),
        ("Read_File", "read_file"),
        (" read_file ", "read_file"),
        ("Read", "read_file"),
        ("github:search", "github_search"),
        ("github:list issues", "github_list_issues"),
        ("cat", "cat"),
        ("write", None),
        ("", None),
    ],
)
def test_a_tool_is_found_by_name_and_alias_in_any_case_and_a_name_comes_before_an_alias(
    asked: str, found: str | None
) -> None:
    tools = [
        named("read_file", aliases=("Read", "cat")),
        named("github_search"),
        named("github_list_issues", aliases=("github:list_issues",)),
        named("cat"),
    ]
    got = find(asked, tools)
    assert (got.name if got else None) == found


def test_an_unknown_tool_is_refused_with_the_names_there_are() -> None:
    registry = Registry()
    with pytest.raises(ToolError, match="there is no tool 'fly'; there are none at all"):
        registry.get("fly")
    registry.add(*(named(f"t{n}") for n in range(70)))
    with pytest.raises(ToolError, match=r"there is no tool 'fly'; there are: t0, t1, .*, t59 and 10 more") as refused:
        registry.get("fly")
    assert "t60" not in refused.value.message
    assert registry.find("fly") is None


# -- what comes and goes ----------------------------------------------------------------------------------------------


def test_the_tools_of_a_group_are_replaced_and_the_names_of_others_stay() -> None:
    registry = Registry()
    registry.add(named("search"), group="ours")
    registry.add(named("search"), named("list"), group="server a")
    registry.add(named("list"), group="server b")
    assert registry.replace("server a", [named("list"), named("new")]) == ["list", "new"]
    assert {each.name: registry.group_of(each.name) for each in registry.tools()} == {
        "search": "ours", "list_2": "server b", "list": "server a", "new": "server a",
    }  # fmt: skip
    registry.remove("server a")
    assert [each.name for each in registry.tools()] == ["search", "list_2"]
    registry.remove("nobody")


def test_the_same_tool_found_twice_is_one_tool() -> None:
    registry, mine = Registry(), named("mine")
    registry.add(mine, group="file")
    registry.add(mine, group="by hand")
    registry.add(Seed(), Seed())
    assert [each.name for each in registry.tools()] == ["mine", "my_custom_tool"]


def test_something_that_is_no_tool_is_refused_and_nothing_else_is_added_with_it() -> None:
    registry = Registry()
    for thing in (7, object(), Path, "read_file", None):
        with pytest.raises(TypeError, match="not a tool"):
            registry.add(named("good"), thing)
    assert registry.tools() == []


# -- the seeds' form --------------------------------------------------------------------------------------------------

PARAMETERS = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Seed:
    """As the seeds' C++, in Python: all of it methods, the parameters as JSON text."""

    def unsanitized_name(self) -> str:
        return "my custom.tool"

    def description(self) -> str:
        return "Does something amazing"

    def parameters(self) -> str:
        return json.dumps(PARAMETERS)

    def execute(self, args: dict[str, Any]) -> dict[str, Any]:
        return {"result": "success", "input": args["input"]}


class Attributes:
    """All of it attributes, and a coroutine function."""

    name = "shout"
    description = "Shout"
    parameters = PARAMETERS
    category = "voice"
    effect = "read"
    aliases = ("Yell",)
    timeout_s = 2.0

    async def execute(self, args: dict[str, Any]) -> ToolResult:
        return ToolResult(args["input"].upper(), summary="shouted")


class Inherits(CustomTool):
    """As somebody writes it who thinks of the seeds' class."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "counting tool"
        self.n = 0

    def parameters(self) -> dict[str, Any]:
        return PARAMETERS

    def execute(self, args: dict[str, Any]) -> dict[str, Any]:
        self.n += 1
        return {"n": self.n}


class Bare:
    name = "bare"

    def execute(self, args: dict[str, Any]) -> str:
        raise ValueError(f"no {args}")


async def test_a_class_of_the_seeds_form_is_a_tool(by_hand: Registry) -> None:
    assert by_hand.register_tool(Seed()) == "my_custom_tool"
    made = by_hand.get("my custom.tool")
    assert (made.description, made.parameters) == ("Does something amazing", PARAMETERS)
    result = await said_by(made, input=7)
    assert result == Result('{"result": "success", "input": "7"}')
    with pytest.raises(ToolError, match="'input' is missing"):
        await said_by(made)


async def test_its_parts_may_be_attributes_and_it_may_be_asynchronous() -> None:
    made = as_tool(Attributes)
    assert (made.category, made.effect, made.aliases, made.timeout_s) == ("voice", "read", ("Yell",), 2.0)
    assert await said_by(made, input="hi") == Result("HI", summary="shouted")


async def test_a_class_may_inherit_from_the_public_tool_and_have_a_state(by_hand: Registry) -> None:
    assert by_hand.register_tool(Inherits()) == "counting_tool"
    made = by_hand.get("counting tool")
    assert [(await said_by(made, input="x")).content for _ in range(2)] == ['{"n": 1}', '{"n": 2}']


async def test_what_is_not_said_is_the_safe_thing() -> None:
    made = as_tool(Bare())
    assert (made.parameters, made.category, made.effect, made.description) == (
        {"type": "object", "properties": {}}, "other", "write", "",
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"no \{\}"):
        await said_by(made)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({}, "has no name"),
        ({"name": " "}, "has no name"),
        ({"name": 7}, "has no name"),
        ({"name": "x", "parameters": "{"}, "the parameters of the tool 'x' are not JSON"),
        ({"name": "x", "parameters": [1]}, "the parameters of the tool 'x' must be a JSON Schema of an object"),
        ({"name": "x", "parameters": {"type": "string"}}, "must be a JSON Schema of an object"),
        ({"name": "x", "effect": "reads"}, "the tool x: its effect is 'reads'; it can be read, write, run, net"),
    ],
)
def test_a_class_that_leaves_out_something_is_refused_with_what(attributes: dict[str, Any], says: str) -> None:
    made = type("Theirs", (), {**attributes, "execute": lambda self, args: "x"})
    with pytest.raises(TypeError, match=says):
        as_tool(made())


def test_a_plain_function_can_be_registered_too(by_hand: Registry) -> None:
    def roll(sides: int = 6) -> int:
        """Roll a die."""
        return sides

    assert by_hand.register_tool(roll) == "roll"
    assert by_hand.get("Roll").description == "Roll a die."


# -- where they come from ---------------------------------------------------------------------------------------------


def test_ours_come_by_their_entry_point_and_memory_is_among_them() -> None:
    registry = Registry.found()
    assert registry.group_of("set_fact") == OURS
    assert registry.get("SET_FACT").category == "memory"


def test_what_is_registered_by_hand_is_in_every_registry_that_was_found(by_hand: Registry) -> None:
    by_hand.register_tool(named("before"))
    registry = Registry.found()
    assert registry.group_of("before") == BY_HAND
    by_hand.register_tool(named("after"))
    assert registry.get("after").name == "after"
    registry.add(named("only here"))
    assert by_hand.find("only here") is None
    by_hand.remove(BY_HAND)
    assert registry.find("after") is None
    assert registry.find("set_fact") is not None


def test_one_of_ours_keeps_its_name(by_hand: Registry) -> None:
    assert by_hand.register_tool(named("set_fact")) == "set_fact_2"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


async def test_a_file_of_tools_is_read(tmp_path: Path, by_hand: Registry) -> None:
    path = write(tmp_path, "my tools.py", FILE)
    registry = Registry.found([path])
    groups = {each.name: registry.group_of(each.name) for each in registry.tools()}
    assert {name: group for name, group in groups.items() if group != OURS} == {
        "roll": str(path), "made": str(path), "other": BY_HAND, "greet": BY_HAND,
    }  # fmt: skip
    assert registry.failures == Registry.found().failures
    assert set(registry.given()) == {"roll", "made", "other", "greet"}
    assert (await said_by(registry.get("roll"), sides="3")).content == "3"
    assert (await said_by(registry.get("greet"), who="Ann")).content == '{"greeting": "hello Ann"}'


FILE = '''
from __future__ import annotations
from dataclasses import dataclass
from sqlite3 import Cursor  # has a method execute, and is none of ours
from shepherd.tools import ToolRegistry, tool
from shepherd.tools.builtin.memory import set_fact

@tool(effect="read")
def roll(sides: int = 6) -> str:
    """Roll a die."""
    return str(sides)

same = roll

class Greet:
    name, description = "greet", "Greet somebody"
    parameters = {"type": "object", "properties": {"who": {"type": "string"}}}
    def execute(self, args):
        return {"greeting": "hello " + args["who"]}

@dataclass
class Needs:
    name: str
    description, parameters = "", None
    def execute(self, args):
        return self.name

class Half:
    name, description, parameters = "half", "", None
    def __init__(self, what): ...
    def execute(self, args): ...

made = Needs("made")
ToolRegistry.instance().register_tool(Needs("other"))
ToolRegistry.instance().register_tool(Greet())
'''


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.py", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (line 1)"),
        ("b.py", "x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2)"),
        ("c.py", "def f(:", "SyntaxError"),
        ("d.py", "import sys\nsys.exit(3)", "SystemExit: 3"),
        ("e.py", "x = 1", "TypeError: it contains none"),
        ("f.py", None, "FileNotFoundError: there is no such file"),
        ("g.txt", "x = 1", "the name of a file of tools must end in .py"),
        ("h.py", "def tools():\n    return 3", "TypeError: 'int' object is not iterable (line 2)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_gives_one_warning_and_the_rest_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str | None, says: str
) -> None:
    bad = tmp_path / name
    if text is not None:
        write(tmp_path, name, text)
    good = write(tmp_path, "good.py", "from shepherd.tools import tool\n@tool\ndef good() -> str: ...\n")
    Registry.instance()  # whose warnings are not meant here
    caplog.clear()
    registry = Registry.found([bad, good])
    assert registry.find("good") is not None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message in registry.failures
    assert str(bad) in record.message
    assert says.removesuffix(" (line 2)") in record.message


def test_one_bad_tool_of_a_file_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, "mixed.py", MIXED)
    registry = Registry.found([path])
    assert registry.find("fine") is not None
    (failure,) = set(registry.failures) - set(Registry.found().failures)
    assert "a tool of the file" in failure
    assert "must be a JSON Schema of an object" in failure


MIXED = '''
class Bad:
    name, description, parameters = "bad", "", [1]
    def execute(self, args): ...

from shepherd.tools import Tool

class Between(Tool):
    """Has no call of its own: not a tool, and no failure."""

class Fine(Between):
    name = "fine"
    def execute(self, args): ...
'''


def test_a_file_is_run_once_in_the_life_of_a_program(tmp_path: Path) -> None:
    path = write(tmp_path, "once.py", ONCE)
    for _ in range(2):
        assert Registry.found([path, path]).find("once") is not None
    assert (tmp_path / "ran").read_text() == "x"


ONCE = """
from pathlib import Path
from shepherd.tools import tool
with Path(__file__).with_name("ran").open("a") as ran:
    ran.write("x")
@tool
def once() -> None: ...
"""


def test_what_a_package_names_may_be_a_module_a_tool_some_tools_or_a_function_that_gives_them() -> None:
    one, two = named("one"), named("two")
    module = ModuleType("m")
    vars(module).update(two=two, one=one, again=one, n=1, Imported=Seed)
    assert find_tools(module) == [two, one]
    vars(module)["tools"] = lambda: [one]
    assert find_tools(module) == [one]
    assert find_tools(one) == [one]
    assert find_tools([one, two]) == [one, two]
    assert find_tools(lambda: [two]) == [two]
    assert find_tools(Seed) == [Seed]
    with pytest.raises(TypeError, match="int is neither a module nor a tool"):
        find_tools(7)


def test_the_most_useful_tool_comes_first() -> None:
    registry = Registry()
    registry.add(named("zzz"), named("read_file"), named("http_put", category="http"), named("list_directory"))
    assert [each.name for each in registry.tools()] == ["list_directory", "read_file", "zzz", "http_put"]


# -- ours -------------------------------------------------------------------------------------------------------------

SEEDS = {
    "filesystem": ["read_file", "write_file", "list_directory", "delete_file", "file_exists"],
    "command_execution": ["execute_command"],
    "http": ["http_get", "http_post", "http_put", "http_delete"],
    "json": ["json_parse", "json_validate", "json_format", "json_path"],
    "memory": ["search_memory", "set_fact", "get_fact", "store_memory"],
    "mcp": ["list_resources", "read_resource", "call_mcp_tool"],
}


def ours() -> list[Tool]:
    registry = Registry.found()
    return [each for each in registry.tools() if registry.group_of(each.name) == OURS]


def test_all_tools_of_the_seeds_are_there_in_their_categories() -> None:
    there = {each.name: each.category for each in ours()}
    for category, names in SEEDS.items():
        assert {name: there.get(name) for name in names} == dict.fromkeys(names, category)


def test_no_name_of_ours_means_two_tools() -> None:
    words = [word.casefold() for each in ours() for word in {each.name, *each.aliases}]
    assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize("made", ours(), ids=lambda made: made.name)
def test_each_of_ours_is_described_well_and_shortly(made: Tool) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(made.parameters)
    assert made.category in CATEGORIES
    assert made.name == sanitised(made.name)
    assert 5 < len(made.description) <= 120
    assert len(json.dumps(made.parameters)) < 1_000
    assert callable(made.effect) or made.effect in {"read", "write", "run", "net"}
    assert made.subject == "" or made.subject in made.parameters["properties"]
    for alias, parameter in made.argument_aliases.items():
        assert alias not in made.parameters["properties"]
        assert parameter == "" or parameter in made.parameters["properties"]
