"""DeepSeek R1 with its distills, V3 and V3.1: calls in fullwidth markers; thoughts in `<think>`.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>roll
    ```json
    {"sides": 6}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>                                                     R1, V3

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>roll<｜tool▁sep｜>{"sides": 6}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

The distills were not trained on calls: they leave markers out and spell them with ASCII bars, underscores or blanks.
The model makes up what stands between the markers of a tool's output: it is dropped, and a server stops there.
Source: the models' chat templates and cards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import NOTHING, THINK, family, strays
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.bodies.text_body import TextBody
from shepherd.dialects.parse.call import Calls, Fault
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import ARGUMENTS, Spelling, json_call
from shepherd.dialects.parse.tags import TagDialect


def spellings(*words: str) -> tuple[str, ...]:
    """The marker of these words in every spelling, the right one first."""
    joints = (("｜", "▁"), ("｜", "_"), ("｜", " "), ("｜", r"\_"), ("|", "▁"), ("|", "_"))
    return tuple(f"<{bar}{joint.join(words)}{bar}>" for bar, joint in joints)


SECTION, CALL, SEP = spellings("tool", "calls", "begin"), spellings("tool", "call", "begin"), spellings("tool", "sep")
SECTION_END, END = spellings("tool", "calls", "end"), spellings("tool", "call", "end")
OPENERS = (*SECTION, "<｜tool▁calls｜>", *CALL)
PLAIN_SEP = (SEP[0], SEP[-1])
ANY_SEP = "|".join(map(re.escape, SEP))

BODY = partial(
    NamedBody,
    form=Form(
        header=re.compile(rf"(?:[^\s<]*\s*(?:{ANY_SEP})\s*)?(?P<name>[^\s<]+)\s*(?:{ANY_SEP})?"),
        separators=SEP,
        openers=OPENERS,
        ends=END,
        chained=True,
    ),
)


def block(opener: str, spelling: Spelling | None = None) -> Block:
    return Block(opener, (*SECTION_END, *END), BODY, where="anywhere", within="anywhere", spelling=spelling)


def unmarked(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """Calls that begin with their names."""
    return tuple(block(tool.name + sep) for tool in tools for sep in PLAIN_SEP)


def made_up(text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """What a model writes for the output of a tool is dropped, up to its end or to a call."""
    return (Fault("the output of a tool was made up; call the tool", idle=True),)


OUTPUTS = {"<｜tool▁outputs▁begin｜>": "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>": "<｜tool▁output▁end｜>"}


def dialect(name: str, spelling: Spelling, marks: tuple[str, ...], foreign: tuple[str, ...] = ()) -> TagDialect:
    """The dialect of the models that write calls so; all spellings of the markers are read."""
    heads = (*OPENERS[1:], *("function" + sep for sep in SEP))
    output = partial(TextBody, read=made_up)
    outputs = (Block(opener, (end,), output, within="never", starts=NOTHING) for opener, end in OUTPUTS.items())
    blocks = (block(SECTION[0], spelling), *map(block, heads), *outputs)
    declared = (unmarked, strays)
    return family(name, marks, *blocks, foreign=foreign, stops=tuple(OUTPUTS), thoughts=THINK, declared=declared)


FENCED = json_call(f"{CALL[0]}function{SEP[0]}{{}}\n```json\n", ARGUMENTS, f"\n```{END[0]}")
NAMED = json_call(f"{CALL[0]}{{}}{SEP[0]}", ARGUMENTS, END[0])
DEEPSEEK_R1 = dialect("deepseek-r1", Spelling(FENCED, between="\n"), (SECTION[0], "```json"))
DEEPSEEK_V3 = dialect("deepseek-v3.1", Spelling(NAMED, between=""), (SECTION[0],), foreign=("```json",))
