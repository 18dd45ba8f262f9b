"""How a function becomes a tool."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from shepherd.core import Audio, Image, Text
from shepherd.tools import Result, ToolContext, ToolError, tool
from shepherd.tools.signature import as_result, describe
from shepherd.tools.tool import Tool

if TYPE_CHECKING:
    from decimal import Decimal


class Edit(TypedDict):
    old: str
    new: NotRequired[Annotated[str, "instead of it"]]


CONTEXT = ToolContext(session="s")


@tool(
    category="filesystem",
    effect="read",
    aliases=("Read",),
    argument_aliases={"file_path": "path", "why": ""},
    subject="path",
    offered=False,
    timeout_s=3.0,
)
async def read_some(
    context: ToolContext,
    path: Annotated[str, "below the working folder"],
    offset: Annotated[int, {"minimum": 1}] = 1,
    mode: Literal["text", "bytes"] = "text",
    limit: int | None = None,
    *,
    strict: bool = False,
) -> str:
    """Read a part of a file.

    What follows is for people.
    """
    return f"{context.session} {path} {offset} {mode} {limit} {strict}"


def test_all_that_is_said_of_a_tool_comes_from_its_function_and_the_decorator() -> None:
    assert read_some.name == "read_some"
    assert read_some.description == "Read a part of a file."
    assert read_some.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "below the working folder"},
            "offset": {"type": "integer", "minimum": 1, "default": 1},
            "mode": {"type": "string", "enum": ["text", "bytes"], "default": "text"},
            "limit": {"type": "integer"},
            "strict": {"type": "boolean", "default": False},
        },
        "required": ["path"],
    }
    assert (read_some.category, read_some.effect, read_some.aliases) == ("filesystem", "read", ("Read",))
    assert (read_some.subject, read_some.offered, read_some.timeout_s) == ("path", False, 3.0)
    assert read_some.argument_aliases == {"file_path": "path", "why": ""}


async def test_the_context_is_handed_over_and_defaults_are_the_functions_own() -> None:
    assert await read_some.run(CONTEXT, {"path": "a"}) == Result("s a 1 text None False")
    told = await read_some.run(CONTEXT, {"path": "a", "limit": 2, "strict": True})
    assert told.content == "s a 1 text 2 True"


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (list[Any], {"type": "array"}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (str | dict[str, Any], {"anyOf": [{"type": "string"}, {"type": "object"}]}),
        (Literal[1, "a"], {"enum": [1, "a"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Annotated[list[Annotated[int, "one"]], "some", 7], {
            "type": "array", "items": {"type": "integer", "description": "one"}, "description": "some",
        }),
        (Edit, {
            "type": "object",
            "properties": {"old": {"type": "string"}, "new": {"type": "string", "description": "instead of it"}},
            "required": ["old"],
        }),
    ],
)  # fmt: skip
def test_a_type_is_described_by_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert describe(hint, "x") == schema


def test_what_may_be_left_out_need_not_be_null() -> None:
    @tool
    async def find(where: Annotated[str | None, "a folder"] = None, which: str | int | None = None) -> None: ...

    assert find.parameters == {
        "type": "object",
        "properties": {
            "where": {"type": "string", "description": "a folder"},
            "which": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }


def test_names_that_only_a_type_checker_knows_are_no_matter_where_no_schema_needs_them() -> None:
    @tool
    def add(a: int) -> Decimal: ...  # type: ignore[empty-body]

    assert list(add.parameters["properties"]) == ["a"]


def test_a_parameter_without_a_type_takes_anything() -> None:
    @tool
    def show(value, times=1):  # type: ignore[no-untyped-def]
        return [value] * times

    assert show.parameters["properties"] == {"value": {}, "times": {"default": 1}}
    assert show.description == ""


def test_a_signature_that_no_schema_can_describe_is_refused_at_once_and_named() -> None:
    def any_number(*values: int) -> None: ...
    def by_place(value: int, /) -> None: ...
    def day(value: datetime.date) -> None: ...
    def later(value: Decimal) -> None: ...
    def keys(value: dict[int, str]) -> None: ...

    for function, says in (
        (any_number, "parameter 'values' has no fixed name"),
        (by_place, "parameter 'value' has no fixed name"),
        (day, "parameter 'value' is of the type"),
        (later, "name 'Decimal' is not defined"),
        (keys, "parameter 'value' is of the type"),
    ):
        with pytest.raises(TypeError, match=f"the tool {function.__name__}: .*{says}"):
            tool(function)
    with pytest.raises(TypeError, match="the subject 'file' is not one of its parameters"):
        tool(subject="file")(show_one)
    with pytest.raises(TypeError, match="'p' cannot stand for 'path'"):
        tool(argument_aliases={"p": "path"})(show_one)


def show_one(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", Result("text")),
        (Result("as it is", success=False), Result("as it is", success=False)),
        (None, Result("done")),
        (7, Result("7")),
        (True, Result("true")),
        ([], Result("[]")),
        (["a", "b"], Result('["a", "b"]')),
        ({"result": "success"}, Result('{"result": "success"}')),
        ({"error": None, "value": "ä"}, Result('{"error": null, "value": "ä"}')),
        ({"success": True, "n": 1}, Result('{"success": true, "n": 1}')),
        ({"error": "no such day"}, Result('{"error": "no such day"}', success=False, error="no such day")),
        ({"success": False}, Result('{"success": false}', success=False, error='{"success": false}')),
        ({"success": False, "message": "gone"}, Result('{"success": false, "message": "gone"}', False, error="gone")),
        ({"error": {"code": 1}}, Result('{"error": {"code": 1}}', success=False, error='{"code": 1}')),
        ({"day": datetime.date(2026, 1, 2)}, Result('{"day": "2026-01-02"}')),
        ((Text("a"), "b", Image("image/png", b"x")), Result("a\nb", images=(Image("image/png", b"x"),))),
        (("a", Audio("audio/wav", b"x")), Result("a", audio=(Audio("audio/wav", b"x"),))),
        (Audio("audio/wav", b"x"), Result(audio=(Audio("audio/wav", b"x"),))),
        ([Image(url="http://localhost/x")], Result(images=(Image(url="http://localhost/x"),))),
        (Text("only"), Result("only")),
        ((1, 2), Result("[1, 2]")),
    ],
)
def test_what_a_function_returns_becomes_a_result(value: object, result: Result) -> None:
    made = as_result(value)
    assert (made.content, made.success, made.error, made.images) == (
        result.content, result.success, result.error, result.images,
    )  # fmt: skip


async def test_a_plain_function_runs_in_another_thread_with_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="")

    @tool
    def where() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {variable.get()}"

    variable.set("kept")
    assert (await where.run(CONTEXT, {})).content == "False kept"


async def test_a_plain_function_that_never_comes_back_can_be_left_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began, end = threading.Event(), threading.Event()
    threads = []

    @tool
    def hang() -> None:
        threads.append(threading.current_thread())
        began.set()
        end.wait()

    running = asyncio.ensure_future(hang.run(CONTEXT, {}))
    assert await asyncio.to_thread(began.wait, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [thread.daemon for thread in threads] == [True]  # the end of the program does not wait for it
    end.set()
    await asyncio.to_thread(threads[0].join)
    await asyncio.sleep(0)  # what it has posted is dropped
    assert caplog.records == []


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), SystemExit(3)])
async def test_what_a_function_raises_is_raised_and_none_ends_the_program(error: BaseException) -> None:
    @tool
    def plain() -> None:
        raise error

    @tool
    async def awaited() -> None:
        raise error

    for each in (plain, awaited):
        with pytest.raises(ToolError if isinstance(error, SystemExit) else (ValueError, RuntimeError)):
            await each.run(CONTEXT, {})


async def test_a_plain_function_may_return_something_to_be_awaited() -> None:
    async def later() -> str:
        return "later"

    def begin() -> object:
        return later()

    assert (await tool(begin).run(CONTEXT, {})).content == "later"


class Caller:
    async def __call__(self, a: int) -> int:
        return a + 1


async def test_an_object_that_is_called_is_a_function_too() -> None:
    made = tool(name="caller")(Caller())
    assert isinstance(made, Tool)
    assert made.parameters["required"] == ["a"]
    assert (await made.run(CONTEXT, {"a": 1})).content == "2"
