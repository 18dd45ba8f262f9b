"""JSON Schemas of Responses bodies, for readers of `/docs`. Documentation only: the codec decides what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.sampling import describe_sampling

_INPUT: Mapping[str, Any] = {
    "description": "Text, or items: message, function_call, function_call_output, custom_tool_call, reasoning, ...",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
}

COUNT_BODY: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "input": _INPUT,
        "instructions": {
            "type": "string",
            "description": "A system message before all others, for this answer only.",
        },
        "previous_response_id": {"type": "string", "description": "Continue after a stored answer."},
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "function, custom and namespace; run by the client, never by the server.",
        },
        "tool_choice": {"description": "auto, none, required, one tool by name, or allowed_tools."},
    },
    "example": {"model": "default", "input": "Hello!"},
}

RESPONSES_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["input"],
    "properties": {
        **COUNT_BODY["properties"],
        "stream": {"type": "boolean", "default": False},
        "store": {
            "type": "boolean",
            "default": True,
            "description": "Store the answer, so that a later request can continue after it.",
        },
        "max_output_tokens": {"type": "integer", "minimum": 1, "description": "Cut down to the room that is left."},
        "parallel_tool_calls": {"type": "boolean"},
        **describe_sampling(),
        "reasoning": {
            "type": "object",
            "properties": {
                "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]},
                "summary": {"type": "string", "description": "Send thoughts as summaries."},
            },
        },
        "text": {"type": "object", "description": "format: text, json_object or json_schema."},
        "truncation": {"enum": ["auto", "disabled"], "description": "auto: the oldest items may be dropped."},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "include": {"type": "array", "items": {"type": "string"}},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
        "prompt_cache_key": {"type": "string", "description": "Names the conversation."},
        "user": {"type": "string"},
    },
    "example": {"model": "default", "input": "Hello!", "max_output_tokens": 100},
}
