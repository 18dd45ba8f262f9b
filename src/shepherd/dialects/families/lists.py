"""Families that write their calls as one JSON list, or one object a line, between two tags or behind one.

    <tool_calls>[{"name": "roll", "arguments": {"sides": 6}}]</tool_calls>     Apriel, Hunyuan A13B
    <tool_calls>                                                               MiniMax-M1
    {"name": "roll", "arguments": {"sides": 6}}
    </tool_calls>
    <|action_start|><|plugin|>                                                 InternLM 2 and 3
    {"name": "roll", "parameters": {"sides": 6}}<|action_end|>
    <function_call> {"name": "roll", "arguments": {"sides": 6}}                Granite 20B
    <function_calls>                                                           OLMo 3, in Python's form
    roll(sides=6)
    </function_calls>
    <TOOLCALL>[{"name": "roll", "arguments": {"sides": 6}}]</TOOLCALL>         Nemotron Nano v2, Llama-Nemotron
    <|tools_prefix|>[{"roll": {"sides": 6}}]<|tools_suffix|>                   Apertus; thoughts in <|inner_prefix|>
    <|tool_call|>[{"name": "roll", "arguments": {"sides": 6}}]                 Granite 3; answers in <response>
    <|tool_call|>{"name": "roll", "arguments": {"sides": 6}}<|/tool_call|>     Phi-4-mini
    functools[{"name": "roll", "arguments": {"sides": 6}}]                    FireFunction
    Action:                                                                    Command R and R+
    ```json
    [{"tool_name": "roll", "parameters": {"sides": 6}}]
    ```

Apriel thinks aloud: its thought begins with "Here are my reasoning steps:", which is a part of it, and ends at
`[BEGIN FINAL RESPONSE]`. Source: the models' chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Json, Part, Spelling, members
from shepherd.dialects.parse.bodies.answer import answer_tags
from shepherd.dialects.parse.bodies.chosen import AnyBody
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.call import Fault, Found, Keys, read_calls
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect

THINK = Thought("<think>", ("</think>",))
IDS = Keys(id=("id",))


def call(tool: ToolSpec) -> tuple[Part, ...]:
    return (f'{{"name": "{tool.name}", "arguments": ', Json(tool.parameters), "}")


def keyed(tool: ToolSpec) -> tuple[Part, ...]:
    return (f'{{"{tool.name}": ', Json(tool.parameters), "}")


def action(tool: ToolSpec) -> tuple[Part, ...]:
    return (f'    {{\n        "tool_name": "{tool.name}",\n        "parameters": ', Json(tool.parameters), "\n    }")


def parametrised(tool: ToolSpec) -> tuple[Part, ...]:
    return (f'{{"name": "{tool.name}", "parameters": ', Json(tool.parameters), "}")


def python(tool: ToolSpec) -> tuple[Part, ...]:
    """Values are JSON, which Python's form takes, too."""

    def argument(name: str) -> tuple[Part, ...]:
        return (f"{name}=", Json(tool.parameters["properties"][name]))

    return (f"{tool.name}(", *members(tool, argument, between=", "), ")")


def line(tool: ToolSpec) -> tuple[Part, ...]:
    return (*call(tool), "\n")


LISTED = Spelling(call, before="[", between=", ", after="]")
BODY = partial(JsonBody, keys=IDS)
TOOL_CALLS = Block("<tool_calls>", ("</tool_calls>",), BODY, spelling=LISTED)


def with_strays(
    declared: Callable[[Sequence[ToolSpec]], tuple[Block, ...]],
) -> Callable[[Sequence[ToolSpec]], tuple[Block, ...]]:
    """Both: what this declares, and what any family writes now and then."""
    return lambda tools: (*declared(tools), *strays(tools))


APRIEL = TagDialect(
    name="apriel",
    markup=Markup(
        thoughts=(
            Thought("Here are my reasoning steps:", ("[BEGIN FINAL RESPONSE]",), spoken=True),
            Thought("<thinking>", ("</thinking>",)),
        ),
        # Its own template speaks of <tool_call> once.
        blocks=(TOOL_CALLS, Block("<tool_call>", ("</tool_call>",), BODY)),
        skips=("[END FINAL RESPONSE]",),
        declared=strays,
    ),
    marks=("<tool_calls>[", "[BEGIN FINAL RESPONSE]"),
)

HUNYUAN = TagDialect(
    name="hunyuan-a13b",
    markup=Markup(
        thoughts=(THINK,),
        blocks=(TOOL_CALLS,),
        # With tools its answers begin like the speaker's line of a play.
        declared=lambda tools: (
            *answer_tags("<answer>", "</answer>")(tools),
            *answer_tags("助手：", "")(tools),
            *strays(tools),
        ),
    ),
    marks=("<tool_calls>[",),
    foreign=("[BEGIN FINAL RESPONSE]",),
)

MINIMAX_M1 = TagDialect(
    name="minimax-m1",
    markup=Markup(
        thoughts=(THINK,),
        blocks=(
            Block("<tool_calls>", ("</tool_calls>",), BODY, spelling=Spelling(line, before="\n", between="", after="")),
        ),
        declared=strays,
    ),
    marks=("<tool_calls>",),
    foreign=("<tool_calls>[", "[BEGIN FINAL RESPONSE]"),
)


