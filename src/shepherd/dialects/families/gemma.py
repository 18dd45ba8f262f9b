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
from shepherd.dialects.parse.spelling import Closer, Json, OneOf, Part, Spelling, Until
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


Ends = tuple[tuple[Part, ...], ...]
"""What may come behind a place, to the end of the call; each begins with a `str`."""


def call(tool: ToolSpec, *, quote: str) -> tuple[Part, ...]:
    return (f"call:{tool.name}{{", OneOf(object_of(tool, quote, (("}", Closer()),))))


def object_of(tool: ToolSpec, quote: str, ends: Ends) -> Ends:
    """The members of an object, sorted as the template sorts them, and one of its `ends`.

    Made from the last to the first, so that each is shared by all that it may follow.
    """
    required = tool.parameters.get("required", ())
    first = later = ends
    for name in sorted(tool.parameters.get("properties", {}), reverse=True):
        key, *value = member(tool, quote, name, later)
        others: tuple[Ends, Ends] = ((), ()) if name in required else (first, later)
        first, later = ((key, *value), *others[0]), ((f",{key}", *value), *others[1])
    return first


def member(tool: ToolSpec, quote: str, name: str, ends: Ends) -> tuple[str, *tuple[Part, ...]]:
    """One `key:value` and one of its `ends`. What is neither text nor an object of named members is written as JSON.

    A text may hold the quote: it ends where the quote and one of the ends stand.
    """
    schema = tool.parameters.get("properties", {}).get(name, {})
    key = f"{name}:"
    if choices := schema.get("enum"):
        spelt = (f"{quote}{item}{quote}" if isinstance(item, str) else json.dumps(item) for item in choices)
        return (key, OneOf(tuple((choice,) for choice in spelt)), OneOf(ends))
    if schema.get("type") == "object" and schema.get("properties"):
        inner = ToolSpec(name, "", {**tool.parameters, **schema, "required": schema.get("required", [])})
        return (f"{key}{{", OneOf(object_of(inner, quote, tuple((f"}}{end[0]}", *end[1:]) for end in ends))))
    if "string" in kinds(tool, name) or not schema:
        return (f"{key}{quote}", Until(quote, ends))
    return (key, Json(schema), OneOf(ends))


def call_block(opener: str, closer: str, quote: str) -> Block:
    body = partial(LiteralBody, notation=notation(quote))
    spelling = Spelling(partial(call, quote=quote), closes=True)
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
