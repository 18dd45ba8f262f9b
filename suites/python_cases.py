"""What the cases of all client libraries share: the servers, what is asked, and how a cancelled answer shows."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

CHECKS = (
    "chat", "stream", "forced_tool", "tool_result", "parallel_calls", "schema", "usage", "usage_of_a_stream",
    "unknown_model", "wrong_key", "overflow", "overflow_of_a_stream", "embeddings", "async", "cancelling",
)  # fmt: skip
"""The tests that each library has; one that a library has nothing for says why it is skipped."""
BEYOND_LANGCHAIN = (
    "parallel_calls", "reasoning", "unknown_model", "wrong_key", "overflow", "embeddings", "cancelling",
)  # fmt: skip
"""What LangChain's own tests leave out."""
KEY = "sk-suite"
QUESTION = "Tell me about sheep."
THINK = "Think, then tell me about sheep."
"""The script thinks before its words."""
LONG = "sheep " * 3000
"""More tokens than the context has room for."""
ENDLESS, MANY = "endless", 3_500
"""A model that never ends by itself, and the tokens of its answer that is cancelled: seconds of work."""
SHEEP: dict[str, Any] = {
    "title": "Sheep",
    "type": "object",
    "properties": {
        "age": {"type": "integer", "enum": [1, 2, 3]},
        "colour": {"type": "string", "enum": ["white", "black"]},
        "is_tame": {"type": "boolean"},
    },
    "required": ["age", "colour", "is_tame"],
    "additionalProperties": False,
}
"""No string is free: the embedded model rarely ends one."""
PLACES = {"type": "object", "properties": {"at": {"type": "string", "enum": ["hill", "barn"]}}, "required": ["at"]}
LOOK = {
    "type": "function",
    "function": {"name": "look", "description": "Look at a place.", "parameters": PLACES},
}


def address(script: bool = False) -> str:
    """Of the server with the embedded model, or of the one that plays a script."""
    return os.environ["SHEPHERD_SUITE_SCRIPT" if script else "SHEPHERD_SUITE_URL"]


def is_sheep(value: Any) -> bool:
    return (
        set(value) == set(SHEEP["required"])
        and value["age"] in (1, 2, 3)
        and value["colour"] in ("white", "black")
        and type(value["is_tame"]) is bool
    )


def sent(path: str, body: Any = None) -> bytes:
    """What the server answers, without any library between."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address()}{path}", data, headers)) as answer:
        found: bytes = answer.read()
    return found


def measured(name: str) -> float:
    """The sum of the server's metric of this name."""
    lines = sent("/metrics").decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


class Cancelled:
    """`with Cancelled():` a block that leaves an answer of MANY tokens after its first words.

    At its end the server must come to rest with most of the tokens not generated. `async with` leaves the loop free: it
    closes connections.
    """

    def __enter__(self) -> None:
        asked = {"model": ENDLESS, "max_tokens": 300, "messages": [{"role": "user", "content": QUESTION}]}
        whole = json.loads(sent("/v1/chat/completions", asked))
        assert whole["choices"][0]["finish_reason"] == "length", "the model ends by itself"
        self._before = measured("shepherd_generated_tokens_total")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            return
        until = time.monotonic() + 30
        while measured("shepherd_active_requests") and time.monotonic() < until:
            time.sleep(0.01)
        assert not measured("shepherd_active_requests"), "the server still answers: the connection is open"
        n = measured("shepherd_generated_tokens_total") - self._before
        assert 0 < n < MANY / 2, f"the server generated {n:.0f} of {MANY} tokens for an answer that was left"

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.__exit__, *error)


async def cancel(reading: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> None:
    """Start what reads an answer, and cancel it once it has set the event: at the first words."""
    has_begun = asyncio.Event()
    task = asyncio.create_task(reading(has_begun))
    await asyncio.wait({task, asyncio.create_task(has_begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    while not task.done():  # `wait_for` of Python 3.11 loses a cancellation that comes together with a result
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
    assert task.cancelled(), "the answer was whole before it could be left"


def arguments_of(text: str) -> Any:
    """Of a call to `look`."""
    found = json.loads(text)
    assert found["at"] in ("hill", "barn"), text
    return found