def read_doubled(text: str, whole: bool) -> tuple[Found | Fault, ...]:
    """The calls in a list whose objects may have their braces doubled, as Nemotron's own template shows them."""
    calls = read_calls(text, whole=whole)
    if any(isinstance(call, Fault) for call in calls) and DOUBLED.search(text):
        return read_calls(single_braces(text), whole=whole)
    return calls


def single_braces(text: str) -> str:
    """The text with `{{...}}` as `{...}`, wherever two braces begin an object, but not in strings."""
    kept: list[str] = []
    doubled: list[bool] = []  # for each open brace
    for piece in BRACE.findall(text):
        if piece == "{":
            doubled.append(bool(kept) and kept[-1] == "{")
            if doubled[-1]:
                continue
        elif piece == "}" and doubled and doubled.pop():
            continue
        kept.append(piece)
    return "".join(kept)


DOUBLED = re.compile(r"\{\{")
BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[^{}"]+|.', re.DOTALL)

NEMOTRON = TagDialect(
    name="nemotron-v2",
    markup=Markup(
        thoughts=(THINK,),
        blocks=(Block("<TOOLCALL>", ("</TOOLCALL>",), partial(JsonBody, read=read_doubled), spelling=LISTED),),
        declared=strays,
    ),
    marks=("<TOOLCALL>",),
)

APERTUS = TagDialect(
    name="apertus",
    markup=Markup(
        thoughts=(Thought("<|inner_prefix|>", ("<|inner_suffix|>",)),),
        blocks=(
            Block(
                "<|tools_prefix|>",
                ("<|tools_suffix|>",),
                BODY,
                within="anywhere",
                spelling=Spelling(keyed, before="[", between=", ", after="]"),
            ),
        ),
        declared=strays,
    ),
    marks=("<|tools_prefix|>",),
)

GRANITE = TagDialect(
    name="granite-3",
    markup=Markup(
        thoughts=(THINK,),
        blocks=(
            Block("<|tool_call|>", (), BODY, within="anywhere", spelling=LISTED),
            Block("<tool_call>", ("</tool_call>",), BODY),
        ),
        declared=with_strays(answer_tags("<response>", "</response>")),
    ),
    marks=("<|tool_call|>",),
    foreign=("<|/tool|>", "<|/tool_call|>"),
)

PHI = TagDialect(
    name="phi-4",
    markup=Markup(
        blocks=(
            Block("<|tool_call|>", ("<|/tool_call|>",), BODY, within="anywhere", spelling=Spelling(call)),
            Block("functools[", (), BODY),
        ),
        declared=strays,
    ),
    marks=("<|/tool|>",),
)

FIREFUNCTION = TagDialect(
    name="firefunction",
    markup=Markup(
        blocks=(Block("functools[", (), BODY, spelling=Spelling(call, between=", ", after="]")),),
        declared=strays,
    ),
    marks=("functools[",),
)

ACTIONS = partial(JsonBody, keys=Keys(("tool_name", "name"), ("parameters", "arguments"), ("tool_call_id",)))
COMMAND_R = TagDialect(
    name="command-r",
    markup=Markup(
        # No opener may be the beginning of another. The end of the fence is no closer: it looks like its beginning.
        blocks=(
            Block(
                "Action:\n```json",
                (),
                ACTIONS,
                spelling=Spelling(action, before="\n[\n", between=",\n", after="\n]```"),
            ),
            *(Block(f"Action:{blank}```json", (), ACTIONS) for blank in (" ", "")),
            *(Block(f"Action:{blank}[", (), ACTIONS) for blank in ("\n", " ")),
        ),
        declared=strays,
    ),
    marks=("Action:\\n```json",),
    foreign=("<|START_ACTION|>",),
)

PLUGIN = partial(Block, closers=("<|action_end|>",), body=BODY, within="anywhere")
INTERNLM = TagDialect(
    name="internlm",
    markup=Markup(
        blocks=(
            PLUGIN("<|action_start|><|plugin|>", spelling=Spelling(parametrised, before="\n")),
            PLUGIN("<|action_start|> <|plugin|>"),
        ),
        declared=strays,
    ),
    marks=("<|action_start|>",),
)

GRANITE_20B = TagDialect(
    name="granite-20b",
    markup=Markup(blocks=(Block("<function_call>", (), BODY, spelling=Spelling(call, before=" ")),), declared=strays),
    marks=("<function_call> ",),
)

OLMO = TagDialect(
    name="olmo-3",
    markup=Markup(
        blocks=(
            Block(
                "<function_calls>",
                ("</function_calls>",),
                AnyBody,
                starts=r"[\w\[{<]",
                spelling=Spelling(python, before="\n", between="\n", after="\n"),
            ),
        ),
        declared=strays,
    ),
    marks=("<function_calls>",),
    foreign=("<invoke", "</invoke"),
)

DIALECTS = (
    *(APERTUS, APRIEL, COMMAND_R, FIREFUNCTION, GRANITE, GRANITE_20B, HUNYUAN, INTERNLM, MINIMAX_M1, NEMOTRON, OLMO),
    PHI,
)
