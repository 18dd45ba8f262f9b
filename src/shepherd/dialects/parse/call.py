"""The calls that a block's inside spells: strict JSON first, then the repairs that real models need.

Repair happens here only: inside a block whose opening tag marks a call (S4, S19). Arguments are slices of the model's
own text, so that big integers, escapes and key order survive (S6). What cannot be read is a `Fault` with a sentence for
the model, never `{}` and never text (S9).
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in the module, forgotten in typeshed
from typing import NoReturn

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    arguments: str
    """JSON object text."""
    id: str = ""
    """Only from families whose models write ids."""


@dataclass(frozen=True, slots=True)
class Fault:
    error: str
    name: str = ""
    idle: bool = False
    """It needs no answer: it is reported only where the message would be empty otherwise."""


Calls = tuple[Found | Fault, ...]
Read = Callable[[str, Sequence[ToolSpec], bool], Calls]
"""Reads the calls in a text, given the declared tools and whether the text is complete. Never raises."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of the members of a call object; the first one that is there counts."""

    name: tuple[str, ...] = ("name", "function")
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ()


HERMES_KEYS = Keys()
HOW = 'write {"name": ..., "arguments": {...}} as one JSON object'


NO_CALLS = Fault("the list of calls is empty; write a call into it, or answer in words", idle=True)


class Unreadable(ValueError):
    """This text is no call, for the reason given. The readers of calls catch it."""


UNREADABLE = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def read_calls(text: str, *, keys: Keys = HERMES_KEYS, tools: Sequence[ToolSpec] = (), whole: bool = True) -> Calls:
    """The calls in `text`: one for an object, one for each member of an array. Never empty; never raises.

    `whole` is false when the output ended inside of the text.
    """
    text = text.strip()

    def read(candidate: str) -> Calls:
        return tuple([read_call(item, keys, tools) for item in objects(candidate)]) or (NO_CALLS,)

    found = first_readable(text, whole, read)
    if not isinstance(found, str):
        return found
    if not text:
        return (Fault(f"the call is empty; {HOW}"),)
    reason = f"the call is not valid JSON ({found})" if whole else "the output ended inside of the call"
    return (Fault(f"{reason}; {HOW}", glimpsed_name(text, keys)),)


def read_arguments(name: str, text: str, *, call_id: str = "", whole: bool = True) -> Calls:
    """The call of a tool whose name stands outside of the JSON; `text` is the arguments object alone. Never raises."""
    text = text.strip()
    if not text and whole:
        return (Fault(f"the call of {name!r} has no arguments; write them as one JSON object", name),)
    found = first_readable(text, whole, lambda candidate: (arguments_of(name, candidate, call_id),))
    if not isinstance(found, str):
        return found
    reason = f"the arguments are not valid JSON ({found})" if whole else "the output ended inside of the call"
    return (Fault(f"{reason}; write them as one JSON object", name),)


def n_found(calls: Calls) -> int:
    return sum(isinstance(call, Found) for call in calls)


def is_found(calls: Calls) -> bool:
    return n_found(calls) == len(calls)


def first_readable(text: str, whole: bool, read: Callable[[str], Calls]) -> Calls | str:
    """What `read` makes of the first candidate that it can read; else why it cannot read the text as it stands."""
    reason = ""
    for candidate in candidates(text, whole):
        try:
            return read(candidate())
        except UNREADABLE as error:
            reason = reason or str(error)
    return reason


def candidates(text: str, whole: bool) -> Iterator[Callable[[], str]]:
    """Functions that make the texts to try, the likeliest first. They may raise any of `UNREADABLE`."""
    yield lambda: text
    if text.startswith("{{") and text.endswith("}}"):
        text = text[1:-1]
        yield lambda: text
    yield lambda: json_of_python(text)
    if whole:
        yield lambda: text + "}"


def objects(text: str) -> Iterator[str]:
    """The text of each object: `text` itself, or the members of the array that it is. Raises: `ValueError`."""
    if not text.startswith("["):
        yield text
        return
    at = after_space(text, 1)
    while text[at : at + 1] != "]":
        stop = LENIENT.raw_decode(text, at)[1]
        yield text[at:stop]
        at = after_space(text, stop)
        if text[at : at + 1] == ",":
            at = after_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise Unreadable(f"a comma is missing at character {at}")


