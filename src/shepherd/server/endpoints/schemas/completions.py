"""JSON Schemas of completions and of tokens, for readers of `/docs`: the codecs decide what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.sampling import describe_sampling

_MODEL = {"type": "string", "description": "Any name: the routes choose the model."}
_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}

COMPLETIONS_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "model": _MODEL,
        "prompt": {
            "description": "A text, tokens, or an array of either. Nothing in a text becomes a control token.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, _TOKENS,
                      {"type": "array", "items": _TOKENS}],
        },
        "suffix": {"type": "string", "description": "The text after the gap; for models that can fill gaps."},
        "echo": {"type": "boolean", "default": False, "description": "Repeat the prompt before the answer."},
        "logprobs": {"type": "integer", "minimum": 0, "maximum": 5, "description": "With echo, of the prompt as well."},
        "max_tokens": {"type": "integer", "minimum": 0, "default": 16},
        "n": {"type": "integer", "minimum": 1, "default": 1, "description": "Choices of each prompt."},
        "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 256}]},
        "stream": {"type": "boolean", "default": False},
        **describe_sampling(),
    },
    "example": {"model": "default", "prompt": "Once upon a time", "max_tokens": 32},
}  # fmt: skip

INFILL_BODY: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "model": _MODEL,
        "input_prefix": {"type": "string", "description": "The text before the cursor."},
        "input_suffix": {"type": "string", "description": "The text after the cursor."},
        "input_extra": {
            "type": "array",
            "description": "The text of other files.",
            "items": {"type": "object", "properties": {"filename": {"type": "string"}, "text": {"type": "string"}}},
        },
        "prompt": {"type": "string", "description": "Text after input_prefix."},
        **describe_sampling(),
        "n_predict": {"type": "integer", "minimum": -1, "description": "Tokens at most; -1 = no limit."},
        "stop": {"type": "array", "items": {"type": "string"}},
        "stream": {"type": "boolean", "default": False},
    },
    "example": {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n"},
}

TOKENIZE_BODY: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "model": _MODEL,
        "content": {"type": "string", "description": "The text (llama-server)."},
        "prompt": {"type": "string", "description": "The text (vLLM); begins with BOS unless add_special is false."},
        "add_special": {"type": "boolean", "description": "Begin with the token that begins every prompt."},
        "parse_special": {"type": "boolean", "default": True, "description": "Recognise control tokens."},
        "with_pieces": {"type": "boolean", "default": False, "description": "Each token with its text."},
    },
    "example": {"content": "Hello there"},
}

DETOKENIZE_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["tokens"],
    "properties": {"model": _MODEL, "tokens": _TOKENS},
    "example": {"tokens": [1, 2, 3]},
}
