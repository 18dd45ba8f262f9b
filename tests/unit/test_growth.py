"""The work before an answer grows with what is sent, and not with its square: counted in lines of Python, no clock."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.executed import executed

from shepherd.core import Message, Text, ToolCall, ToolResult
from shepherd.dialects.base import Piece
from shepherd.dialects.render.conversation import Capabilities, shaped
from shepherd.dialects.render.frame import Frame, segments
from shepherd.engine.grammar import lark, limits
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.base import decode_json
from shepherd.wire.ollama import chat as ollama
from shepherd.wire.openai import chat
from shepherd.wire.openai.responses import codec as responses

Make = Callable[[int], Callable[[], object]]


def is_linear(make: Callable[[int], Callable[[], object]], n: int = 200) -> bool:
    """Whether four times as much to do takes about four times as long, not sixteen."""
    make(n)()  # what is done once only
    return executed(make(4 * n), "line") < 7 * executed(make(n), "line")


def called_backwards(n: int) -> Callable[[], object]:
    """Many calls without ids, answered from the last one on."""
    calls = [{"function": {"name": f"f{at}", "arguments": {}}} for at in range(n)]
    results = [{"role": "tool", "tool_name": f"f{n - 1 - at}", "content": "y"} for at in range(n)]
    body = {"messages": [{"role": "assistant", "tool_calls": calls}, *results]}
    return lambda: ollama.decode_request(body)


def functions_of_old(n: int) -> Callable[[], object]:
    """Results in the old way, of a function that was called long ago."""
    first = {"role": "assistant", "function_call": {"name": "first", "arguments": "{}"}}
    other = [
        ({"role": "assistant", "function_call": {"name": f"f{at}", "arguments": "{}"}},
         {"role": "function", "name": "first", "content": "x"})
        for at in range(n)
    ]  # fmt: skip
    body = {"messages": [first, *(message for pair in other for message in pair)]}
    return lambda: chat.decode_request(body)


def spoken_in(codec: Any, **fields: Any) -> Make:
    def make(n: int) -> Callable[[], object]:
        told = [{"role": ("user", "assistant")[at % 2], "content": "Hm."} for at in range(n)]
        tools = [
            {"type": "function", "name": f"t{at}", "function": {"name": f"t{at}"}, "input_schema": {}}
            for at in range(min(n, 1000))
        ]
        body = {"messages": told, "input": told, "tools": tools, **fields}
        return lambda: codec.decode_request(body)

    return make


def allowed(n: int) -> Callable[[], object]:
    names = [f"t{at}" for at in range(n)]
    chosen = [{"type": "function", "name": name} for name in reversed(names)]
    body = {
        "input": "Hi",
        "tools": [{"type": "function", "name": name} for name in names],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": chosen},
    }
    return lambda: responses.decode_request(body)


def shaping(caps: Capabilities, role: str) -> Make:
    def make(n: int) -> Callable[[], object]:
        said = [Message("user", (Text("?"),)), *(Message(role, (Text("Hm."),)) for _ in range(n))]  # type: ignore[arg-type]
        return lambda: shaped(said, caps)

    return make


def results_one_by_one(n: int) -> Callable[[], object]:
    calls = tuple(ToolCall(f"c{at}", "f", "{}") for at in range(n))
    results = tuple(ToolResult(f"c{n - 1 - at}", (Text("y"),)) for at in range(n))
    said = [Message.user("?"), Message("assistant", calls), Message("tool", results)]
    return lambda: shaped(said, Capabilities(parallel=False))


def after_results(n: int) -> Callable[[], object]:
    said = [
        Message("assistant", (ToolCall("1", "f", "{}"),)), Message("tool", (ToolResult("1", (Text("y"),)),)),
        *(Message.user("Hm.") for _ in range(n)),
    ]  # fmt: skip
    return lambda: shaped(said, Capabilities(user_after_result=False))


def side_by_side(roles: str) -> Make:
    """Messages between which a template writes nothing that tells them apart."""

    def make(n: int) -> Callable[[], object]:
        said = [Message.user("?"), *(Message(roles, (Text("Hm."),)) for _ in range(n))]  # type: ignore[arg-type]
        pieces = [piece for at in range(n + 1) for piece in (Piece("Hm.", at), Piece(" ", None))]
        return lambda: segments(pieces, said, Frame("<user>", {"user": "</user>"}))

    return make


def values(n: int) -> Callable[[], object]:
    body = json.dumps({"a": ['[{,}]\\"' * 3] * n, "b": [[1, {}]] * n}).encode()
    return lambda: decode_json(body)


def brackets(n: int) -> Callable[[], object]:
    return lambda: lark.lark_to_rules("start: " + "a [" * n + '"x"' + "]" * n)


def letters(n: int) -> Callable[[], object]:
    return lambda: limits.of_regex.__wrapped__("(" + "a" * n + "b{1,9}){1,9}")


def rules(n: int) -> Callable[[], object]:
    return lambda: lark.check(gbnf_to_lark("root ::= r0\n" + "\n".join(f'r{at} ::= "a{at}"' for at in range(n))))


GROWING: dict[str, Make] = {
    "Ollama's calls, answered backwards": called_backwards,
    "results of old functions": functions_of_old,
    "allowed tools, named backwards": allowed,
    "messages and tools of chat": spoken_in(chat),
    "messages and tools of Responses": spoken_in(responses),
    "messages and tools of Anthropic's": spoken_in(anthropic, max_tokens=1),
    "messages of Ollama": spoken_in(ollama, tools=[]),
    "many user messages in a row": shaping(Capabilities(repeats=False), "user"),
    "many system messages in a row": shaping(Capabilities(later_systems=False), "system"),
    "system messages where there are none": shaping(Capabilities(system=False), "system"),
    "calls one by one": results_one_by_one,
    "users behind results": after_results,
    "users in one turn": side_by_side("user"),
    "systems in one turn": side_by_side("system"),
    "values of a body": values,
    "brackets of a grammar": brackets,
    "letters of a pattern": letters,
    "rules of a grammar": rules,
}


@pytest.mark.parametrize("make", GROWING.values(), ids=GROWING)
def test_the_work_grows_with_what_is_sent(make: Make) -> None:
    assert is_linear(make)
