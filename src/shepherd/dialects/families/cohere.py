"""Cohere: control tokens around everything, and citations. Spoken by Command R7B, Command A and their kin.

    <|START_THINKING|>It is about the weather.<|END_THINKING|><|START_ACTION|>[
        {"tool_call_id": "0", "tool_name": "look", "parameters": {"at": "Oslo"}}
    ]<|END_ACTION|>
    <|START_RESPONSE|>It <co>rains</co: 0:[1]>.<|END_RESPONSE|>

Later models write `<|START_TEXT|>` for `<|START_RESPONSE|>`. Of a citation the text stays. Source: the templates of
c4ai-command-r7b-12-2024 and of North Mini Code (Cohere2 MoE). Not here: Command R and R+ (`lists`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import family
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, ReadHeader, at_once, before
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.call import Keys
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import ARGUMENTS, Pattern, Spelling, json_call
from shepherd.dialects.parse.tags import TagDialect

KEYS = Keys(name=("tool_name", "name"), arguments=("parameters", "arguments"), id=("tool_call_id", "id"))
BODY = partial(JsonBody, keys=KEYS)
START, END = "<|START_ACTION|>", "<|END_ACTION|>"
THINKING = Thought("<|START_THINKING|>", ("<|END_THINKING|>",))
ENDS = ("<|END_RESPONSE|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>")
CITED = re.compile(r"[^<>\n]{0,200}>")
CITED_BEGUN = re.compile(r"[^<>\n]{0,200}")
CITED_CUT = re.compile(r"[\s\d:,\[\]]*")
"""The names of documents and passages: no text where the output ends within a tag."""


def citation(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
    end = CITED.match(text, at)
    if end:
        return Header(end.end())
    if final and CITED_CUT.fullmatch(text, at):
        return Header(len(text))
    return None if not final and CITED_BEGUN.fullmatch(text, at) else Header(at, declined=opener)


# `<co>span</co: 0:[1]>`, and `<co: 0>span</co: 0>` as Command R writes it.
TAGS: dict[str, ReadHeader] = dict.fromkeys(("<|START_RESPONSE|>", "<|START_TEXT|>", "<co>"), at_once)
TAGS |= {"<co:": citation, "</co:": citation, "</co>": at_once}
CALL = json_call('{"tool_call_id": "', Pattern("[0-9]{1,2}"), '", "tool_name": "{}", "parameters": ', ARGUMENTS, "}")
CALLS = Spelling(CALL, before="[\n    ", between=",\n    ", after="\n]")
BLOCKS = (
    Block(START, (END,), partial(HeaderBody, read=before(BODY)), "anywhere", "anywhere", spelling=CALLS),
    *(
        Block(tag, (), partial(HeaderBody, read=read), "anywhere", "anywhere", unseen="co" in tag)
        for tag, read in TAGS.items()
    ),
)


def dialect(name: str, answer: tuple[str, str], foreign: tuple[str, ...] = ()) -> TagDialect:
    """The dialect of the models that put these tags around an answer; all of them are read."""
    marks = (START, answer[0])
    return family(name, marks, *BLOCKS, foreign=foreign, thoughts=(THINKING,), skips=ENDS, answer=answer, declared=())


COHERE = dialect("cohere", ("<|START_RESPONSE|>", "<|END_RESPONSE|>"))
COHERE_2 = dialect("cohere-2", ("<|START_TEXT|>", "<|END_TEXT|>"), ("<|START_RESPONSE|>",))
