"""Ollama's `POST /api/embed`, and `POST /api/embeddings` which it had before: texts to vectors.

Nothing to embed is no error here: it asks for the model to be loaded, as everywhere in this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.wire.base import Fields, Json, Range, wrong
from shepherd.wire.ollama.fields import decode_keep_alive
from shepherd.wire.openai.embeddings import plain


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What a body asks for."""

    model: str
    texts: tuple[str, ...]
    dimensions: int | None = None
    """The first so many of each vector; None = all."""
    truncate: bool = True
    """Shorten what is too long, in place of refusing it."""
    keep_alive_s: float | None = None
    """How long the model stays, in seconds: 0 = not at all, `FOR_EVER`; None = it does not say."""


def decode_embed(body: Json) -> EmbedRequest:
    """What a body of `/api/embed` asks. Raises: `InvalidRequest`."""
    fields = Fields(body)
    return EmbedRequest(
        model=fields.find_string("model") or "",
        texts=_decode_texts(fields),
        dimensions=fields.find_integer("dimensions", Range(low=1)),
        truncate=fields.find_boolean("truncate") is not False,
        keep_alive_s=decode_keep_alive(fields),
    )


def _decode_texts(fields: Fields) -> tuple[str, ...]:
    said = fields.find_any("input")
    if said is None or said == "":
        return ()
    if isinstance(said, str):
        return (said,)
    if not isinstance(said, list):
        raise wrong("input", "a string or an array of strings", said)
    return fields.find_strings("input") or ()


def decode_embeddings(body: Json) -> EmbedRequest:
    """What a body of `/api/embeddings` asks: one prompt. Raises: `InvalidRequest`."""
    fields = Fields(body)
    prompt = fields.find_string("prompt")
    texts = (prompt,) if prompt else ()
    return EmbedRequest(fields.find_string("model") or "", texts, keep_alive_s=decode_keep_alive(fields))


def encode_embed(
    vectors: Sequence[Sequence[float]], *, model: str, n_tokens: int, total_ns: int, load_ns: int = 0
) -> Json:
    """The answer of `/api/embed`."""
    return {
        "model": model,
        "embeddings": [plain(vector) for vector in vectors],
        "total_duration": total_ns,
        "load_duration": load_ns,
        "prompt_eval_count": n_tokens,
    }


def encode_embeddings(vectors: Sequence[Sequence[float]]) -> Json:
    """The answer of `/api/embeddings`: the first vector, or none."""
    return {"embedding": plain(vectors[0]) if vectors else []}
