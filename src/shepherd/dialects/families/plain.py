"""Plain: no tool protocol of its own; thoughts only where the template knows of them.

The dialect of a model whose template no other dialect claims. If tools are declared, it may call them in any common
form (`generic`) or in a form with the markers of another family: a template without tools tells little about the
training of its model (C12). No other text of its output is lost or held back for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.core import ToolSpec
from shepherd.dialects.families import deepseek, generic, kimi, lists, llama, minimax, mistral
from shepherd.dialects.parse.markup import Block, Markup
from shepherd.dialects.parse.tags import TagDialect

FAMILIES = (*llama.DIALECTS, *mistral.DIALECTS, *minimax.DIALECTS, *lists.DIALECTS, *kimi.DIALECTS, *deepseek.DIALECTS)
COMMON = {block.opener for block in (*generic.TAGGED, *lists.COMMAND_R.markup.blocks)}  # "Action:" is a word of many
MARKED = {block.opener: block for dialect in FAMILIES for block in generic.unspelt(dialect.markup.blocks)}
OTHERS = tuple(block for opener, block in MARKED.items() if opener not in COMMON)


def declared(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """Every form of a call, for a request that has tools."""
    return (*generic.everything(tools), *OTHERS) if tools else ()


PLAIN = TagDialect(name="plain", markup=Markup(declared=declared))
