"""DeepSeek V3.2 and V4: DeepSeek's markup language.

    <think>A thought.</think>

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

V4 writes `tool_calls` for `function_calls`. Strings are raw, all else is JSON, and the tag tells which. From the
models' own templates. Any tag of the language opens a block, for models write `toolcalls`, or an `invoke` alone.
"""

from __future__ import annotations

from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import strays
from shepherd.dialects.grammar.spelling import Part, Spelling, members, value
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.parse.values import kinds

MARK = "｜DSML｜"
WRAPPERS = ("function_calls", "tool_calls", "toolcalls", "calls")


def call(tool: ToolSpec, *, empty: str) -> tuple[Part, ...]:
    def spell(name: str) -> tuple[Part, ...]:
        allowed = kinds(tool, name)
        is_string = "true" if not allowed or "string" in allowed else "false"
        spelt = value(tool, name, f"</{MARK}parameter>\n")
        return (f'<{MARK}parameter name="{name}" string="{is_string}">', *spelt)

    return (f'<{MARK}invoke name="{tool.name}">\n', *(members(tool, spell) or (empty,)), f"</{MARK}invoke>\n")


def markup(wrapper: str, empty: str) -> Markup:
    """What a version writes that has this tag around its calls, and this between the tags of one without arguments."""
    spelling = Spelling(partial(call, empty=empty), before=f"{wrapper}>\n", between="")
    closers = tuple(f"</{MARK}{word}>" for word in (wrapper, *WRAPPERS))
    block = Block(f"<{MARK}", closers, TaggedBody, starts=r"[a-z]", tight=True, spelling=spelling)
    plain = Block("<function_calls>", ("</function_calls>",), TaggedBody, starts=r"[<{\[]")
    return Markup(thoughts=(Thought("<think>", ("</think>",)),), blocks=(block, plain), declared=strays)


DSML_V3 = TagDialect("deepseek-v3.2", markup("function_calls", ""), marks=(MARK, "function_calls>"))
DSML_V4 = TagDialect("deepseek-v4", markup("tool_calls", "\n"), marks=(MARK,), foreign=("function_calls>",))

DIALECTS = (DSML_V3, DSML_V4)
