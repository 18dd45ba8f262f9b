"""MiniMax M2 and M3; M1 writes lists of JSON (`lists`).

    <think>A thought.</think>

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </minimax:tool_call>

M2, M2.1, M2.5: strings are raw, all else is JSON. M3 writes a token of its own before every tag, here `¤`, and spells
out objects and arrays as tags:

    <mm:think>A thought.</mm:think>¤<tool_call>
    ¤<invoke name="plot">¤<points>¤<item>1¤</item>¤<item>2¤</item>¤</points>¤</invoke>
    ¤</tool_call>

From the models' own templates.
"""

from __future__ import annotations

from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.nested import NestedBody, spelled
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, Thought
from shepherd.dialects.parse.spelling import Spelling, tagged_call

M3_MARK = "]<]minimax[>["

CALL = tagged_call('<invoke name="{}">\n', '<parameter name="{}">', "</parameter>\n", "</invoke>\n")
CLOSERS = ("</minimax:tool_call>", "</tool_calls>", "</function_calls>")
TAGGED = (
    Block("<minimax:tool_call>", CLOSERS, TaggedBody, starts=r"[<{\[]", spelling=Spelling(CALL, "\n", "")),
    Block("<invoke name=", CLOSERS, TaggedBody, starts="[\"'\\w]", tight=True),
)

MINIMAX_M2 = family(
    "minimax-m2",
    ("<minimax:tool_call>",),
    # M2 sometimes writes as M1 did, or as others do.
    *TAGGED,
    Block("<tool_calls>", CLOSERS, TaggedBody, starts=r"[<{\[]"),
    Block("<function_calls>", CLOSERS, TaggedBody, starts=r"[<{\[]"),
    foreign=(M3_MARK,),
    thoughts=THINK,
)
M3_CALLS = Spelling(spelled(M3_MARK), before="<tool_call>\n", between="", after=M3_MARK)
MINIMAX_M3 = family(
    "minimax-m3",
    (M3_MARK,),
    Block(M3_MARK, ("</tool_call>",), NestedBody, "anywhere", "anywhere", spelling=M3_CALLS),
    *TAGGED,
    thoughts=(Thought("<mm:think>", ("</mm:think>",)),),
)
