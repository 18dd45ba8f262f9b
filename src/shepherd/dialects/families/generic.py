"""The common forms of calls, of models without a protocol or beside their own; for declared tools only.

    {"name": "roll", "parameters": {"sides": 6}}                        bare JSON
    <tool_call>{"name": "roll", "arguments": {"sides": 6}}</tool_call>  JSON in tags
    <function=roll><parameter=sides>6</parameter></function>            Qwen's tags
    [roll(sides=6)]                                                     Python, as Llama 3.2 and 4 may be asked for
    <roll sides="6"/>                                                   a tag of the tool's own name
    <tool_code>print(roll(sides=6))</tool_code>                         code, as Gemini writes it; in every family

Without tools all of this is text, and so are JSON that calls nothing, examples in code fences and HTML (S1, S4, S8).
Plain models and Llama have all of it. So do families with markers of their own, but there bare JSON must begin the
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.bare import BareBody, FenceBody, Fences, unfenced
from shepherd.dialects.parse.bodies.header import Header, HeaderBody
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.own_tag import OwnTagBody
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.bodies.python_body import PythonBody, PythonFenceBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, MakeBody, Markup, Thought, Where
from shepherd.dialects.parse.spelling import ARGUMENTS, Spelling, json_call
from shepherd.dialects.parse.tags import TagDialect

THINK = (Thought("<think>", ("</think>",)),)
NOTHING = r"(?!)"
"""For `Block.starts`: the opener never counts in the middle of a line."""
BARE: Mapping[str, Spelling | None] = {"{": None, "[": None}
MAX_LEAD = 256
CALL_TAGS = ("<function", "<invoke", "<parameter")
NAME = re.compile(r"[\w.:/-]{1,128}")


def notation(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` without a header: the body for the notation that the inside of a block shows by its beginning, for
    models mix what they have learnt (C12). It is JSON, tags, pairs of tags, or Python."""
    start = after_blanks(text, at)
    rest = text[start : start + 200]
    if not rest:
        return Header(at, JsonBody) if final or start - at > MAX_LEAD else None
    if rest[0] == "<":
        begun = any(tag.startswith(rest) for tag in CALL_TAGS)
        return None if begun and not final else Header(at, TaggedBody if rest.startswith(CALL_TAGS) else JsonBody)
    name = NAME.match(rest)
    if name is None:
        return Header(at, JsonBody)
    behind = rest[name.end() :].lstrip()
    if not final and name.end() < 128 and (not behind or "<arg_key>".startswith(behind)):
        return None
    is_pairs, is_python = behind.startswith("<arg_key>"), behind.startswith("(")
    return Header(at, PairsBody if is_pairs else PythonBody if is_python else JsonBody)


def code(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """As `notation`, but Python only calls declared tools: the block is text if it does anything else."""
    header = notation(opener, text, at, final, tools)
    start = after_blanks(text, at)
    is_python = header is not None and text[start : start + 1] not in {"", "<", *BARE}
    return Header(at, PythonFenceBody) if is_python else header


AnyBody: MakeBody = partial(HeaderBody, read=notation)
OBJECT_LINE = json_call('{"name": "{}", "arguments": ', ARGUMENTS, "}\n")
TAGGED = (
    Block("<tool_call>", ("</tool_call>",), AnyBody, starts=r"[{\[<]", spelling=Spelling(OBJECT_LINE, "\n")),
    Block("<function=", ("</function>",), TaggedBody, starts=r"\w", tight=True),
)


def unmarked(
    tools: Sequence[ToolSpec], where: Where = "line", openers: Mapping[str, Spelling | None] = BARE
) -> tuple[Block, ...]:
    """Bare JSON and Python where they may begin, tags of the tools' own names at the start of a line; in code fences
    none of them."""
    if not tools:
        return ()
    fences = Fences()
    json, tag = unfenced(BareBody, fences), unfenced(OwnTagBody, fences)
    python = unfenced(partial(BareBody, python=True), fences)
    block = partial(Block, closers=(), within="never", starts=NOTHING, tight=True)
    return (
        *(block(opener, body=json, where=where, spelling=spelling) for opener, spelling in openers.items()),
        *(block(f"[{tool.name}(", body=python, where=where) for tool in tools),
        *(block(f"<{tool.name}", body=tag) for tool in tools),
        *(block(mark, body=partial(FenceBody, fences=fences), where="anywhere") for mark in ("```", "~~~")),
    )


def coded(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """The tag around code that calls tools, which models of all families write (SCN-13)."""
    body = partial(HeaderBody, read=code)
    return (Block("<tool_code>", ("</tool_code>",), body, starts=r"[\w{\[<]", tight=True),) if tools else ()


def strays(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return (*unspelt(TAGGED), *unmarked(tools, "start")) if tools else ()


def everything(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return (*TAGGED, *unmarked(tools)) if tools else ()


def family(
    name: str,
    marks: tuple[str, ...],
    *blocks: Block,
    foreign: tuple[str, ...] = (),
    stops: tuple[str, ...] = (),
    thinks: bool = False,
    thoughts: tuple[Thought, ...] = (),
    headed: tuple[Thought, ...] = (),
    spelled: tuple[Block, ...] = (),
    skips: tuple[str, ...] = (),
    answer: tuple[str, str] = ("", ""),
    declared: Sequence[Callable[[Sequence[ToolSpec]], tuple[Block, ...]]] = (strays,),
    tuned: Callable[[Markup, str], Markup] = lambda markup, template: markup,
) -> TagDialect:
    """A `TagDialect` with this `Markup`; each of `declared` makes blocks for the tools of a request."""

    def all_declared(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
        return tuple(block for make in (*declared, coded) for block in make(tools))

    markup = Markup(thoughts, headed, blocks, spelled, skips, answer, all_declared)
    return TagDialect(name, markup, marks, foreign, stops, thinks, tuned)


def unspelt(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The same blocks without a spelling: constrained output does not write them."""
    return tuple(replace(block, spelling=None) for block in blocks)
