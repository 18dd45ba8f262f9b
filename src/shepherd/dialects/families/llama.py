"""Llama 3.1 to 3.3: calls in bare JSON, or behind `<|python_tag|>` as JSON, as `tool.call(...)` or as mere code.

    {"name": "roll", "parameters": {"sides": 6}}
    <|python_tag|>{"name": "roll", "parameters": {"sides": 6}}; {"name": "roll", "parameters": {"sides": 20}}
    <|python_tag|>brave_search.call(query="how to roll dice")
    <|python_tag|>import random
    print(random.randint(1, 6))<|eom_id|>

Bare JSON counts at the start of a line if it names a declared tool (`generic`); code is a call of the interpreter.
Source: the models' chat templates and Meta's pages on prompt formats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families import generic
from shepherd.dialects.parse.bodies.header import Header, HeaderBody
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.python_body import read_python_calls
from shepherd.dialects.parse.bodies.text_body import TextBody
from shepherd.dialects.parse.call import Calls, Fault, Found, Keys
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import ARGUMENTS, Spelling, json_call
from shepherd.dialects.parse.values import json_object, json_text

INTERPRETERS = ("code_interpreter", "ipython", "python", "python_interpreter", "execute_python", "run_python")
CALL = re.compile(r"\s*\[?\s*([\w.]+)\s*\(")
FENCED = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
KEYS = Keys(arguments=("parameters", "arguments"), id=("id",))


def code_call(code: str, tools: Sequence[ToolSpec]) -> Found:
    tool = next((tool for name in INTERPRETERS for tool in tools if tool.name == name), None)
    parameters = list(tool.parameters.get("properties", ())) if tool else []
    key = "code" if "code" in parameters or len(parameters) != 1 else parameters[0]
    fenced = FENCED.fullmatch(code)
    text = fenced[1] if fenced else code.strip()
    return Found(tool.name if tool else INTERPRETERS[0], json_object([(key, json_text(text))]))


def read_code(text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """Calls of built-in tools, of declared ones in Python's form, or of the interpreter."""
    first = CALL.match(text)
    if first and (first[1].endswith(".call") or any(tool.name == first[1] for tool in tools)):
        calls = read_python_calls(text, whole=whole)
        return tuple(replace(call, name=call.name.removesuffix(".call")) for call in calls)
    if not text.strip():
        return (Fault("the call is empty; write a call or code"),)
    return (code_call(text, tools),)


def json_or_code(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` without a header, for what stands behind `<|python_tag|>`."""
    first = after_blanks(text, at)
    second = after_blanks(text, first + 1)
    if second >= len(text) and not final and text[first : first + 1] in {"", "["}:
        return None
    bracket = text[second : second + 1] if text[first : first + 1] == "[" else text[first : first + 1]
    return Header(at, partial(JsonBody, keys=KEYS) if bracket == "{" else partial(TextBody, read=read_code))


PYTHON_TAG = partial(HeaderBody, read=json_or_code)


CODE = partial(Block, body=PYTHON_TAG, starts=r"[\w{\[]", tight=True)
BARE = {'{"name": "': Spelling(json_call('{}", "parameters": ', ARGUMENTS, "}")), **generic.BARE}
LLAMA = generic.family(
    "llama-3",
    # The role of tool results in its prompts, and the key of arguments in its calls.
    ("ipython", '"parameters": '),
    CODE("<|python_tag|>", ("<|eom_id|>", "<|eot_id|>")),
    CODE("<|python_start|>", ("<|python_end|>",)),
    *generic.unspelt(generic.TAGGED),
    foreign=("<function=", "<tool_call>", "<TOOLCALL>", "functools[", ">>>all"),
    declared=(partial(generic.unmarked, openers=BARE),),
)
