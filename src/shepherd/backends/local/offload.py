"""Where a request is compiled: on the event loop, in a thread, or in one of the few threads for heavy requests.

    weight   0 ───── LARGE ───── HEAVY ─────▶
    runs     the event loop │ a thread │ one of the few threads for them, after those before it

A weight is about the number of characters of plain text that take as long to render and tokenise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shepherd.core import Audio, Image, Part, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.engine.grammar.lark import n_values
from shepherd.process.pools import in_pool

T = TypeVar("T")

LARGE = 100_000
"""Requests of more weight are compiled off the event loop."""
HEAVY = 2_000_000
"""Requests of more weight wait for each other: each takes seconds. A client that goes away takes a waiting request out
of the line; one that is being compiled runs to the end of its step."""
OF_MESSAGE = 200
OF_TOOL = 1_000
OF_VALUE = 50
"""The weights of a message, a tool, and a value in the schema of a tool."""
OF_BYTES = 20
"""So many bytes of a file are hashed while a character becomes tokens."""


async def offload(weight: int, work: Callable[..., T], *arguments: object) -> T:
    """What `work(*arguments)` returns, run where its weight belongs."""
    if weight < LARGE:
        return work(*arguments)
    return await in_pool("heavy prompts" if weight > HEAVY else "prompts", work, *arguments)


def weight_of(request: Request) -> int:
    """About how long a request takes to become tokens, in characters of plain text."""
    if (completion := request.completion) is not None:
        texts = (completion.prompt,) if isinstance(completion.prompt, str) else completion.prompt
        n_prompt = sum(len(part) if isinstance(part, str) else 1 for part in texts)
        return n_prompt + len(completion.suffix or "")
    parts = (part for message in request.messages for part in message.parts)
    tools = sum(OF_TOOL + OF_VALUE * n_values(tool.parameters) for tool in request.tools)
    return OF_MESSAGE * len(request.messages) + tools + sum(map(_weight, parts))


def _weight(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return OF_MESSAGE + len(part.arguments)
        case ToolResult():
            return OF_MESSAGE + sum(map(_weight, part.parts))
        case Image() | Audio():
            return OF_MESSAGE + len(part.data or b"") // OF_BYTES  # it is hashed; what it becomes is known
        case _:
            return OF_MESSAGE
