"""JSON Schemas of the bodies of Anthropic's protocol, for readers of `/docs`: the codec decides what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.sampling import describe_sampling

_TEXT_OR_BLOCKS = {
    "description": "Text, or an array of blocks: text, image, document, tool_use, tool_result, thinking, ...",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
}
_ASKED: Mapping[str, Any] = {
    "model": {"type": "string", "description": "Any name: the routes choose the model; the answer echoes the name."},
    "messages": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["role"],
            "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": _TEXT_OR_BLOCKS},
        },
    },
    "system": _TEXT_OR_BLOCKS,
    "tools": {
        "type": "array",
        "items": {"type": "object"},
        "description": "Run by the client, never by the server. Tools that only Anthropic can run are left out.",
    },
    "tool_choice": {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"enum": ["auto", "any", "tool", "none"]},
            "name": {"type": "string"},
            "disable_parallel_tool_use": {"type": "boolean"},
        },
    },
    "thinking": {
        "type": "object",
        "required": ["type"],
        "description": "Absent: the model does not think, or its thoughts are not sent.",
        "properties": {
            "type": {"type": "string", "description": "enabled, adaptive, between_tools, disabled"},
            "budget_tokens": {"type": "integer", "minimum": 0},
            "display": {"type": "string", "description": "summarized or omitted"},
        },
    },
    "output_config": {
        "type": "object",
        "properties": {
            "effort": {"type": "string", "description": "low, medium, high, xhigh, max"},
            "format": {"type": "object", "description": '{"type": "json_schema", "schema": {...}}'},
        },
    },
}

COUNT_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["messages"],
    "properties": _ASKED,
    "example": {"model": "default", "messages": [{"role": "user", "content": "Hello!"}]},
}

MESSAGES_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        **_ASKED,
        "max_tokens": {
            "type": "integer",
            "minimum": 0,
            "description": "Cut down to the room that is left. 0 = only put the prompt into the cache.",
        },
        "stream": {"type": "boolean", "default": False},
        "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": 256},
        **describe_sampling(),
        "metadata": {"type": "object", "description": "user_id may name a session; it does not choose a memory."},
    },
    "example": {"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello!"}]},
}
