"""How a function becomes a tool: the schema comes from its signature, the description from its docstring.

    @tool(category="filesystem", effect="read")
    async def count_lines(context: ToolContext, path: Annotated[str, "a text file"], skip_empty: bool = False) -> str:
        \"\"\"Count the lines of a file.\"\"\"

A plain function runs in a thread of its own. The first parameter may be a `ToolContext`; it is not in the schema. The
types that JSON can express are accepted: str, int, float, bool, None, Any, Literal, list, tuple[T, ...], dict,
TypedDict, unions of those, and `Annotated[T, "description", {"minimum": 1}]`. `T | None = None` is a T that may be left
out.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import threading
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from shepherd.core import Audio, Image, Text
from shepherd.tools.base import Effect, Result, ToolError
from shepherd.tools.tool import Overwrites, Preview, Tool, ToolContext


class ToolOptions(typing.TypedDict, total=False):
    """The fields of a `Tool` that cannot be read off its function."""

    category: str
    effect: Effect | Callable[[Mapping[str, Any]], Effect]
    aliases: Sequence[str]
    argument_aliases: Mapping[str, str]
    preview: Preview | None
    overwrites: Overwrites | None
    subject: str
    offered: bool
    timeout_s: float | None


@typing.overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@typing.overload
def tool(*, name: str | None = None, **options: typing.Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: typing.Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """The function as a `Tool`. `preview`, `overwrites` and an `effect` that is a function get the arguments as the
    model gave them: without those left out. Raises: `TypeError` at once for a signature that no schema can describe."""

    def make(function: Callable[..., Any]) -> Tool:
        own_name = name or getattr(function, "__name__", "")
        if not own_name:
            raise TypeError(f"the tool has no name: write @tool(name=...) for {function!r}")
        parameters, wants_context = schema_of(function, own_name)
        options["argument_aliases"] = argument_aliases = options.get("argument_aliases") or {}
        for other, parameter in argument_aliases.items():
            if parameter and parameter not in parameters["properties"]:
                raise TypeError(f"the tool {own_name}: {other!r} cannot stand for {parameter!r}, which it has not")
        if (subject := options.get("subject")) and subject not in parameters["properties"]:
            raise TypeError(f"the tool {own_name}: the subject {subject!r} is not one of its parameters")

        async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
            return as_result(await carry_out(function, *([context] if wants_context else []), **arguments))

        description = (inspect.getdoc(function) or "").strip().partition("\n")[0]
        return Tool(own_name, description, parameters, run, **options)

    return make if function is None else make(function)


async def carry_out(function: Callable[..., Any], *positional: Any, **arguments: Any) -> Any:
    """What the function returns, awaited if need be.

    A plain function runs in a daemon thread of its own and not in the loop's pool: if it never returns, it delays
    neither other work nor the end of the program. Cancelling leaves it running and drops its result.
    """
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(*positional, **arguments)
        value = await in_thread(lambda: function(*positional, **arguments))
        return await value if inspect.isawaitable(value) else value
    except SystemExit as error:  # it would end the chat, not the tool
        raise ToolError("the tool tried to end the program; the call was not carried out") from error


async def in_thread(work: Callable[[], Any]) -> Any:
    """What `work` returns, run in a daemon thread that sees the caller's context variables."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def body() -> None:
        value, failure = None, None
        try:
            value = context.run(work)
        except BaseException as error:  # raised again where it is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:
            return  # the loop has been closed

    context = contextvars.copy_context()
    threading.Thread(target=body, name="tool", daemon=True).start()
    value, failure = await done
    if failure is not None:
        raise failure
    return value


# -- what comes back --------------------------------------------------------------------------------------------------


def as_result(value: Any) -> Result:
    """What a tool returned, as a result: text, anything that is JSON, parts of a message, or nothing. A dict with
    `error`, or with `success: false`, is a failure (the seeds' form)."""
    match value:
        case Result():
            return value
        case str():
            return Result(value)
        case None:
            return Result("done")
        case Mapping():
            text = as_json(value)
            if value.get("success") is not False and not value.get("error"):
                return Result(text)
            error = value.get("error") or value.get("message") or text
            return Result(text, success=False, error=error if isinstance(error, str) else as_json(error))
        case Text() | Image() | Audio():
            return as_result((value,))
        case list() | tuple() if value and all(isinstance(part, str | Text | Image | Audio) for part in value):
            if isinstance(value, list) and all(isinstance(part, str) for part in value):
                return Result(as_json(value))
            texts = [part.text if isinstance(part, Text) else part for part in value if isinstance(part, str | Text)]
            return Result(
                "\n".join(texts),
                images=tuple(part for part in value if isinstance(part, Image)),
                audio=tuple(part for part in value if isinstance(part, Audio)),
            )
        case _:
            return Result(as_json(value))


