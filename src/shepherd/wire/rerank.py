"""Reranking in the shapes of its protocols: a query and documents in, documents by relevance out.

    /v1/rerank   {query, documents, top_n}       Jina's, llama-server's, vLLM's   {results: [{index, relevance_score}]}
    /rerank      {query, texts, raw_scores}      TEI's                            [{index, score}]
    /v2/rerank   {query, documents, top_n}       Cohere's                         {results, meta}
    /v1/score    {text_1, text_2}                vLLM's                           {data: [{index, score}]}, not sorted

Scores are those of the model in Jina's shape, as llama-server gives them, and from 0 to 1 in the others, as their
protocols promise; each has a field for the other kind. Not here: which model scores, and how (the service).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from shepherd.core.dataclasses import dataclass
from shepherd.core.pairs import MAX_PAIRS, Pairs, Scores, Side
from shepherd.wire.base import Fields, Json, field_error, public_error, wrong
from shepherd.wire.openai.embeddings import plain
from shepherd.wire.sampling import MODEL, refuse_lora
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, body_schema, integer, one_of, read_fields
from shepherd.wire.texts import check_inputs


@dataclass(frozen=True, slots=True)
class RerankRequest:
    model: str
    pairs: Pairs
    top_n: int | None = None
    """So many of the best; None = all."""
    is_raw: bool = False
    """Scores as the model computes them, not brought between 0 and 1."""
    with_text: bool = False
    """The answer repeats the documents."""
    shape: Literal["jina", "tei"] = "jina"

    @property
    def documents(self) -> tuple[str, ...]:
        return tuple(document for _, document in self.pairs.texts)


# -- fields ------------------------------------------------------------------------------------------------------------


def _text_of(value: Any, path: str) -> str:
    match value:
        case str():
            return value
        case {"text": str() as text}:
            return text
        case {"text": _}:
            raise wrong(f"{path}.text", "a string", value["text"])
        case _:
            raise wrong(path, 'a string, or an object with a "text"', value)


def _read_texts(body: Fields, key: str) -> tuple[str, ...] | None:
    if (given := body.find_any(key)) is None:
        return None
    if not isinstance(given, list):
        raise wrong(key, "an array of strings", given)
    if not given:
        raise field_error(key, "is an empty array; there is nothing to score: send at least one")
    check_inputs(len(given), key, MAX_PAIRS)
    return tuple(_text_of(value, f"{key}[{at}]") for at, value in enumerate(given))


def _read_text_or_texts(body: Fields, key: str) -> tuple[str, ...] | str | None:
    given = body.find_any(key)
    return given if isinstance(given, str) else _read_texts(body, key)


_DOCUMENT = {"anyOf": [STRING.schema, {"type": "object", "properties": {"text": STRING.schema}, "required": ["text"]}]}
_ARRAY = {"type": "array", "minItems": 1, "maxItems": MAX_PAIRS, "items": _DOCUMENT}
_TEXTS = FieldKind(_read_texts, _ARRAY)
_TEXT_OR_TEXTS = FieldKind(_read_text_or_texts, {"anyOf": [STRING.schema, _ARRAY]})
_ABOUT = f"At most {MAX_PAIRS} texts, or objects with a text."
_QUERY = Field("query", STRING, "What the documents are compared with.")
_DOCUMENTS = Field("documents", _TEXTS, _ABOUT)
_TOP_N = Field("top_n", integer(0), "So many of the best; 0, or more than there are = all.")
_TRUNCATE = Field("truncate", BOOLEAN, "Shorten what is too long, the longer text first.", default=False)
_MOST = Field(
    "truncate_prompt_tokens", integer(-1), "Shorten a pair to so many tokens; -1 = as many as the model reads."
)
_MOST_DOCUMENT = Field("max_tokens_per_doc", integer(1), "Tokens read of a document.")
_WITH_TEXT = Field("return_documents", BOOLEAN, "Repeat the documents in the answer.", default=False)
_ACTIVATION = "Bring scores between 0 and 1."

_RERANK = (
    MODEL, _QUERY, _DOCUMENTS, _TOP_N, _WITH_TEXT, _TRUNCATE, _MOST, _MOST_DOCUMENT,
    Field("use_activation", BOOLEAN, _ACTIVATION, default=False),
    Field("texts", _TEXTS, "The documents in TEI's shape: the answer is then a list."),
    Field("raw_scores", BOOLEAN, "With texts: scores as the model computes them.", default=False),
    Field("return_text", BOOLEAN, "With texts: repeat them in the answer.", default=False),
    Field("truncation_direction", one_of("left", "right", "Left", "Right"), "The end that is left out.",
          default="right"),
)  # fmt: skip
_COHERE = (MODEL, _QUERY, _DOCUMENTS, _TOP_N, _WITH_TEXT, _MOST_DOCUMENT)
_SCORE = (
    MODEL,
    Field("text_1", _TEXT_OR_TEXTS, "A text, or as many as text_2 has.", also=("data_1", "queries")),
    Field("text_2", _TEXT_OR_TEXTS, "Texts that are compared with it.", also=("data_2", "documents")),
    _TRUNCATE, _MOST,
    Field("use_activation", BOOLEAN, _ACTIVATION, default=True),
)  # fmt: skip
_EXAMPLE = {"model": "default", "query": "Which animal sleeps?", "documents": ["The lamb sleeps.", "It rains."]}
RERANK_BODY = body_schema(*_RERANK, required=["query"], example=_EXAMPLE)
COHERE_BODY = body_schema(*_COHERE, required=["query", "documents"], example=_EXAMPLE)
SCORE_BODY = body_schema(
    *_SCORE, example={"model": "default", "text_1": "Which animal sleeps?", "text_2": ["The lamb sleeps.", "It rains."]}
)


# -- requests ----------------------------------------------------------------------------------------------------------


def is_tei(body: Json) -> bool:
    """Whether a body is in TEI's shape; so are its errors."""
    return "texts" in body


