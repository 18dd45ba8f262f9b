"""The memory's tools: search it, and keep facts and notes in it.

Names, arguments and results are the seeds' (requirements 3.6). A call with wrong arguments is answered with a sentence
that says what to do; it never raises.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shepherd.core import InvalidRequest, ShepherdError, Text, ToolCall, ToolResult, ToolSpec
from shepherd.memory.retrieval.search import TEXT_CHARS, as_text
from shepherd.memory.store import MemoryStore

MOST_RESULTS = 50
LEAST_CHARS = 300
"""Of a result, before results are left out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool."""

    kind: type[str] | type[int]
    description: str = ""
    default: str | int | None = None
    """None = required."""
    aliases: tuple[str, ...] = ()
    """Names that models use for it as well."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool over a store."""

    description: str
    parameters: Mapping[str, Parameter]
    run: Callable[..., str]
    """Takes the memory and the arguments; the text for the model. Blocks."""


class MemoryTools:
    """The tools of one user's memory, for one conversation; a `Toolbox`."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        session: str | None = None,
        names: Collection[str] | None = None,
        budget: int = 8_000,
        count: Callable[[str], int] = len,
    ) -> None:
        """`session`: whose newest turn is not to be found, since it is the question. `names`: the tools to offer.

        An answer has at most `budget` tokens, as `count` counts them: none must fill the context (Letta's issue 1635).
        """
        self.store = store
        self.session = session
        self.budget = budget
        self.count = count
        self.specs: Sequence[ToolSpec] = [spec for spec in SPECS if names is None or spec.name in names]

    async def run(self, call: ToolCall) -> ToolResult:
        """The answer to one call; see `Toolbox`."""
        try:
            if all(spec.name != call.name for spec in self.specs):
                known = ", ".join(spec.name for spec in self.specs)
                raise InvalidRequest(f"there is no tool {call.name[:80]!r}; there are: {known}")
            arguments = read_arguments(call.arguments, TOOLS[call.name].parameters)
            text = await asyncio.to_thread(self._answer, TOOLS[call.name], arguments)
        except ShepherdError as error:
            return ToolResult(call.id, (Text(f"Error: {error.message}"),), call.name, is_error=True)
        return ToolResult(call.id, (Text(text),), call.name)

    def _answer(self, tool: Tool, arguments: Mapping[str, str | int]) -> str:
        text = whole = tool.run(self, **arguments)
        while self.count(text) > self.budget:
            half = len(text) * 3 // 8
            text = f"{whole[:half]} … (shortened from {len(whole)} characters) … {whole[-half:]}"
            if half < 50:
                break
        return text


def read_arguments(text: str, parameters: Mapping[str, Parameter]) -> dict[str, str | int]:
    """The arguments of a call, gently brought to their kinds: a number that comes as text is a number.

    Raises: `InvalidRequest` that names the argument and what it must be.
    """
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidRequest(f"the arguments are not JSON ({error}); send one object") from error
    if not isinstance(given, dict):
        raise InvalidRequest("the arguments must be one JSON object, with the names of the parameters as keys")
    return {name: _read(name, parameter, given) for name, parameter in parameters.items()}


def _read(name: str, parameter: Parameter, given: Mapping[str, Any]) -> str | int:
    value = next((given[key] for key in (name, *parameter.aliases) if given.get(key) is not None), parameter.default)
    if value is None:
        raise InvalidRequest(f"the argument {name!r} is missing: {parameter.description or name}")
    if parameter.kind is str:
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False)  # a number or a list as the value of a fact
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the argument {name!r} must be a whole number, not {value!r:.40}") from error


def _search(memory: MemoryTools, query: str, max_results: int) -> str:
    without = memory.store.newest_turn(memory.session) if memory.session else []
    hits = memory.store.search(query, min(max(1, max_results), MOST_RESULTS), without=without)
    n_chars = TEXT_CHARS
    while memory.count(text := as_text(hits, query, most_chars=n_chars)) > memory.budget and len(hits) > 1:
        # First the long texts are shortened, then the least relevant results go.
        n_chars //= 2
        if n_chars < LEAST_CHARS * len(hits):
            n_chars, hits = LEAST_CHARS * (len(hits) - 1), hits[:-1]
    return text


def _get_fact(memory: MemoryTools, key: str) -> str:
    fact = memory.store.get_fact(key)
    return _json({"value": fact.value} if fact else {"value": None, "found": False})


def _set_fact(memory: MemoryTools, key: str, value: str) -> str:
    memory.store.set_fact(key, value)
    return _json({"success": True})


def _clear_fact(memory: MemoryTools, key: str) -> str:
    return _json({"success": True, "found": memory.store.clear_fact(key)})


def _store_memory(memory: MemoryTools, question: str, answer: str) -> str:
    memory.store.remember(question, answer)
    return _json({"success": True})


def _clear_memory(memory: MemoryTools, question: str) -> str:
    return _json({"success": True, "found": memory.store.clear_memory(question)})


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


_KEY = Parameter(str, aliases=("name",))
_QUESTION = Parameter(str, aliases=("key",))

# Descriptions are short on purpose: every word is paid for in every prompt.
TOOLS: Mapping[str, Tool] = {
    "search_memory": Tool(
        "Search earlier conversations.",
        {"query": Parameter(str), "max_results": Parameter(int, default=5)},
        _search,
    ),
    "get_fact": Tool("Look up a value by key.", {"key": _KEY}, _get_fact),
    "set_fact": Tool("Store a value under a key.", {"key": _KEY, "value": Parameter(str)}, _set_fact),
    "clear_fact": Tool("Delete the value of a key.", {"key": _KEY}, _clear_fact),
    "store_memory": Tool(
        "Store a question and its answer.", {"question": _QUESTION, "answer": Parameter(str)}, _store_memory
    ),
    "clear_memory": Tool("Delete a stored question.", {"question": _QUESTION}, _clear_memory),
}


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if parameter.kind is int else "string"}
    return {**schema, "description": parameter.description} if parameter.description else schema


SPECS: Sequence[ToolSpec] = [
    ToolSpec(
        name,
        tool.description,
        {
            "type": "object",
            "properties": {key: _schema(parameter) for key, parameter in tool.parameters.items()},
            "required": [key for key, parameter in tool.parameters.items() if parameter.default is None],
        },
    )
    for name, tool in TOOLS.items()
]