def as_json(value: Any) -> str:
    """JSON text; what JSON has no word for (a date, a path) as its text."""
    return json.dumps(value, ensure_ascii=False, default=lambda odd: list(odd) if isinstance(odd, set) else str(odd))


# -- the schema -------------------------------------------------------------------------------------------------------


def schema_of(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], bool]:
    """The JSON Schema of a function's arguments, and whether its first parameter is the context. Raises: `TypeError`
    that names the tool and the parameter.
    """
    parameters = list(inspect.signature(function).parameters.values())
    written = {each.name: each.annotation for each in parameters if each.annotation is not each.empty}
    try:
        # The return type is left out: its names may exist for type checkers only.
        hints = get_type_hints(
            types.SimpleNamespace(__annotations__=written),
            globalns=getattr(inspect.unwrap(function), "__globals__", {}),
            localns={"ToolContext": ToolContext},
            include_extras=True,
        )
    except (NameError, TypeError, SyntaxError) as error:
        raise TypeError(f"the tool {name}: an annotation cannot be understood: {error}") from error
    wants_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    properties: dict[str, Any] = {}
    required = []
    for parameter in parameters[wants_context:]:
        where = f"the tool {name}: its parameter {parameter.name!r}"
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise TypeError(f"{where} has no fixed name; a model can only fill in parameters by name")
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
            properties[parameter.name] = describe(hint, where)
            continue
        schema = describe(without_none(hint) if parameter.default is None else hint, where)
        if isinstance(parameter.default, str | int | float) and parameter.default != "":
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    schema = {"type": "object", "properties": properties}
    return ({**schema, "required": required} if required else schema), wants_context


NAMES: Mapping[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null",
    list: "array", tuple: "array", Sequence: "array", dict: "object", Mapping: "object",
}  # fmt: skip
"""Types of Python by their JSON Schema names."""


def describe(hint: Any, where: str) -> dict[str, Any]:
    """The JSON Schema of a type. Raises: `TypeError` that begins with `where`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = describe(inner[0], where)
        for extra in inner[1:]:
            schema |= extra if isinstance(extra, Mapping) else {"description": extra} if isinstance(extra, str) else {}
        return schema
    if hint is Any or hint is object:
        return {}
    if hint in NAMES:
        return {"type": NAMES[hint]}
    if origin in {Required, NotRequired}:
        return describe(inner[0], where)
    if origin is Literal:
        kinds = {NAMES.get(type(value)) for value in inner}
        return {**({"type": kinds.pop()} if len(kinds) == 1 else {}), "enum": list(inner)}
    if origin in {Union, types.UnionType}:
        return {"anyOf": [describe(each, where) for each in inner]}
    if origin in {list, Sequence} or (origin is tuple and inner[1:] == (...,)):
        items = describe(inner[0], where)
        return {"type": "array", **({"items": items} if items else {})}
    if origin in {dict, Mapping} and inner[0] is str:
        values = describe(inner[1], where)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if typing.is_typeddict(hint):
        fields = get_type_hints(hint, include_extras=True)
        properties = {key: describe(each, where) for key, each in fields.items()}
        # Of annotations that are text (`from __future__ import annotations`) the class has not read the inside.
        marks = {key: get_origin(each) for key, each in fields.items()}
        own = hint.__required_keys__
        required = [key for key in fields if marks[key] is Required or (key in own and marks[key] is not NotRequired)]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}
    raise TypeError(f"{where} is of the type {hint!r}, which JSON has no word for; use str, int, list, dict ...")


def without_none(hint: Any) -> Any:
    """`T` of `T | None`, its description kept: what may be left out need not be null."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return Annotated[(without_none(inner), *extras)]
    if get_origin(hint) not in {Union, types.UnionType}:
        return hint
    left = [each for each in get_args(hint) if each is not type(None)]
    return Union[tuple(left)] if left else hint  # noqa: UP007 - of a tuple
