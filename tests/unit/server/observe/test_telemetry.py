"""One span per request, read back from the SDK's own exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.in_process import client_of
from tests.scripted_service import Script, ScriptedService, playing

from shepherd.core import ContextFull, EngineError, Event, Evicted, Finished, Started, TextDelta, Usage
from shepherd.server.observe.telemetry import Tracing, configured

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "prompt-text"}]}
ANSWER: tuple[Event, ...] = (
    Started("qwen", "local:qwen", Usage(3, 4), cache="main"),
    TextDelta("answer-text"),
    Finished("length", Usage(3, 4, 0, 5)),
)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def sent() -> Iterator[tuple[Tracing, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    yield tracing, exporter
    tracing.close()


Sent = tuple[Tracing, InMemorySpanExporter]


async def span_of(
    sent: Sent, script: Script, body: Any = BODY, *, path: str = CHAT, headers: Mapping[str, str] | None = None
) -> ReadableSpan:
    """The one span of one request."""
    tracing, exporter = sent
    async with client_of(ScriptedService(script), observe=(tracing.observe,)) as client:
        await client.post(path, json=body, headers=dict(headers or {}))
    (span,) = exporter.get_finished_spans()
    return span


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_a_span_with_the_names_of_the_conventions(sent: Sent, stream: bool) -> None:
    body = {
        **BODY,
        "stream": stream,
        "temperature": 0.5,
        "max_tokens": 9,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["stop-text"],
    }
    headers = {"x-request-id": "id-1", "x-session-id": "s-1"}
    span = await span_of(sent, playing(*ANSWER), body, headers=headers)
    assert span.name == "chat m"
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes or {})
    first_s = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first_s, float)
    assert first_s >= 0
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "shepherd",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": stream,
        "gen_ai.response.model": "qwen",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "http.response.status_code": 200,
        "shepherd.surface": "openai-chat",
        "shepherd.cache": "main",
        "shepherd.request.id": "id-1",
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    assert "-text" not in span.to_json()


async def test_the_trace_of_the_caller_is_continued(sent: Sent) -> None:
    span = await span_of(sent, playing(*ANSWER), headers={"traceparent": PARENT})
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]


@pytest.mark.parametrize("parent", ["", "nonsense", "00-0-0-01", PARENT + "-more", "ff" + PARENT[2:]])
async def test_an_unreadable_trace_is_replaced_by_a_new_one(sent: Sent, parent: str) -> None:
    assert (await span_of(sent, playing(*ANSWER), headers={"traceparent": parent})).parent is None


async def test_what_the_caller_does_not_want_recorded_is_not(sent: Sent) -> None:
    tracing, exporter = sent
    async with client_of(ScriptedService(playing(*ANSWER)), observe=(tracing.observe,)) as client:
        await client.post(CHAT, json=BODY, headers={"traceparent": PARENT[:-2] + "00"})
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("events", "body", "said", "is_failure"),
    [
        ((ContextFull(needed=9, limit=5),), BODY, ("context_length_exceeded", 400), False),
        ((*ANSWER,), {**BODY, "messages": 1}, ("invalid_request", 400), False),
        ((EngineError("broke"),), BODY, ("engine_error", 500), True),
        ((*ANSWER[:2], EngineError("broke")), {**BODY, "stream": True}, ("engine_error", 200), True),
        ((RuntimeError("bug"),), BODY, ("server_error", 500), True),
    ],
)
async def test_a_failure_says_why_in_one_word(
    sent: Sent, events: Any, body: Any, said: tuple[str, int], is_failure: bool
) -> None:
    span = await span_of(sent, playing(*events), body)
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["http.response.status_code"]) == said
    assert (span.status.status_code is StatusCode.ERROR) == is_failure
    assert "-text" not in span.to_json()


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        ("/v1/messages", {**BODY, "max_tokens": 5}, "chat"),
        ("/v1/completions", {"model": "m", "prompt": "prompt-text"}, "text_completion"),
        ("/api/generate", {"model": "m", "prompt": "prompt-text"}, "text_completion"),
        ("/v1/embeddings", {"model": "m", "input": "prompt-text"}, "embeddings"),
    ],
)
async def test_every_surface_has_its_operation(sent: Sent, path: str, body: Any, operation: str) -> None:
    span = await span_of(sent, playing(*ANSWER), body, path=path)
    assert span.name == f"{operation} m"
    assert (span.attributes or {})["gen_ai.operation.name"] == operation


async def test_evictions_other_providers_and_several_choices_are_in_the_span(sent: Sent) -> None:
    events = (Started("gpt", "openai:gpt"), Evicted(2, 30), TextDelta("x"), Finished("end", Usage(1, 0, 0, 2)))
    span = await span_of(sent, playing(*events), {**BODY, "n": 2})
    attributes = span.attributes or {}
    assert attributes["gen_ai.provider.name"] == "openai"
    assert attributes["gen_ai.request.choice.count"] == 2
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "stop")
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["shepherd.evicted_messages"] == 4


# ---- whether at all


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "mine"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_without_being_asked_there_are_no_traces(environ: Mapping[str, str]) -> None:
    assert configured(environ) is None


def test_an_unknown_exporter_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert configured({"OTEL_TRACES_EXPORTER": "jaeger"}) is None
    assert "'jaeger'; known are otlp, console, none" in caplog.text
