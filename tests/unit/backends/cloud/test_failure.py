"""What a provider's error means: its own words decide, in every shape that they come in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.providers_replay import recordings

from shepherd.backends.cloud.failure import FailureKind, error_of, read
from shepherd.core import ContextFull, InvalidRequest, RateLimited, Refused, Unavailable, Unsupported
from shepherd.wire.sse import EventReader

FAILED = [each for each in recordings() if each["expect"].get("error")]


def body_of(recording: dict[str, Any]) -> Any:
    response = recording["response"]
    if response.get("body") is not None:
        return json.dumps(response["body"]).encode()
    reader = EventReader()
    events = [*reader.feed(response["sse_text"].encode()), *reader.close()]
    return next(json.loads(data) for name, data in events if name == "error" or data.startswith(b'{"error"'))


def test_every_recorded_error_is_read_as_expected() -> None:
    wrong = {}
    for recording in FAILED:
        response, expected = recording["response"], recording["expect"]["error"]
        failed = read(response["status"], response.get("headers") or {}, body_of(recording))
        found = (failed.kind, failed.retryable, failed.delay_s, expected["message"] in failed.words)
        if found != (expected["kind"], expected["retryable"], expected["retry_after_s"], True):
            wrong[recording["id"]] = found, expected
    assert wrong == {}


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48s"}
QUOTA = "You exceeded your current quota, please check your plan and billing details. Please retry in 47.6s."
HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>"
SHAPES: list[tuple[int, dict[str, str], Any, FailureKind, bool, float | None]] = [
    (400, {}, {"code": "invalid-argument", "error": "Incorrect API key provided: sk-1"}, "auth", False, None),
    (400, {}, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status":
        "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}, "auth", False, None),
    (429, {}, {"error": {"code": 429, "message": QUOTA, "status": "RESOURCE_EXHAUSTED", "details": [RETRY_INFO]}},
        "rate_limit", True, 48.0),
    (429, {}, [{"error": {"code": 429, "message": QUOTA, "status": "RESOURCE_EXHAUSTED"}}], "rate_limit", True, 47.6),
    (429, {}, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
        "quota_exhausted", False, None),
    (403, {}, {"code": "c", "error": "The team has used all available credits, or reached its limit"},
        "quota_exhausted", False, None),
    (400, {}, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        "quota_exhausted", False, None),
    (402, {}, {"error": {"message": "Insufficient credits", "code": 402}}, "quota_exhausted", False, None),
    (429, {}, {"error": {"message": "Rate limit reached. Please try again in 976ms.", "code": "rate_limit_exceeded"}},
        "rate_limit", True, 0.976),
    (429, {}, {"error": {"message": "Please try again in 1m30.5s. Visit", "type": "tokens"}}, "rate_limit", True, 90.5),
    (429, {"retry-after": "7", "retry-after-ms": "1500"}, b"", "rate_limit", True, 1.5),
    (429, {"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, b"slow down", "rate_limit", True, 30.0),
    (429, {"retry-after": "nan"}, b"slow down", "rate_limit", True, None),
    (413, {}, {"error": {"message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000",
        "code": "rate_limit_exceeded"}}, "request_too_large", False, None),
    (400, {}, {"object": "error", "message": "The maximum context length is 4096 tokens. However, you requested "
        "5000 tokens (4000 in the messages, 1000 in the completion).", "code": 400}, "context_length", False, None),
    (400, {}, {"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens "
        "allowed (1048576).", "status": "INVALID_ARGUMENT"}}, "context_length", False, None),
    (400, {}, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the context size (4096 tokens)",
        "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}, "context_length", False, None),
    (422, {}, {"detail": [{"loc": ["body", "model"], "msg": "field required"}]}, "invalid_request", False, None),
    (400, {}, {"error": {"message": "Unsupported parameter: 'stop'", "param": "stop", "type": "invalid_request_error"}},
        "invalid_request", False, None),
    (404, {}, {"error": "model 'X' not found"}, "not_found", False, None),
    (502, {}, HTML, "server_error", True, None),
    (503, {}, b"", "server_error", True, None),
    (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Over"}}, "overloaded", True, None),
    (500, {"x-should-retry": "false"}, b"{}", "server_error", False, None),
    (408, {}, b"[]", "server_error", True, None),
    (403, {}, b"<html>no", "permission", False, None),
    (500, {}, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
        "overloaded", True, None),
    (200, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Over"}}, "overloaded", True, None),
    (200, {}, {"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded",
        "message": "Rate limit reached, try again in 2s"}}}, "rate_limit", True, 2.0),
    (200, {}, {"error": {"code": 502, "message": "Provider disconnected"}}, "server_error", True, None),
    (200, {}, {"error": "an error was encountered while running the model"}, "server_error", True, None),
    (400, {}, {"error": {"message": '{"error": {"code": 400, "message": "prompt is too long: 9 tokens > 8 maximum"}}'}},
        "context_length", False, None),
    (418, {}, None, "invalid_request", False, None),
]  # fmt: skip


def test_other_shapes() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    for status, headers, body, *expected in SHAPES:
        failed = read(status, headers, body, now=now)
        assert [failed.kind, failed.retryable, failed.delay_s] == expected, body
        assert failed.words
        assert failed.words.isprintable()


def test_an_overflow_has_its_numbers() -> None:
    found = {}
    for status, headers, body, kind, _, _ in SHAPES:
        if kind == "context_length":
            error = error_of(read(status, headers, body), provider="p")
            assert isinstance(error, ContextFull)
            found[error.limit] = error.needed
    assert found == {4096: 5000, 1_048_576: 1_200_000, 8: 9}


def test_every_server_has_its_own_words_for_the_numbers() -> None:
    for words in (
        "This model's maximum context length is 4,096 tokens. However, you requested 5,000 tokens (4800 in all)",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        "5000 tokens: 4900 tokens from the input messages and 100 tokens for the completion.",
        "the request exceeds the available context size: request (5000 tokens) exceeds the context (4096 tokens)",
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000 >= "
        "n_ctx: 4096).",
        "Prompt contains 5000 tokens and 0 draft tokens, too large for model with 4096 maximum context length",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and "
        "100 `max_new_tokens`",
    ):  # LM Studio, Mistral, Together, vLLM, SGLang, llama-server
        failed = read(400, {}, {"error": {"message": words}})
        assert (failed.kind, failed.needed, failed.limit) == ("context_length", 5000, 4096), words


def test_only_the_excess_is_known() -> None:
    failed = read(400, {}, {"error": "prompt too long; exceeded max context length by 100 tokens (ref: 1)"})
    known = error_of(failed, provider="p", n_ctx=4096)
    unknown = error_of(failed, provider="p")
    assert isinstance(known, ContextFull)
    assert isinstance(unknown, ContextFull)
    assert (known.needed, known.limit, unknown.limit) == (4196, 4096, 0)
    assert "exceeded max context length by 100 tokens" in str(unknown)


def test_the_errors_of_core_have_the_words_and_the_request_but_no_key() -> None:
    def made(status: int, body: Any, headers: dict[str, str] | None = None) -> Any:
        failed = read(status, {"x-request-id": "req_1", **(headers or {})}, body)
        return error_of(failed, provider="mine", key_hint="set KEY", hide=lambda text: text.replace("sk-secret", "***"))

    wrong_key = made(400, {"error": "Incorrect API key provided: sk-secret"})
    assert isinstance(wrong_key, Refused)
    assert wrong_key.status == 401
    assert str(wrong_key) == "mine: Incorrect API key provided: *** (request req_1); set KEY"
    assert "sk-secret" not in wrong_key.body
    rate = made(429, b"slow", {"retry-after": "3"})
    assert isinstance(rate, RateLimited)
    assert rate.retry_after_s == 3
    busy = made(529, b"", {"retry-after": "4"})
    assert isinstance(busy, Unavailable)
    assert busy.retry_after_s == 4
    wrong = made(400, {"error": {"message": "bad", "param": "stop"}})
    assert isinstance(wrong, InvalidRequest)
    assert wrong.field == "stop"
    assert [made(status, b"").status for status in (402, 403, 404, 413)] == [402, 403, 404, 413]


GARBAGE: list[Any] = [
    b"\xff\xfe\x00",
    b"{" * 5000,
    b"[" * 100_000,
    b'{"error":' * 50 + b"1",
    [[[["x"]]]],
    {"error": {"message": []}},
    {"details": 5, "error": {"details": [1, None], "code": {}, "metadata": {"raw": 5}}},
    7,
    True,
    {},
]


def test_the_words_of_a_provider_behind_the_provider_are_shown() -> None:
    body = {"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "m is limited upstream"}}}
    assert read(429, {}, body).words == "Provider returned error: m is limited upstream"


def test_garbage_is_read_without_an_exception() -> None:
    for body in GARBAGE:
        for status in (0, 200, 400, 429, 500, 999):
            failed = read(status, {}, body)
            assert failed.words
            error_of(failed, provider="p")


def test_what_is_wrong_for_one_provider_only_is_not_wrong_everywhere() -> None:
    rows: tuple[tuple[Any, type[InvalidRequest]], ...] = (
        ("stablelm2:latest does not support tools", Unsupported),
        ("Web search options not supported with this model.", Unsupported),
        ({"code": "unsupported_value", "message": "No."}, Unsupported),
        ({"code": "tool_use_failed", "message": "Tool choice is required, but model did not call a tool"}, Unsupported),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', Unsupported),
        ("Unrecognized request argument supplied: top_k", Unsupported),
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", InvalidRequest),
        ("max_tokens must be at least 1, got -186.", InvalidRequest),
        ("", InvalidRequest),
    )
    for error, expected in rows:
        failed = read(400, {}, {"error": error})
        assert type(error_of(failed, provider="p")) is expected, error
    assert not read(404, {}, {"error": "the model m is not supported"}).is_unsupported
