"""DeepSeek V3.2 and V4: DeepSeek's markup language.

    <think>A thought.</think>

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

V4 writes `tool_calls` for `function_calls`. Strings are raw, all else is JSON, and the tag says which. From the
models' own templates. Any tag of the language opens a block, for models write `toolcalls`, or an `invoke` alone.
"""

from __future__ import annotations

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import Part, Spelling, named_call, value
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.parse.values import kinds

MARK = "｜DSML｜"
WRAPPERS = ("function_calls", "tool_calls", "toolcalls", "calls")


def parameter(tool: ToolSpec, name: str) -> tuple[Part, ...]:
    allowed = kinds(tool, name)
    is_string = "true" if not allowed or "string" in allowed else "false"
    spelt = value(tool, name, f"</{MARK}parameter>\n")
    return (f'<{MARK}parameter name="{name}" string="{is_string}">', *spelt)


def dialect(name: str, wrapper: str, empty: str, marks: tuple[str, ...], foreign: tuple[str, ...] = ()) -> TagDialect:
    """The dialect of a version with this tag around its calls, and this between the tags of one without arguments."""
    call = named_call(f'<{MARK}invoke name="{{}}">\n', parameter, f"</{MARK}invoke>\n", empty=empty)
    spelling = Spelling(call, before=f"{wrapper}>\n", between="")
    closers = tuple(f"</{MARK}{word}>" for word in (wrapper, *WRAPPERS))
    block = Block(f"<{MARK}", closers, TaggedBody, starts=r"[a-z]", tight=True, spelling=spelling)
    plain = Block("<function_calls>", ("</function_calls>",), TaggedBody, starts=r"[<{\[]")
    return family(name, marks, block, plain, foreign=foreign, thoughts=THINK)


DSML_V3 = dialect("deepseek-v3.2", "function_calls", "", (MARK, "function_calls>"))
DSML_V4 = dialect("deepseek-v4", "tool_calls", "\n", (MARK,), foreign=("function_calls>",))
