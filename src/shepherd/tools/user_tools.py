"""The things that can be a tool: a function, or a class of the seeds' form; and those in a module.

class Shout(Tool):                                     `shepherd.tools.Tool` is `CustomTool`
    name = "shout"                                     attributes or methods; `unsanitized_name` is the name, too
    description = "Say it louder."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def execute(self, args):                           or `async def`; a dict, text or a `Result`
        return {"said": args["text"].upper()}
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, get_args

from shepherd.tools.base import Effect, Result
from shepherd.tools.signature import ToolOptions, as_result, carry_out, tool
from shepherd.tools.tool import Tool, ToolContext

EFFECTS = get_args(Effect)
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


class CustomTool:
    """A base for classes of the seeds' form, which need not inherit it: the registry looks at their attributes."""

    name: Any = ""
    description: Any = ""
    parameters: Any = NO_ARGUMENTS
    """JSON Schema of the arguments object, as a dict or as JSON text."""

    def execute(self, args: dict[str, Any]) -> Any:
        """Carry out one call, whose arguments fit `parameters`. The model gets the error that it raises."""
        raise NotImplementedError(f"{type(self).__name__} has no method execute(args)")


def as_tool(thing: object) -> Tool:
    """The tool of a `Tool`, a function, an object of the seeds' form, or a class of such objects.

    The seeds' form: `unsanitized_name` or `name`, `description`, `parameters` (a dict, or JSON text), each an attribute
    or a method, and `execute(args)`, which may be a coroutine function, and returns a dict, text or a `Result`; and
    fields of `Tool` (`category`, `effect`, `aliases` ...).

    Raises: `TypeError` that says what is missing.
    """
    if isinstance(thing, type):
        if not callable(getattr(thing, "execute", None)):
            raise TypeError(f"the class {thing.__name__} is not a tool: it has no method execute(args)")
        return as_tool(thing())
    if isinstance(thing, Tool):
        made = thing
    elif callable(getattr(thing, "execute", None)):
        made = _of_object(thing)
    elif inspect.isroutine(thing):
        made = tool(thing)
    else:
        raise TypeError(f"{type(thing).__name__} is not a tool: it has no method execute(args)")
    if not made.name.strip():
        raise TypeError(f"the tool {made.description[:80]!r} has no name")
    if not callable(made.effect) and made.effect not in EFFECTS:
        raise TypeError(f"the tool {made.name}: its effect is {made.effect!r}; it can be {', '.join(EFFECTS)}")
    return made


def _of_object(thing: Any) -> Tool:
    def value_of(key: str) -> Any:
        value = getattr(thing, key, None)
        # These are functions in a `Tool`, too.
        return value() if callable(value) and key not in {"effect", "preview", "overwrites"} else value

    name = value_of("unsanitized_name") or value_of("name")
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"the tool {type(thing).__name__} has no name: give it the attribute `name`, a text")
    parameters = value_of("parameters") or NO_ARGUMENTS
    if isinstance(parameters, str):
        try:
            parameters = json.loads(parameters)
        except ValueError as error:
            raise TypeError(f"the parameters of the tool {name!r} are not JSON: {error}") from error
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise TypeError(f"the parameters of the tool {name!r} must be a JSON Schema of an object")

    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        return as_result(await carry_out(thing.execute, dict(arguments)))

    options = {key: value for key in ToolOptions.__annotations__ if (value := value_of(key)) is not None}
    return Tool(name, str(value_of("description") or "").strip(), parameters, run, **options)


def find_tools(found: object) -> list[object]:
    """The tools of an entry point: a module, a tool, several, or a function that returns them."""
    if isinstance(found, ModuleType):
        listed = getattr(found, "tools", None)
        return list(listed()) if inspect.isroutine(listed) else list(_attributes(found))
    if isinstance(found, type | Tool) or callable(getattr(found, "execute", None)):
        return [found]
    if callable(found):
        return find_tools(found())
    if isinstance(found, Iterable) and not isinstance(found, str):
        return list(found)
    raise TypeError(f"{type(found).__name__} is neither a module nor a tool")


def _attributes(module: ModuleType) -> Iterator[object]:
    """The tools among a module's attributes, in order, each once; imported classes are left out."""
    seen: set[int] = set()
    for value in list(vars(module).values()):
        execute = getattr(value, "execute", None)
        if isinstance(value, type):
            is_tool = (
                value.__module__ == module.__name__
                and callable(execute)
                and execute is not CustomTool.execute
                and any(hasattr(value, key) for key in ("name", "unsanitized_name"))
                and not inspect.isabstract(value)
                and not needs_arguments(value)
            )
        else:
            is_tool = isinstance(value, Tool) or (callable(execute) and hasattr(value, "parameters"))
        if is_tool and id(value) not in seen:
            seen.add(id(value))
            yield value


def needs_arguments(kind: type) -> bool:
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD} for each in parameters
    )


def origin_of(thing: object) -> object:
    """The identity of a tool: the class of an object of the seeds' form, else the thing itself."""
    return thing if isinstance(thing, type) or not callable(getattr(thing, "execute", None)) else type(thing)
