"""Functionary: every message names its recipient first (3.2), or calls stand in tags that name the tool (3.1).

    >>>all                                                          3.2
    I will look.>>>look
    {"at": "Oslo"}
    I will look.<function=look>{"at": "Oslo"}</function>            3.1
    <|python_tag|>print(1)

The prompt of 3.2 ends with `>>>`. A message to `python` is a program, not JSON. Functionary 2.5 writes
`<|reserved_special_token_249|>` where 3.2 writes `>>>`. Source: the templates of functionary-medium and -small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, read_named, read_program
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.bodies.text_body import TextBody
from shepherd.dialects.parse.call import Calls, Fault, Found, json_string, read_arguments, read_calls
from shepherd.dialects.parse.markup import Block, MakeBody
from shepherd.dialects.parse.spelling import ARGUMENTS, Spelling, json_call
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.parse.values import find_tool, json_object, json_text, json_value

RECIPIENT = re.compile(r"([A-Za-z_][\w.-]{0,127})")
"""A tool, or `all` for the user."""
LINE_END = re.compile(r"[ \t]{0,8}\r?\n|\s{0,8}(?=\{)")
LINE_END_BEGUN = re.compile(r"[ \t]{0,8}\r?")
BLANKS = re.compile(r"\s{0,64}")
FUNCTION = re.compile(r"""\s{0,8}["']?([\w.:/-]{1,128})["']?\s{0,8}>\s{0,64}(?=\S)""")
FUNCTION_BEGUN = re.compile(r"""\s{0,8}["']?([\w.:/-]{0,128})["']?\s{0,8}(?:>\s{0,64})?""")
PROGRAMS = ("python", "code_interpreter")
ENDS = ("<|eot_id|>", "<|eom_id|>")


def recipient(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of a recipient on a line of its own."""
    name = RECIPIENT.match(text, at)
    if name is None:
        if at == len(text):
            return Header(at) if final else None
        return Header(at, declined=opener)
    line = LINE_END.match(text, name.end())
    if line is None:
        if not LINE_END_BEGUN.fullmatch(text, name.end()):
            return Header(at, declined=opener)
        return cut(text, at, opener, tools) if final else None
    is_declared = find_tool(tools, name[1]) is not None
    if name[1] == "all" and not is_declared:
        return Header(line.end())
    if name[1] in PROGRAMS:
        return Header(line.end(), inside=PROGRAM)
    blanks = BLANKS.match(text, line.end())
    end = blanks.end() if blanks else line.end()
    if end == len(text) and not final and not is_declared:
        return None
    if is_declared or text.startswith("{", end):
        return Header(end if text.startswith("{", end) else line.end(), inside=arguments(name[1]))
    return Header(at, declined=opener)


def bare(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    """A `ReadHeader` of a declared tool's name on a line of its own, with nothing before it."""
    if at == len(text) and not final:
        return None
    is_call = text.startswith("{", at)
    return Header(at, inside=arguments(opener.strip())) if is_call else Header(at, declined=opener)


def names(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """Blocks for calls without their `>>>`, which models leave out behind text that has none either."""
    body = partial(HeaderBody, read=bare)
    return tuple(Block(f"{tool.name}\n", (), body, "line", "never", starts=r"(?!)") for tool in tools)


def cut(text: str, at: int, opener: str, tools: Sequence[ToolSpec]) -> Header:
    name = text[at:].strip()
    if "all".startswith(name):
        return Header(len(text))
    is_tool = any(tool.name.startswith(name) for tool in tools)
    return Header(len(text), inside=arguments(name)) if is_tool else Header(at, declined=opener)


def function(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    tag = FUNCTION.match(text, at)
    if tag is None:
        begun = FUNCTION_BEGUN.fullmatch(text, at)
        if begun and final:
            return Header(len(text), inside=arguments(begun[1]))
        return None if begun else Header(at, declined=opener)
    if text[tag.end()] == "<" and tag.end() + 1 == len(text) and not final:
        return None
    if text[tag.end()] == "<" and not text.startswith("</", tag.end()):
        return Header(at, inside=TaggedBody)
    is_call = text[tag.end()] in '{["`<' or find_tool(tools, tag[1])
    return Header(tag.end(), inside=arguments(tag[1])) if is_call else Header(at, declined=opener)


def arguments(name: str) -> MakeBody:
    return partial(JsonBody, read=partial(read_named, name))


def read_python(text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """The call of Python that runs a program, which models may put into JSON; or the call that the JSON is instead."""
    program = text.strip()
    if program.startswith(("{", '"')):
        for call in (*read_calls(program, tools=tools), *read_arguments("python", program)):
            if isinstance(call, Found) and (call.name == "python" or find_tool(tools, call.name)):
                return (call,)
    value = json_value(program) if program.startswith('"') else ""
    program = json_string(value) if value.startswith('"') else program
    if not program:
        return (Fault("the call holds no program", "python"),)
    found = read_program(find_tool(tools, "python"), program)
    return (found or Found("python", json_object([("code", json_text(program))])),)


PROGRAM = partial(TextBody, read=read_python)


def addressed(name: str, opener: str, mark: str) -> TagDialect:
    """The dialect of the models that write `opener` before every recipient."""
    body, spelling = partial(HeaderBody, read=recipient), Spelling(json_call("{}\n", ARGUMENTS), between=opener)
    block = Block(opener, (), body, "anywhere", "anywhere", mute=True, spelling=spelling)
    return family(name, (mark,), block, skips=ENDS, answer=(f"{opener}all\n", ""), declared=(names,))


FUNCTIONARY = addressed("functionary", ">>>", ">>>all")
FUNCTIONARY_25 = addressed("functionary-2.5", "<|reserved_special_token_249|>", "<|reserved_special_token_249|>")
FUNCTION_TAG, IN_TAG = partial(HeaderBody, read=function), Spelling(json_call("{}>", ARGUMENTS))
FUNCTIONARY_31 = family(
    "functionary-3.1",
    ("<function=", "</function>"),
    Block("<function=", ("</function>",), FUNCTION_TAG, "anywhere", "anywhere", spelling=IN_TAG),
    Block("<|python_tag|>", ENDS, PROGRAM, "anywhere", "anywhere"),
    # The same tag around other insides, or within others.
    foreign=("<parameter", "<tool_call>", "<param", ":tool_call>"),
    skips=ENDS,
    declared=(),
)
