"""Kimi K3: sections in XTML, tags of which only `<|open|>`, `<|close|>` and `<|sep|>` are control tokens.

    <|open|>think<|sep|>It is about the weather.<|close|>think<|sep|>
    <|open|>response<|sep|>I will look.<|close|>response<|sep|>
    <|open|>tools<|sep|><|open|>call tool="look" index="1"<|sep|>
    <|open|>argument key="at" type="string"<|sep|>Oslo<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>

(No line breaks between tags.) The prompt opens the thought, or the response; the model may go to another section at
once. Source: the model's template.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody
from shepherd.dialects.parse.bodies.xtml import ENDS, OPEN, Tag, XtmlBody, read_tag
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import Part, Pattern, Spelling, members, resolved, value

TOOLS_END = "<|close|>tools<|sep|>"
RESPONSE, RESPONSE_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
TYPES |= {"object": "object", "array": "array"}


def section(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    found = read_tag(opener, text, at)
    if isinstance(found, Tag):
        return Header(found.stop)
    if not found:
        return Header(at, declined=opener)
    if not final:
        return None
    return Header(at if text[at : at + 1].isalnum() else len(text))  # text without the end of the tag before it


def call(tool: ToolSpec) -> tuple[Part, ...]:
    def spell(name: str) -> tuple[Part, ...]:
        parts = value(tool, name, "<|close|>argument<|sep|>")
        return (f'<|open|>argument key="{escaped(name)}" type="', type_of(tool, name), '"<|sep|>', *parts)

    head = (f'<|open|>call tool="{escaped(tool.name)}" index="', Pattern("[1-9][0-9]?"), '"<|sep|>')
    return (*head, *members(tool.parameters, spell), "<|close|>call<|sep|>")


def type_of(tool: ToolSpec, name: str) -> Part:
    schema = resolved(tool, tool.parameters.get("properties", {}).get(name, {}))
    known = TYPES.get(str(schema.get("type")))
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices and all(isinstance(choice, str) for choice in choices):
        known = "string"
    # Never a string where the schema leaves it open: a string stands without quotes.
    return known or Pattern("number|boolean|null|object|array")


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


SECTION = partial(HeaderBody, read=section)
XTML = partial(Block, closers=(TOOLS_END,), body=XtmlBody)
KIMI_K3 = family(
    "kimi-k3",
    ("<|open|>", "<|close|>", "<|sep|>"),
    *(XTML(OPEN + name, where="anywhere", within="anywhere") for name in ("tools", "call")),
    *(Block(OPEN + name, (), SECTION, "anywhere", "anywhere") for name in ("response", "message")),
    stops=tuple(f'{OPEN}message role="{role}"' for role in ("user", "system", "tool")),
    thoughts=(Thought("<|open|>think<|sep|>", ("<|close|>think<|sep|>", *ENDS)),),
    spelled=(
        XTML(
            f"{RESPONSE}{RESPONSE_END}{OPEN}tools<|sep|>",
            where="never",
            within="never",
            spelling=Spelling(call, between=""),
        ),
        XTML(
            f"{OPEN}tools", where="anywhere", within="anywhere", spelling=Spelling(call, before="<|sep|>", between="")
        ),
    ),
    skips=(RESPONSE_END, "<|close|>call<|sep|>", "<|close|>argument<|sep|>", "<|close|>think<|sep|>", *ENDS),
    answer=(RESPONSE, f"{RESPONSE_END}<|close|>message<|sep|>"),
    declared=(),
)
