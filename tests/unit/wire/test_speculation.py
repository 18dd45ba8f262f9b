"""What bodies say of drafts, on every path, and what an answer reports of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shepherd.core import InvalidRequest, Request, Usage, limit
from shepherd.wire.anthropic import client as anthropic_client
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint
from shepherd.wire.llama import completion, infill
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.ollama import generate as ollama_generate
from shepherd.wire.openai import chat, completions
from shepherd.wire.openai import client as chat_client
from shepherd.wire.openai.chunks import sum_usage
from shepherd.wire.openai.responses import client as responses_client
from shepherd.wire.openai.responses import codec as responses
from shepherd.wire.openai.responses.stream import encode_usage as encode_usage_of_responses
from shepherd.wire.openai.shapes import encode_usage
from shepherd.wire.openai.shared_fields import usage_of
from shepherd.wire.watch import Watch

Decode = Callable[[Json], Request]
MESSAGES: Json = {"messages": [{"role": "user", "content": "Hi"}]}
ENDPOINT = Endpoint("m", "up:m")
HUGE = limit.MAX_PREDICTED_CHARS


def in_options(decode: Callable[[Json], Any], body: Json) -> Decode:
    def read(fields: Json) -> Request:
        request: Request = decode(body | {"model": "m", "options": fields}).request
        return request

    return read


def in_body(decode: Callable[[Json], Any], body: Json) -> Decode:
    def read(fields: Json) -> Request:
        request: Request = decode(body | fields).request
        return request

    return read


ALL: dict[str, Decode] = {
    "chat": in_body(chat.decode_request, MESSAGES),
    "completions": in_body(completions.decode_request, {"prompt": "a"}),
    "responses": in_body(responses.decode_request, {"input": "a"}),
    "completion": in_body(completion.decode_request, {"prompt": "a"}),
    "infill": in_body(infill.decode_request, {"input_prefix": "a"}),
    "anthropic": in_body(anthropic.decode_request, MESSAGES),
    "ollama chat": in_options(ollama_chat.decode_request, MESSAGES),
    "ollama generate": in_options(ollama_generate.decode_request, {"prompt": "a"}),
}
every_path = pytest.mark.parametrize("decode", ALL.values(), ids=ALL)


@every_path
@pytest.mark.parametrize(
    ("given", "most"),
    [
        (None, None),
        (False, 0),
        (True, limit.MAX_DRAFT),
        (0, 0),
        (7, 7),
        (7.0, 7),
        (limit.MAX_DRAFT, limit.MAX_DRAFT),
        ({}, None),
        ({"n_max": 5, "n_min": 2, "p_min": 0.75}, 5),
    ],
)
def test_every_path_reads_how_long_a_draft_may_be(decode: Decode, given: Any, most: int | None) -> None:
    assert decode({"speculative": given}).speculate == most


@every_path
@pytest.mark.parametrize("given", ["yes", -1, limit.MAX_DRAFT + 1, 1.5, [8], float("inf")])
def test_every_path_names_a_wrong_length(decode: Decode, given: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode({"speculative": given})
    field = caught.value.field or ""
    assert field.removeprefix("options.") == "speculative"
    assert caught.value.message.startswith(f"{field} must be true, false, or a whole number from 0 to 1024: the tokens")


@every_path
@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"speculative.n_max": 16}, 16),
        ({"speculative.n_max": 0, "speculative.n_min": 1, "speculative.p_min": 0.5}, 0),
        ({"speculative": True, "speculative.n_max": 16}, 16),
        ({"speculative": False, "speculative.n_max": 16}, 0),
        ({"speculative": 4, "speculative.n_max": 16}, 4),
        ({"speculative.n_min": 1}, None),
    ],
)
def test_the_names_of_llama_server_are_read_and_a_plain_word_goes_first(
    decode: Decode, body: Json, most: int | None
) -> None:
    assert decode(body).speculate == most


@every_path
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"speculative.n_max": 1025}, "speculative.n_max must be an integer from 0 to 1024, not 1025"),
        ({"speculative.n_max": True}, "speculative.n_max must be an integer from 0 to 1024, not true"),
        ({"speculative.n_min": "2"}, 'speculative.n_min must be an integer from 0 to 2147483647, not "2"'),
        ({"speculative.p_min": 1.5}, "speculative.p_min must be a number from 0 to 1, not 1.5"),
        ({"speculative": {"n_max": -1}}, "speculative.n_max must be an integer from 0 to 1024, not -1"),
        ({"speculative": {"p_min": None, "n_min": []}}, "an empty array"),
    ],
)
def test_a_wrong_value_of_llama_servers_is_named_though_it_may_be_without_effect(
    decode: Decode, body: Json, said: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(body)
    assert caught.value.message.removeprefix("options.").endswith(said)


@every_path
@pytest.mark.parametrize(
    ("prediction", "texts"),
    [
        (None, ()),
        ({"type": "content", "content": "def f(): pass"}, ("def f(): pass",)),
        ({"content": "a"}, ("a",)),
        ({"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]}, ("a", "")),
        ({"type": "content", "content": []}, ()),
        ({"type": "content", "content": "x" * HUGE}, ("x" * HUGE,)),
    ],
)
def test_the_texts_that_a_client_expects_are_read(decode: Decode, prediction: Any, texts: tuple[str, ...]) -> None:
    assert decode({"prediction": prediction}).predicted == texts


def expecting(content: Any) -> Json:
    return {"type": "content", "content": content}


@every_path
@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ("text", 'prediction must be an object, not "text"'),
        ({"type": "tokens", "content": "a"}, 'prediction.type must be "content", not "tokens"'),
        ({"type": "content"}, "prediction.content is missing: the expected text"),
        (expecting(5), "prediction.content must be a string, or an array of parts of type text, not 5"),
        (expecting([5]), "prediction.content[0] must be an object, not 5"),
        (expecting([{"type": "image_url"}]), 'prediction.content[0].type must be "text", not "image_url"'),
        (expecting([{"type": "text"}]), "prediction.content[0].text is missing"),
        (
            expecting("x" * (HUGE + 1)),
            "prediction.content has 1000001 characters; at most 1000000 are allowed: send fewer",
        ),
        (
            expecting([{"type": "text", "text": "x"}] * 257),
            "prediction.content has 257 elements; at most 256 are accepted: send fewer",
        ),
    ],
)
def test_a_wrong_expectation_is_named(decode: Decode, prediction: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode({"prediction": prediction})
    assert caught.value.message.removeprefix("options.").removesuffix('; it must be "content"') == said


@pytest.mark.parametrize(("name", "value"), [("speculate", 1025), ("speculate", -1), ("predicted", ("x" * HUGE, "y"))])
def test_a_request_that_a_program_makes_has_the_same_limits(name: str, value: Any) -> None:
    given: Json = {name: value}
    with pytest.raises(InvalidRequest) as caught:
        Request("m", **given)
    assert caught.value.field == name


@every_path
@pytest.mark.parametrize("given", [True, False, None])
def test_every_path_reads_whether_the_answer_must_be_repeatable(decode: Decode, given: bool | None) -> None:
    assert decode({"repeatable": given}).repeatable is given
    with pytest.raises(InvalidRequest, match=r'repeatable must be true or false, not "yes"'):
        decode({"repeatable": "yes"})


def test_each_choice_has_the_drafts_of_the_request() -> None:
    requests = chat.decode_request(MESSAGES | {"n": 2, "speculative": 3, "prediction": expecting("a")}).requests
    assert [(each.speculate, each.predicted) for each in requests] == [(3, ("a",))] * 2


@pytest.mark.parametrize(
    ("surface", "encode", "kept"),
    [
        ("chat", chat_client.encode_request, ["prediction"]),
        ("responses", responses_client.encode_request, []),
        ("anthropic", anthropic_client.encode_request, []),
    ],
)
def test_a_provider_gets_what_its_protocol_has(surface: str, encode: Callable[..., Json], kept: list[str]) -> None:
    given: Json = {"speculative": 4, "prediction": expecting("a")}
    given |= {"speculative.n_max": 4, "speculative.n_min": 1, "speculative.p_min": 0.5, "repeatable": False}
    body = encode(ALL[surface]({"model": "m", **given}), ENDPOINT)
    assert {name: value for name, value in body.items() if name in given} == {name: given[name] for name in kept}


# ---- what is reported

USAGE = Usage(10, 4, 0, 9, 2, drafted=7, accepted=5)
DETAILS = {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2}


def test_usage_tells_accepted_and_rejected_tokens_where_there_were_drafts() -> None:
    assert encode_usage(USAGE)["completion_tokens_details"] == {"reasoning_tokens": 2, **DETAILS}
    assert encode_usage_of_responses(USAGE)["output_tokens_details"] == {"reasoning_tokens": 2, **DETAILS}
    assert encode_usage(Usage(10, output=9))["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_drafted_tokens_are_in_no_sum_of_tokens() -> None:
    assert (USAGE.prompt, USAGE.total) == (14, 23)
    assert Usage(20, 8, 0, 18, 4, drafted=14, accepted=10) == USAGE + USAGE


def test_the_choices_of_an_answer_are_counted_together() -> None:
    total = sum_usage([USAGE, USAGE], 2)
    assert (total.prompt, total.drafted, total.accepted) == (14, 14, 10)


def test_timings_have_llama_servers_names_where_there_were_drafts() -> None:
    timings = Watch(began=0, clock=lambda: 0).timings(USAGE)
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (7, 5)
    assert "draft_n" not in Watch(began=0, clock=lambda: 0).timings(Usage(10, output=9))


@pytest.mark.parametrize("details", ["completion_tokens_details", "output_tokens_details"])
def test_what_a_provider_counts_is_read(details: str) -> None:
    given = {"prompt_tokens": 14, "completion_tokens": 9, details: {"reasoning_tokens": 2, **DETAILS}}
    assert usage_of(given) == Usage(14, output=9, reasoning=2, drafted=7, accepted=5)


@pytest.mark.parametrize("count", [-3, "x", None, [], {}])
def test_a_count_that_is_none_is_not_believed(count: Any) -> None:
    given = {"completion_tokens": 9, "completion_tokens_details": {"accepted_prediction_tokens": count}}
    assert usage_of(given) == Usage(output=9)


def test_no_more_tokens_are_accepted_than_there_are() -> None:
    given = {"completion_tokens": 3, "completion_tokens_details": {"accepted_prediction_tokens": 10**12}}
    assert usage_of(given) == Usage(output=3, drafted=3, accepted=3)
