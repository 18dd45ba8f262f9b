"""Liquid AI's LFM2 and LFM2.5: `<|tool_call_start|>[name(key='value', n=1)]<|tool_call_end|>`, thoughts in `<think>`.

    <think>Rome it is.</think>Let me look.<|tool_call_start|>[weather(city='Rome', days=2), now()]<|tool_call_end|>

All calls of a turn stand in one list. Values are Python's, JSON's words slip in, and a system prompt may ask for a list
of JSON calls instead. The template of 2.5 writes strings into the history without escaping their quotes, and the models
learn from it. A list in the middle of a thought's line is part of the thought. Source: the models' cards and templates,
which name the tools in a "List of tools: [...]", few of them the call's own tags; MiniCPM3 writes those around Python
in a fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shepherd.core import ToolSpec
from shepherd.dialects.families.generic import THINK, family
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.markup import Block
from shepherd.dialects.parse.spelling import Json, OneOf, Part, Pattern, Spelling, named_call

TEXT = Pattern(r"'([^'\\]|\\['\\nrt])*'")
"""A string as the templates write it; one that needs other escapes goes in JSON's quotes."""
OWN: dict[str, tuple[tuple[Part, ...], ...]] = {"string": ((TEXT,),), "boolean": (("True",), ("False",))}
PLAIN = frozenset({"type", "description", "title", "default", "examples"})
"""The other keywords of a schema that a value in Python's own notation satisfies."""


def argument(tool: ToolSpec, name: str) -> tuple[Part, ...]:
    """One `key=value`, in Python's notation where it has one of its own."""
    schema = tool.parameters["properties"][name]
    own = OWN.get(str(schema.get("type")), ()) if isinstance(schema, Mapping) and PLAIN.issuperset(schema) else ()
    return (f"{name}=", OneOf(((Json(schema),), *own)) if own else Json(schema))


CALLS = Spelling(named_call("{}(", argument, ")", between=", "), before="[", between=", ", after="]")
LFM = family(
    "lfm",
    ("List of tools: ",),
    Block("<|tool_call_start|>", ("<|tool_call_end|>",), PythonBody, spelling=CALLS),
    thoughts=THINK,
)
LFM_TAGGED = replace(LFM, name="lfm-tagged", marks=("<|tool_call_start|>",), foreign=LFM.marks)