def _read(body: Json, table: Sequence[Field]) -> Json:
    fields = Fields(body)
    refuse_lora(fields)
    return read_fields(fields, table)


def decode_rerank(body: Json) -> RerankRequest:
    """The request of a body in Jina's shape or in TEI's. Raises: `InvalidRequest`."""
    given = _read(body, _RERANK)
    in_tei, key = is_tei(body), "texts" if is_tei(body) else "documents"
    side: Side = "left" if given["truncation_direction"].lower() == "left" else "right"
    pairs = _pairs(given, key, side=side, n_document=given["max_tokens_per_doc"])
    top_n = given["top_n"] or None
    if in_tei:
        return RerankRequest(given["model"], pairs, top_n, given["raw_scores"], given["return_text"], "tei")
    return RerankRequest(given["model"], pairs, top_n, not given["use_activation"], given["return_documents"])


def decode_cohere(body: Json) -> RerankRequest:
    """The request of a body in Cohere's shape: long documents are shortened. Raises: `InvalidRequest`."""
    given = _read(body, _COHERE) | {"truncate": True}
    pairs = _pairs(given, "documents", n_document=given["max_tokens_per_doc"])
    return RerankRequest(given["model"], pairs, given["top_n"] or None, with_text=given["return_documents"])


def decode_score(body: Json) -> RerankRequest:
    """The request of a body in vLLM's shape. Raises: `InvalidRequest`."""
    given = _read(body, _SCORE)
    first, second = (_required(given, key) for key in ("text_1", "text_2"))
    queries, documents = ((each,) if isinstance(each, str) else each for each in (first, second))
    if len(queries) == 1:
        queries *= len(documents)
    if len(queries) != len(documents):
        why = f"has {len(queries)} texts and text_2 has {len(documents)}; send one text_1, or as many as text_2"
        raise field_error("text_1", why)
    place = "text_2" if isinstance(second, str) else "text_2[{}]"
    pairs = Pairs(tuple(zip(queries, documents, strict=True)), place=place, **_shortening(given))
    return RerankRequest(given["model"], pairs, is_raw=not given["use_activation"])


def _pairs(given: Json, key: str, *, side: Side = "right", n_document: int | None) -> Pairs:
    query, documents = _required(given, "query"), _required(given, key)
    texts = tuple((query, document) for document in documents)
    return Pairs(texts, side=side, n_document=n_document, place=f"{key}[{{}}]", **_shortening(given))


def _shortening(given: Json) -> dict[str, Any]:
    most = given.get("truncate_prompt_tokens")
    return {"truncate": given["truncate"] or most is not None, "n_tokens": most if most and most > 0 else None}


def _required(given: Json, key: str) -> Any:
    if given[key] is None:
        raise field_error(key, "is missing; send a query and the documents to compare with it")
    return given[key]


# -- answers -----------------------------------------------------------------------------------------------------------


def encode_rerank(wanted: RerankRequest, made: Scores, *, id: str) -> Json | list[Json]:
    if wanted.shape == "tei":
        return _best(wanted, made, "score", lambda text: {"text": text})
    n_tokens = sum(made.n_tokens)
    return {
        "id": id,
        "object": "list",
        "model": wanted.model or made.model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "results": _best(wanted, made, "relevance_score", _document),
    }


def encode_cohere(wanted: RerankRequest, made: Scores, *, id: str) -> Json:
    return {
        "id": id,
        "results": _best(wanted, made, "relevance_score", _document),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": sum(made.n_tokens)},
        },
    }


def encode_score(wanted: RerankRequest, made: Scores, *, id: str, created: int) -> Json:
    n_tokens = sum(made.n_tokens)
    values = _values(wanted, made)
    return {
        "id": id,
        "object": "list",
        "created": created,
        "model": wanted.model or made.model,
        "data": [{"index": at, "object": "score", "score": value} for at, value in enumerate(values)],
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens, "completion_tokens": 0},
    }


def encode_tei_error(error: Exception) -> tuple[int, Json]:
    status, message = public_error(error)
    kind = "Validation" if status < 500 else "Unhealthy" if status == 503 else "Backend"
    return status, {"error": message, "error_type": "Overloaded" if status == 429 else kind}


def encode_cohere_error(error: Exception) -> tuple[int, Json]:
    status, message = public_error(error)
    return status, {"message": message}


def _document(text: str) -> Json:
    return {"document": {"text": text}}


def _best(wanted: RerankRequest, made: Scores, label: str, repeat: Callable[[str], Json]) -> list[Json]:
    values, documents = _values(wanted, made), wanted.documents
    best = sorted(range(len(values)), key=lambda at: -values[at])[: wanted.top_n]
    return [{"index": at, label: values[at], **(repeat(documents[at]) if wanted.with_text else {})} for at in best]


def _values(wanted: RerankRequest, made: Scores) -> Sequence[float]:
    return plain(made.values if wanted.is_raw else made.probabilities)
