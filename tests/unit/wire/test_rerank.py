"""Bodies and answers of reranking, in the shapes of its protocols."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import EngineDown, InvalidRequest, RateLimited, UnknownModel
from shepherd.core.pairs import MAX_PAIRS, Pairs, Scores
from shepherd.wire.rerank import (
    RerankRequest,
    decode_cohere,
    decode_rerank,
    decode_score,
    encode_cohere,
    encode_cohere_error,
    encode_rerank,
    encode_score,
    encode_tei_error,
)

TEXTS = (("q", "a"), ("q", "b"), ("q", "c"))
SCORES = Scores((-1.5, 3.25, 0.0), (3, 4, 5), model="rank")
CHANCES = [1 / (1 + math.exp(-value)) for value in SCORES.values]


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ({"documents": ["a", "b", "c"]}, RerankRequest("", Pairs(TEXTS), is_raw=True)),
        ({"model": "m", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": True},
         RerankRequest("m", Pairs(TEXTS), 2, is_raw=True, with_text=True)),
        ({"documents": ["a", "b", "c"], "top_n": 0, "truncate": True, "use_activation": True},
         RerankRequest("", Pairs(TEXTS, truncate=True))),
        ({"documents": ["a", "b", "c"], "truncate_prompt_tokens": 99},
         RerankRequest("", Pairs(TEXTS, truncate=True, n_tokens=99), is_raw=True)),
        ({"documents": ["a", "b", "c"], "truncate_prompt_tokens": -1, "max_tokens_per_doc": 7, "odd": 1},
         RerankRequest("", Pairs(TEXTS, truncate=True, n_document=7), is_raw=True)),
        ({"texts": ["a", "b", "c"]}, RerankRequest("", Pairs(TEXTS, place="texts[{}]"), shape="tei")),
        ({"texts": ["a", "b", "c"], "raw_scores": True, "return_text": True, "truncate": True,
          "truncation_direction": "Left", "top_n": 1},
         RerankRequest("", Pairs(TEXTS, truncate=True, side="left", place="texts[{}]"), 1, is_raw=True, with_text=True,
                       shape="tei")),
    ],
)  # fmt: skip
def test_a_body_has_a_query_and_documents(body: dict[str, Any], request_: RerankRequest) -> None:
    assert decode_rerank({"query": "q", **body}) == request_


def test_cohere_shortens_long_documents() -> None:
    body = {"model": "m", "query": "q", "documents": ["a", "b", "c"], "top_n": 9, "max_tokens_per_doc": 512}
    assert decode_cohere(body) == RerankRequest("m", Pairs(TEXTS, truncate=True, n_document=512), 9)


@pytest.mark.parametrize(
    ("first", "second", "texts", "place"),
    [
        ("q", "a", (("q", "a"),), "text_2"),
        ("q", ["a", "b", "c"], TEXTS, "text_2[{}]"),
        (["q"], ["a"], (("q", "a"),), "text_2[{}]"),
        (["q", "r"], ["a", "b"], (("q", "a"), ("r", "b")), "text_2[{}]"),
        ("", [""], (("", ""),), "text_2[{}]"),
    ],
)
def test_texts_are_scored_one_with_one_or_one_with_many(
    first: Any, second: Any, texts: tuple[tuple[str, str], ...], place: str
) -> None:
    expected = RerankRequest("", Pairs(texts, place=place))
    assert decode_score({"text_1": first, "text_2": second}) == expected
    assert decode_score({"data_1": first, "data_2": second}) == expected
    assert decode_score({"queries": first, "documents": second}) == expected


@pytest.mark.parametrize(
    ("decode", "body", "words", "field"),
    [
        (decode_rerank, {"documents": ["a"]}, "query is missing", "query"),
        (decode_rerank, {"query": 5, "documents": ["a"]}, "query must be a string", "query"),
        (decode_rerank, {"query": "q"}, "documents is missing", "documents"),
        (decode_rerank, {"query": "q", "documents": []}, "documents is an empty array", "documents"),
        (decode_rerank, {"query": "q", "documents": "a"}, "documents must be an array", "documents"),
        (decode_rerank, {"query": "q", "documents": ["a", "b", "c", 5]},
         r'documents\[3\] must be a string, or an object with a "text"', "documents[3]"),
        (decode_rerank, {"query": "q", "documents": ["a", {"title": "b"}]}, r"documents\[1\] must be", "documents[1]"),
        (decode_rerank, {"query": "q", "documents": [{"text": 5}]}, r"documents\[0\]\.text must be a string",
         "documents[0].text"),
        (decode_rerank, {"query": "q", "documents": ["a"] * (MAX_PAIRS + 1)}, "documents has 10001 elements; at most",
         "documents"),
        (decode_rerank, {"query": "q", "documents": ["a"], "top_n": -1}, "top_n must be", "top_n"),
        (decode_rerank, {"query": "q", "documents": ["a"], "top_n": 1.5}, "top_n must be", "top_n"),
        (decode_rerank, {"query": "q", "documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc must be",
         "max_tokens_per_doc"),
        (decode_rerank, {"query": "q", "texts": []}, "texts is an empty array", "texts"),
        (decode_rerank, {"query": "q", "texts": None, "documents": ["a"]}, "texts is missing", "texts"),
        (decode_rerank, {"query": "q", "texts": ["a"], "truncation_direction": "up"}, "truncation_direction must be",
         "truncation_direction"),
        (decode_cohere, {"query": "q", "documents": []}, "documents is an empty array", "documents"),
        (decode_score, {"text_2": "a"}, "text_1 is missing", "text_1"),
        (decode_score, {"text_1": "a"}, "text_2 is missing", "text_2"),
        (decode_score, {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}, "text_1 has 2 texts and text_2 has 3",
         "text_1"),
        (decode_score, {"text_1": ["a", "b"], "text_2": "c"}, "text_1 has 2 texts and text_2 has 1", "text_1"),
        (decode_score, {"text_1": "a", "text_2": ["c", None]}, r"text_2\[1\] must be", "text_2[1]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(decode: Any, body: dict[str, Any], words: str, field: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        decode(body)
    assert caught.value.field == field


@pytest.mark.parametrize("decode", [decode_rerank, decode_cohere, decode_score])
def test_adapters_are_refused(decode: Any) -> None:
    body = {"query": "q", "documents": ["a"], "text_1": "a", "text_2": "b"}
    decode(body | {"lora": []})
    with pytest.raises(InvalidRequest, match="computed without them; leave lora out") as caught:
        decode(body | {"lora": [{"id": 0, "scale": 1}]})
    assert caught.value.field == "lora"


def test_as_many_documents_as_allowed_are_taken() -> None:
    assert len(decode_rerank({"query": "q", "documents": ["a"] * MAX_PAIRS}).pairs.texts) == MAX_PAIRS


# -- answers -----------------------------------------------------------------------------------------------------------


def test_jina_gets_the_models_scores_best_first() -> None:
    wanted = RerankRequest("", Pairs(TEXTS), 2, is_raw=True, with_text=True)
    assert encode_rerank(wanted, SCORES, id="r") == {
        "id": "r",
        "object": "list",
        "model": "rank",
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
        "results": [
            {"index": 1, "relevance_score": 3.25, "document": {"text": "b"}},
            {"index": 2, "relevance_score": 0.0, "document": {"text": "c"}},
        ],
    }


def test_tei_gets_a_bare_list_of_probabilities() -> None:
    wanted = RerankRequest("", Pairs(TEXTS), with_text=True, shape="tei")
    found = encode_rerank(wanted, SCORES, id="r")
    assert isinstance(found, list)
    assert [(each["index"], each["text"]) for each in found] == [(1, "b"), (2, "c"), (0, "a")]
    assert [each["score"] for each in found] == pytest.approx([CHANCES[1], CHANCES[2], CHANCES[0]])
    raw = encode_rerank(RerankRequest("", Pairs(TEXTS), is_raw=True, shape="tei"), SCORES, id="r")
    assert raw == [{"index": 1, "score": 3.25}, {"index": 2, "score": 0.0}, {"index": 0, "score": -1.5}]


def test_cohere_gets_probabilities_and_what_they_cost() -> None:
    found = encode_cohere(RerankRequest("m", Pairs(TEXTS), 1), SCORES, id="r")
    assert found["results"] == [{"index": 1, "relevance_score": pytest.approx(CHANCES[1])}]
    assert found["meta"]["tokens"] == {"input_tokens": 12}


def test_vllm_gets_the_scores_in_the_order_of_the_texts() -> None:
    found = encode_score(RerankRequest("m", Pairs(TEXTS)), SCORES, id="s", created=7)
    assert [each["score"] for each in found["data"]] == pytest.approx(CHANCES)
    assert [each["index"] for each in found["data"]] == [0, 1, 2]
    assert (found["model"], found["object"], found["created"]) == ("m", "list", 7)
    assert found["usage"] == {"prompt_tokens": 12, "total_tokens": 12, "completion_tokens": 0}


def test_of_equal_scores_the_first_document_comes_first() -> None:
    made = Scores((0.5, 0.5, 0.5), (1, 1, 1))
    found = encode_rerank(RerankRequest("", Pairs(TEXTS), is_raw=True), made, id="r")
    assert isinstance(found, dict)
    assert [each["index"] for each in found["results"]] == [0, 1, 2]


@given(st.lists(st.floats(-1024, 1024, width=32), min_size=1, max_size=30))
def test_probabilities_keep_the_order_and_stay_between_0_and_1(values: list[float]) -> None:
    made = Scores(tuple(values), (1,) * len(values))
    chances = made.probabilities
    assert all(0 <= each <= 1 for each in chances)
    ordered = [chance for _, chance in sorted(zip(values, chances, strict=True))]
    assert ordered == sorted(chances)
    assert Scores((0.25,), (1,), is_probable=True).probabilities == (0.25,)


def test_errors_have_the_shape_of_their_protocol() -> None:
    wrong = InvalidRequest("texts is an empty array", field="texts")
    assert encode_tei_error(wrong) == (400, {"error": "texts is an empty array", "error_type": "Validation"})
    assert encode_tei_error(EngineDown("loading"))[1]["error_type"] == "Unhealthy"
    assert encode_tei_error(RateLimited("slow", backend="b"))[1]["error_type"] == "Overloaded"
    assert encode_tei_error(ZeroDivisionError("secret"))[1]["error_type"] == "Backend"
    assert "secret" not in str(encode_tei_error(ZeroDivisionError("secret")))
    assert encode_cohere_error(UnknownModel("x", known=("y",)))[0] == 404
    assert list(encode_cohere_error(wrong)[1]) == ["message"]
