"""Google's Gemma 2 to 4, and FunctionGemma.

Gemma 4 has channels for thoughts and a notation of its own for calls; a string stands between tokens:

    <|channel>thought
    Rome it is.<channel|>Let me look.<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>

The opener of a channel comes twice at times, without a name, or with another one, and also in the middle of an answer.
FunctionGemma writes the same calls in other tags. Gemma 2 and 3 were taught no protocol; their users ask for Python in
a fence of its own, which counts where it calls declared tools; so do the common forms, as with all plain models.
Source: the models' templates and Google's pages about function calling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import NOTHING, everything, family, strays
from shepherd.dialects.parse.bodies.gemma_body import QUOTE, notation
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, at_once
from shepherd.dialects.parse.bodies.literal_body import LiteralBody
from shepherd.dialects.parse.bodies.python_body import PythonFenceBody
from shepherd.dialects.parse.markup import Block, MakeBody, Thought
from shepherd.dialects.parse.spelling import Json, Maybe, OneOf, Part, Spelling, members, value
from shepherd.dialects.parse.values import kinds

CLOSER = "<channel|>"
THOUGHTS = frozenset({"thought", "thoughts", "thinking", "think", "reasoning", "analysis"})
ANSWERS = frozenset({"answer", "commentary", "content", "final", "message", "output", "response", "text"})
WORD = re.compile(r"[ \t]{0,8}([a-z]{0,12})(?![a-z])\n?", re.IGNORECASE)
WORD_BEGUN = re.compile(r"[ \t]{0,8}[a-z]{0,12}", re.IGNORECASE)
CALL = re.compile(r"\s{0,64}(?:call\s{0,8}:|[\w.:-]{1,128}(?:\(|\s{0,8}\{)|[{\[])")
CALL_BEGUN = re.compile(r"\s{0,64}[\w.:-]{0,128}\s{0,8}")


def read_channel(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of a channel: its name says what it holds; without a known name it is the answer."""
    if not final and WORD_BEGUN.fullmatch(text, at):
        return None
    word = WORD.match(text, at)
    if word and word[1].lower() in THOUGHTS:
        return Header(word.end(), then=Thought(opener + word[0], (CLOSER,)))
    return Header(word.end() if word and word[1].lower() in ANSWERS else at)


def read_call(
    opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec], *, body: MakeBody
) -> Header | None:
    """A `ReadHeader` of the opener of a call; if no call follows, the text speaks of the opener."""
    if text.startswith(opener, at):
        return Header(at)  # written twice
    if CALL.match(text, at):
        return Header(at, inside=body)
    if CALL_BEGUN.fullmatch(text, at) or opener.startswith(text[at:]):
        return Header(at, inside=body) if final else None
    return Header(at, declined=opener)


def call(tool: ToolSpec, *, quote: str) -> tuple[Part, ...]:
    return (f"call:{tool.name}{{", *sorted_members(tool, quote), "}")


def sorted_members(tool: ToolSpec, quote: str) -> tuple[Part, ...]:
    named, required = sorted(tool.parameters.get("properties", {})), tool.parameters.get("required", ())
    spell = partial(member, tool, quote)
    first = next((at for at, name in enumerate(named) if name in required), None)
    if first is None:
        return members(tool.parameters, spell, between=",")
    before = (Maybe((*spell(name), ",")) for name in named[:first])
    behind = ((",", *spell(name)) for name in named[first + 1 :])
    wanted = zip(named[first + 1 :], behind, strict=True)
    after = (parts if name in required else (Maybe(parts),) for name, parts in wanted)
    return (*before, *spell(named[first]), *(part for parts in after for part in parts))


def member(tool: ToolSpec, quote: str, name: str) -> tuple[Part, ...]:
    """One `key:value`; what is neither text nor an object of named members is written as JSON."""
    schema = tool.parameters.get("properties", {}).get(name, {})
    key = f"{name}:"
    if choices := schema.get("enum"):
        spelt = (f"{quote}{item}{quote}" if isinstance(item, str) else json.dumps(item) for item in choices)
        return (key, OneOf(tuple((choice,) for choice in spelt)))
    if schema.get("type") == "object" and schema.get("properties"):
        inner = ToolSpec(name, "", {**tool.parameters, **schema, "required": schema.get("required", [])})
        return (f"{key}{{", *sorted_members(inner, quote), "}")
    if "string" in kinds(tool, name) or not schema:
        return (f"{key}{quote}", *value(tool, name, quote))
    return (key, Json(schema))


def call_block(opener: str, closer: str, quote: str) -> Block:
    body = partial(LiteralBody, notation=notation(quote))
    spelling = Spelling(partial(call, quote=quote))
    reader = partial(HeaderBody, read=partial(read_call, body=body))
    return Block(opener, (closer,), reader, "anywhere", "anywhere", spelling=spelling)


def unmarked(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    body, block = partial(LiteralBody, notation=notation(QUOTE)), partial(Block, within="never", starts=NOTHING)
    begun = (f"call:{tool.name}{{" for tool in tools)
    return tuple(block(opener, ("<tool_call|>",), partial(body, begun=opener)) for opener in begun)


def fenced(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return (Block("```tool_code", ("```",), PythonFenceBody, within="never", starts=NOTHING),) if tools else ()


GEMMA4 = family(
    "gemma4",
    (CLOSER,),
    call_block("<|tool_call>", "<tool_call|>", QUOTE),
    Block("<|channel>", (CLOSER,), partial(HeaderBody, read=read_channel), "anywhere", "anywhere"),
    Block(f"thought\n{CLOSER}", (), partial(HeaderBody, read=at_once), "start", within="never"),
    stops=("<|tool_response>",),
    thinks=True,
    headed=(Thought("<|channel>thought\n", (CLOSER,)),),
    skips=(CLOSER, "<|tool_response>", "<tool_response|>", "<turn|>"),
    declared=(unmarked, strays),
)
FUNCTION_GEMMA = family(
    "function-gemma",
    ("<start_function_call>",),
    call_block("<start_function_call>", "<end_function_call>", "<escape>"),
    stops=("<start_function_response>",),
)
GEMMA = family(
    "gemma",
    ("<start_of_turn>",),
    # Fine-tunes have protocols that the original lacks.
    foreign=("tool_call", "TOOL_CALL", "function_call", "<function", "<|tool"),
    declared=(fenced, everything),
)
