"""JSON Schema of a chat completion's body, for readers of `/docs`: the codec decides what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.sampling import describe_sampling

_STRING_OR_PARTS = {
    "description": "Text, or an array of parts: text, image_url, file.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
}


CHAT_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "model": {
            "type": "string",
            "description": "Any name: the routes choose the model; the answer echoes the name.",
        },
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["role"],
                "properties": {
                    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
                    "content": _STRING_OR_PARTS,
                    "tool_calls": {"type": "array", "items": {"type": "object"}},
                    "tool_call_id": {"type": "string"},
                    "reasoning_content": {"type": "string"},
                },
            },
        },
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Run by the client, never by the server.",
        },
        "tool_choice": {"description": "auto, none, required, or one function by name."},
        "stream": {"type": "boolean", "default": False},
        "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
        "max_completion_tokens": {"type": "integer", "minimum": 1, "description": "Cut down to the room that is left."},
        "max_tokens": {"type": "integer", "minimum": 1, "description": "Older name of max_completion_tokens."},
        "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 256}]},
        **describe_sampling(),
        "n": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1, "description": "Choices."},
        "logprobs": {"type": "boolean", "default": False, "description": "How likely each token of the text was."},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20, "description": "Needs logprobs."},
        "response_format": {"type": "object", "description": "text, json_object, or json_schema."},
        "reasoning_effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]},
    },
    "example": {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 100},
}
