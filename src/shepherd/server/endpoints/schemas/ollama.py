"""JSON Schemas of Ollama's request bodies and of embeddings, for readers of `/docs`. Documentation only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.wire.sampling import describe_sampling

Schema = Mapping[str, Any]


def _string(text: str) -> Schema:
    return {"type": "string", "description": text}


_MODEL = _string("A name of `GET /api/tags`, with or without `:latest`; or any name that a route matches.")
_IMAGES: Schema = {"type": "array", "items": _string("Base64.")}

_COMMON: Schema = {
    "stream": {"type": "boolean", "default": True, "description": "Lines of JSON, the last of which is done."},
    "think": {"description": "true, false, low, medium or high.", "type": ["boolean", "string", "null"]},
    "format": {"description": 'What the answer must look like: "json", or a JSON schema.'},
    "options": {
        "type": "object",
        "properties": describe_sampling(),
        "description": "temperature, top_k, top_p, min_p, repeat_penalty, seed, stop, num_predict (-1 = no limit), …; "
        "num_ctx is ignored: the configuration sets the length of a conversation.",
    },
    "keep_alive": {"description": 'Seconds or "5m": how long the model stays loaded; 0 = unload it, -1 = no limit.'},
    "truncate": {
        "type": "boolean",
        "description": "true = the oldest turns may leave a conversation that is too long; false = it is refused.",
    },
    "logprobs": {"type": "boolean"},
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
}

OLLAMA_CHAT_BODY: Schema = {
    "type": "object",
    "properties": {
        "model": _MODEL,
        "messages": {
            "type": "array",
            "description": "Empty: the model is loaded; with keep_alive 0 it is unloaded.",
            "items": {
                "type": "object",
                "required": ["role"],
                "properties": {
                    "role": {"enum": ["system", "user", "assistant", "tool"]},
                    "content": {"type": "string"},
                    "thinking": {"type": "string"},
                    "images": _IMAGES,
                    "tool_calls": {"type": "array", "items": {"type": "object"}},
                    "tool_name": _string("Of a tool result: the name of the tool."),
                },
            },
        },
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Run by the client, never by the server.",
        },
        **_COMMON,
    },
    "example": {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "stream": False},
}

OLLAMA_GENERATE_BODY: Schema = {
    "type": "object",
    "properties": {
        "model": _MODEL,
        "prompt": _string("Empty: the model is loaded; with keep_alive 0 it is unloaded."),
        "suffix": _string("The text after the gap that the answer fills."),
        "system": _string("Instructions."),
        "raw": {"type": "boolean", "description": "Continue the prompt as it is, without a chat template."},
        "images": _IMAGES,
        **_COMMON,
    },
    "example": {"model": "default", "prompt": "Why is the sky blue?", "stream": False},
}

OLLAMA_EMBED_BODY: Schema = {
    "type": "object",
    "properties": {
        "model": _MODEL,
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "truncate": {"type": "boolean", "default": True, "description": "false = refuse a text that is too long."},
        "dimensions": {
            "type": "integer",
            "minimum": 1,
            "description": "How many numbers of each vector to keep.",
        },
        "keep_alive": _COMMON["keep_alive"],
    },
    "example": {"model": "default", "input": ["Hello!", "Good day!"]},
}

OLLAMA_EMBEDDINGS_BODY: Schema = {
    "type": "object",
    "properties": {"model": _MODEL, "prompt": {"type": "string"}, "keep_alive": _COMMON["keep_alive"]},
    "example": {"model": "default", "prompt": "Hello!"},
}

OLLAMA_NAME_BODY: Schema = {
    "type": "object",
    "required": ["model"],
    "properties": {"model": _MODEL},
    "example": {"model": "default"},
}

EMBEDDINGS_BODY: Schema = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "model": {"type": "string"},
        "input": {
            "description": "A text, an array of texts, the tokens of a text, or an array of those.",
            "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 2048}],
        },
        "encoding_format": {"enum": ["float", "base64"], "default": "float"},
        "dimensions": {
            "type": "integer",
            "minimum": 1,
            "description": "How many numbers of each vector to keep.",
        },
        "truncate": {
            "type": "boolean",
            "default": False,
            "description": "Shorten a text that is too long.",
        },
    },
    "example": {"model": "default", "input": ["Hello!", "Good day!"]},
}
