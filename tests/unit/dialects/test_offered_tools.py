"""Whatever a tool's schema looks like, no template fails on it, and the model sees the tool."""

from __future__ import annotations

from typing import Any

from tests.unit.dialects.conformance import each_template, templates

from shepherd.core import Message, ToolSpec
from shepherd.dialects import Template
from shepherd.dialects.render.conversation import simplified

AWKWARD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no properties": {"type": "object"},
    "several types": {"type": "object", "properties": {"city": {"type": ["string", "null"]}}},
    "no type": {"type": "object", "properties": {"city": {}}, "required": ["city"]},
    "any of": {"type": "object", "properties": {"city": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
    "a choice without a type": {"type": "object", "properties": {"city": {"enum": ["a", 1, None]}}},
    "a reference": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/c"}},
        "$defs": {"c": {"type": "string"}},
    },
    "an array of anything": {"type": "object", "properties": {"city": {"type": "array"}}},
    "an array of references": {
        "type": "object",
        "properties": {"city": {"type": "array", "items": {"$ref": "#/$defs/c"}}},
        "$defs": {"c": {"type": "array", "items": {"$ref": "#/$defs/c"}}},
    },
    "a map": {"type": "object", "properties": {"city": {"type": "object", "additionalProperties": {"type": "string"}}}},
    "everything goes": {"type": "object", "properties": {"city": True}},
    "required and unknown": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city", "zip"]},
    "a null for properties": {"type": "object", "properties": None},
    "nested": {
        "type": "object",
        "properties": {"city": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
    },
}


@each_template(0.1)
def test_no_template_fails_on_a_tool(name: str) -> None:
    template = Template(templates()[name])
    for awkward, parameters in AWKWARD.items():
        tool = ToolSpec("look_up", "Looks up", parameters)
        text = "".join(piece.text for piece in template.render([Message.user("Hi")], tools=[tool]))
        if template.caps.shows_tools:
            assert "look_up" in text, awkward
            shown = [key for key, schema in (parameters.get("properties") or {}).items() if schema is not True]
            assert all(key in text for key in shown), awkward
        assert "Hi" in text


def test_a_simplified_schema_keeps_names_types_and_choices() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": ["null", "string"], "description": "Where"},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "unit": {"enum": ["C", "F"]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/c"}},
        },
        "required": ["city", "zip"],
        "$defs": {"c": {"type": "number"}},
    }
    assert simplified(parameters) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where"},
            "n": {"type": "integer", "description": ""},
            "unit": {"type": "string", "description": "", "enum": ["C", "F"]},
            "list": {"type": "array", "description": "", "items": {"type": "number", "description": ""}},
        },
        "required": ["city"],
    }
