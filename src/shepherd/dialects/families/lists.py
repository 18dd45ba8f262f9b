"""Families that write calls as one JSON list, or one object a line, between two tags or behind one.

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
    Action:                                                                    Command R and R+
    ```json
    [{"tool_name": "roll", "parameters": {"sides": 6}}]
    ```

Apriel's thought begins with "Here are my reasoning steps:", which is a part of it, and ends at
`[BEGIN FINAL RESPONSE]`. Source: the models' chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import OBJECT_LINE, THINK, AnyBody, family, strays
from shepherd.dialects.parse.bodies.header import answer_tags
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.call import Calls, Keys, is_found, read_calls
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import ARGUMENTS, OBJECT, Json, Part, Spelling, json_call, named_call

BODY = partial(JsonBody, keys=Keys(id=("id",)))
ACTIONS = partial(JsonBody, keys=Keys(("tool_name", "name"), ("parameters", "arguments"), ("tool_call_id",)))
CALL = json_call(*OBJECT)
LISTED = Spelling(CALL, before="[", between=", ", after="]")
LINES = Spelling(OBJECT_LINE, before="\n", between="")
TOOL_CALLS = Block("<tool_calls>", ("</tool_calls>",), BODY, spelling=LISTED)
KEYED = replace(LISTED, call=json_call('{"{}": ', ARGUMENTS, "}"))
ACTION = json_call('    {\n        "tool_name": "{}",\n        "parameters": ', ARGUMENTS, "\n    }")
PARAMETERS = json_call('{"name": "{}", "parameters": ', ARGUMENTS, "}")
TOOL_CALL = Block("<tool_call>", ("</tool_call>",), BODY)


def argument(tool: ToolSpec, name: str) -> tuple[Part, ...]:
    """Values are JSON, which Python's form takes, too."""
    return (f"{name}=", Json(tool.parameters["properties"][name]))


def read_doubled(text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """The calls in a list whose objects may have their braces doubled, as Nemotron's own template shows them."""
    calls = read_calls(text, whole=whole)
    if not is_found(calls) and "{{" in text:
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


BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[^{}"]+|.', re.DOTALL)


APRIEL_ANSWER = "[BEGIN FINAL RESPONSE]"
APRIEL_THOUGHT = Thought("Here are my reasoning steps:", (APRIEL_ANSWER,), spoken=True)
COMMAND_R = family(
    "command-r",
    ("Action:\\n```json",),
    # No opener may be the beginning of another. The end of the fence is no closer: it looks like its beginning.
    Block("Action:\n```json", (), ACTIONS, spelling=Spelling(ACTION, before="\n[\n", between=",\n", after="\n]```")),
    *(Block(f"Action:{blank}", (), ACTIONS) for blank in (" ```json", "```json", "\n[", " [")),
    foreign=("<|START_ACTION|>",),
    skips=("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
)
DIALECTS = (
    family(
        "apertus",
        ("<|tools_prefix|>",),
        Block("<|tools_prefix|>", ("<|tools_suffix|>",), BODY, within="anywhere", spelling=KEYED),
        thoughts=(Thought("<|inner_prefix|>", ("<|inner_suffix|>",)),),
    ),
    family(
        "apriel",
        ("<tool_calls>[", APRIEL_ANSWER),
        TOOL_CALLS,
        TOOL_CALL,  # its own template names it once
        thoughts=(APRIEL_THOUGHT, Thought("<thinking>", ("</thinking>",))),
        skips=("[END FINAL RESPONSE]",),
    ),
    COMMAND_R,
    family(
        "granite-3",
        ("<|tool_call|>",),
        Block("<|tool_call|>", (), BODY, within="anywhere", spelling=LISTED),
        TOOL_CALL,
        foreign=("<|/tool|>", "<|/tool_call|>"),
        thoughts=THINK,
        declared=(answer_tags("<response>", "</response>"), strays),
    ),
    family(
        "granite-20b", ("<function_call> ",), Block("<function_call>", (), BODY, spelling=Spelling(CALL, before=" "))
    ),
    family(
        "hunyuan-a13b",
        ("<tool_calls>[",),
        TOOL_CALLS,
        foreign=(APRIEL_ANSWER,),
        thoughts=THINK,
        # With tools its answers begin like the speaker's line of a play.
        declared=(answer_tags("<answer>", "</answer>"), answer_tags("助手："), strays),
    ),
    family(
        "internlm",
        ("<|action_start|>",),
        Block(
            "<|action_start|><|plugin|>",
            ("<|action_end|>",),
            BODY,
            within="anywhere",
            spelling=Spelling(PARAMETERS, before="\n"),
        ),
        Block("<|action_start|> <|plugin|>", ("<|action_end|>",), BODY, within="anywhere"),
    ),
    family(
        "minimax-m1",
        ("<tool_calls>",),
        replace(TOOL_CALLS, spelling=LINES),
        foreign=("<tool_calls>[", APRIEL_ANSWER),
        thoughts=THINK,
    ),
    family(
        "nemotron-v2",
        ("<TOOLCALL>",),
        Block("<TOOLCALL>", ("</TOOLCALL>",), partial(JsonBody, read=read_doubled), spelling=LISTED),
        thoughts=THINK,
    ),
    family(
        "olmo-3",
        ("<function_calls>",),
        Block(
            "<function_calls>",
            ("</function_calls>",),
            AnyBody,
            starts=r"[\w\[{<]",
            spelling=Spelling(named_call("{}(", argument, ")", between=", "), before="\n", between="\n", after="\n"),
        ),
        foreign=("<invoke", "</invoke"),
    ),
    family(
        "phi-4",
        ("<|/tool|>",),
        Block("<|tool_call|>", ("<|/tool_call|>",), BODY, within="anywhere", spelling=Spelling(CALL)),
        Block("functools[", (), BODY),
    ),
)
