"""Plain: no tool protocol of its own; thoughts only where the template knows of them.

The dialect of a model whose template no other dialect claims. If tools are declared, it may call them in any common
form (`generic`) or in a form with the markers of another family: a template without tools shows little of the
training of its model (C12). No other text of its output is lost or held back for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.core import ToolSpec
from shepherd.dialects.families import generic, lists, mistral
from shepherd.dialects.families.deepseek import DEEPSEEK_R1, DEEPSEEK_V3
from shepherd.dialects.families.kimi import KIMI
from shepherd.dialects.families.llama import LLAMA
from shepherd.dialects.families.minimax import MINIMAX_M2, MINIMAX_M3
from shepherd.dialects.parse.markup import Block, Markup
from shepherd.dialects.parse.tags import TagDialect

FAMILIES = (LLAMA, *mistral.DIALECTS, MINIMAX_M2, MINIMAX_M3, *lists.DIALECTS, KIMI, DEEPSEEK_R1, DEEPSEEK_V3)
COMMON = {block.opener for block in (*generic.TAGGED, *lists.COMMAND_R.markup.blocks)}  # "Action:" is a word of many
MARKED = {block.opener: block for dialect in FAMILIES for block in generic.unspelt(dialect.markup.blocks)}
OTHERS = tuple(block for opener, block in MARKED.items() if opener not in COMMON)


def declared(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return (*generic.everything(tools), *generic.coded(tools), *OTHERS) if tools else ()


PLAIN = TagDialect(name="plain", markup=Markup(declared=declared))