def read_call(text: str, keys: Keys, tools: Sequence[ToolSpec]) -> Found | Fault:
    """The call that one object spells. Raises: `ValueError` when it is no JSON object."""
    members = sliced(text)
    inner = members.get("function", "")
    if inner.startswith("{"):  # the shape of OpenAI's API: {"type": "function", "function": {...}}
        return read_call(inner, keys, tools)
    name = next((json_string(members[key]) for key in keys.name if key in members), "")
    if not name:
        (key, value), *more = members.items() or [("", "")]
        if not more and value.startswith("{") and key not in {*keys.arguments, *keys.id, *keys.name, "type"}:
            return arguments_of(key, value, "")  # {"get_weather": {...}}
        return Fault(f"the call names no tool; {HOW}")
    call_id = next((json_string(members[key]) for key in keys.id if key in members), "")
    written = next((members[key] for key in keys.arguments if key in members), None)
    if written is None:
        needed = next((tool.parameters.get("required") for tool in tools if tool.name == name), None)
        if needed or members.keys() - {*keys.name, *keys.id, "type"}:
            return Fault(f'the call of {name!r} has no "{keys.arguments[0]}" object; {HOW}', name)
        written = "{}"
    try:
        return arguments_of(name, written, call_id)
    except (ValueError, RecursionError) as error:
        return Fault(f'"{keys.arguments[0]}" of {name!r} is not valid JSON ({error})', name)


def arguments_of(name: str, written: str, call_id: str) -> Found | Fault:
    """The call with these arguments: a JSON object, a JSON string that spells one, or null. Raises: `ValueError`."""
    if written.startswith('"'):
        written = json_string(written).strip() or "{}"
    elif written == "null":
        written = "{}"
    if not written.startswith("{"):
        return Fault(f"the arguments of {name!r} must be a JSON object", name)
    return Found(name, strict(written), call_id)


def sliced(text: str) -> dict[str, str]:
    """The members of the object that `text` is, each as the text of its value. Raises: `ValueError`."""
    if not text.startswith("{"):
        raise Unreadable("it is not an object")
    members: dict[str, str] = {}
    at = after_space(text, 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise Unreadable(f"a key must stand at character {at}")
        key, at = scanstring(text, at + 1, False)
        at = after_space(text, at)
        if text[at : at + 1] != ":":
            raise Unreadable(f"a colon is missing at character {at}")
        at = after_space(text, at + 1)
        stop = LENIENT.raw_decode(text, at)[1]
        members[key] = text[at:stop]
        at = after_space(text, stop)
        if text[at : at + 1] == ",":
            at = after_space(text, at + 1)
        elif text[at : at + 1] != "}":
            raise Unreadable(f"a comma is missing at character {at}")
    if text[at + 1 :].strip():
        raise Unreadable(f"something follows the object at character {at + 1}")
    return members


def strict(text: str) -> str:
    """The object text, with raw control characters inside of its strings escaped. Raises: `ValueError`."""
    try:
        STRICT.decode(text)
    except json.JSONDecodeError:
        text = JSON_STRING.sub(lambda string: CONTROL.sub(lambda char: json.dumps(char[0])[1:-1], string[0]), text)
        STRICT.decode(text)
    return text


def json_of_python(text: str) -> str:
    """The JSON of a Python literal; JSON's own constants may be mixed in. Raises: `ValueError`, `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown escapes such as "\\d" are the model's, not ours
        tree = ast.parse(text, mode="eval")
    value = ast.literal_eval(Constants().visit(tree))
    # Python spells an emoji of two escapes as two halves; UTF-16 puts them together.
    return json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Constants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        words: dict[str, bool | None] = {"true": True, "false": False, "null": None}
        return ast.copy_location(ast.Constant(words[node.id]), node) if node.id in words else node


def glimpsed_name(text: str, keys: Keys) -> str:
    """The tool's name at the head of a broken call; empty when it is not there."""
    named = "|".join(map(re.escape, keys.name))
    head = re.match(rf"""[\s\[{{]*(?:{MEMBER}\s*,\s*)*?["'](?:{named})["']\s*:\s*["']([^"'\\]+)["']""", text)
    return head[1] if head else ""


def json_string(text: str) -> str:
    """The string that a JSON value is; empty when it is no string."""
    if not text.startswith('"'):
        return ""
    string, stop = scanstring(text, 1, False)
    return str(string if stop == len(text) else LENIENT.decode(text))  # which skips blanks, or raises


def after_space(text: str, at: int) -> int:
    while text[at : at + 1] in SPACE and at < len(text):
        at += 1
    return at


def no_constant(word: str) -> NoReturn:
    raise Unreadable(f"{word} is not JSON")


SPACE = frozenset(" \t\n\r")
MEMBER = r'"\w+"\s*:\s*"[^"\\]*"'
JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
CONTROL = re.compile(r"[\x00-\x1f]")
# Numbers stay text: their values do not matter here, and int() refuses more than 4300 digits.
LENIENT = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=no_constant)
STRICT = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant)
