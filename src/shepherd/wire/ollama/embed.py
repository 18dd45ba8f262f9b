"""Ollama's `POST /api/embed`, and `POST /api/embeddings` which it had before: texts to vectors.

A body without a text only loads the model, as everywhere in this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Fields, Json, wrong
from shepherd.wire.ollama.fields import KEEP_ALIVE, NAME
from shepherd.wire.openai.embeddings import DIMENSIONS, plain
from shepherd.wire.sampling import refuse_lora
from shepherd.wire.table import BOOLEAN, STRING, STRINGS, Field, FieldKind, body_schema, read_fields


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    model: str
    texts: tuple[str, ...]
    dimensions: int | None = None
    """The first so many of each vector; None = all."""
    truncate: bool = True
    """Shorten a text that is too long, instead of refusing it."""
    keep_alive_s: float | None = None
    """How long the model stays loaded, in seconds: 0 = not at all, `FOR_EVER`; None = not given."""


def _decode_texts(body: Fields, key: str) -> tuple[str, ...]:
    given = body.find_any(key)
    if given is None or given == "":
        return ()
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list):
        raise wrong(key, "a string or an array of strings", given)
    return body.find_strings(key) or ()


_TEXTS = FieldKind(_decode_texts, {"anyOf": [{"type": "string"}, STRINGS.schema]})
_EMBED = (
    NAME,
    Field("input", _TEXTS),
    DIMENSIONS,
    Field("truncate", BOOLEAN, "false = refuse a text that is too long.", default=True),
    KEEP_ALIVE,
)
_EMBEDDINGS = (NAME, Field("prompt", STRING), KEEP_ALIVE)
EMBED_BODY = body_schema(*_EMBED, example={"model": "default", "input": ["Hello!", "Good day!"]})
EMBEDDINGS_BODY = body_schema(*_EMBEDDINGS, example={"model": "default", "prompt": "Hello!"})


def decode_embed(body: Json) -> EmbedRequest:
    fields = Fields(body)
    refuse_lora(fields)
    given = read_fields(fields, _EMBED)
    return EmbedRequest(given["model"], given["input"], given["dimensions"], given["truncate"], given["keep_alive"])


def decode_embeddings(body: Json) -> EmbedRequest:
    """The request of a body of `/api/embeddings`: one prompt. Raises: `InvalidRequest`."""
    fields = Fields(body)
    refuse_lora(fields)
    given = read_fields(fields, _EMBEDDINGS)
    return EmbedRequest(given["model"], (given["prompt"],) if given["prompt"] else (), keep_alive_s=given["keep_alive"])


def encode_embed(vectors: Sequence[Sequence[float]], *, model: str, n_tokens: int, total_ns: int) -> Json:
    return {
        "model": model,
        "embeddings": [plain(vector) for vector in vectors],
        "total_duration": total_ns,
        "load_duration": 0,
        "prompt_eval_count": n_tokens,
    }


def encode_embeddings(vectors: Sequence[Sequence[float]]) -> Json:
    """The answer of `/api/embeddings`: the first vector, or none."""
    return {"embedding": plain(vectors[0]) if vectors else []}
