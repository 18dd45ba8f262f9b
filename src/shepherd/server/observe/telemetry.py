"""OpenTelemetry: one span per request, for installations of `shepherd[otel]` that are configured for it.

The usual variables configure it: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `_TRACES_ENDPOINT`) or `OTEL_TRACES_EXPORTER` switch
it on, `OTEL_SDK_DISABLED` off; `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`
and the other `OTEL_EXPORTER_OTLP_*` mean what they mean everywhere: the SDK reads them. A caller's `traceparent` is
continued. A span contains neither text of a conversation nor a key.

The conventions for generative AI are still in development and their names change: they are all in this file, as of
schema gen-ai/1.42.0. Without the extra, or without a variable, nothing is imported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from shepherd.core import Event, Finished, Started
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record
from shepherd.wire.base import Decoded

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

logger = logging.getLogger(__name__)

SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
EXPORTERS = ("otlp", "console", "none")
FLUSH_S = 3.0
"""How long the last spans may take to be sent: a missing collector must not delay the end."""

OPERATION, PROVIDER, CONVERSATION = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.conversation.id"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
MAX_TOKENS, SAMPLING = "gen_ai.request.max_tokens", "gen_ai.request."
SAMPLED = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")
"""Fields of a request in the span, if they are set. Not its stop strings: they are the client's text."""
CHOICES, STREAM = "gen_ai.request.choice.count", "gen_ai.request.stream"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED_TOKENS, WRITTEN_TOKENS = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"
ERROR, STATUS = "error.type", "http.response.status_code"
SURFACE, CACHE, EVICTED, ID = "shepherd.surface", "shepherd.cache", "shepherd.evicted_messages", "shepherd.request.id"
"""Our own: the conventions have no names for these."""

OURSELVES = "shepherd"
"""The provider, where our own engine answers."""
OPERATIONS = {
    "completions": "text_completion", "generate": "text_completion", "embed": "embeddings", "memory": "memory",
}  # fmt: skip
"""By a word in the name of an endpoint; all others are `chat`."""
FINISHES = {"end": "stop", "stop": "stop", "length": "length", "tool_calls": "tool_call", "filtered": "content_filter"}
"""By our own stop reasons."""


class Tracing:
    """Makes the observers, and sends their spans."""

    def __init__(self, provider: TracerProvider) -> None:
        """`provider` is closed with this."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider = provider
        self.tracer = provider.get_tracer("shepherd")
        self.propagator = TraceContextTextMapPropagator()

    def observe(self, record: Record) -> SpanObserver:
        """The observer of a new request: for `create_app(observe=...)`."""
        return SpanObserver(self)

    def close(self) -> None:
        """Send the last spans. Blocks for `FLUSH_S` at most; on any thread."""
        # The SDK's own limits leave its retries out.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(FLUSH_S)


def configured(environ: Mapping[str, str]) -> Tracing | None:
    """The tracing that the environment configures; None without one, or if it fails (the log gives the reason)."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or exporter == "none" or not any(environ.get(name, "").strip() for name in SWITCHES):
        return None
    if exporter not in EXPORTERS:
        logger.warning("OTEL_TRACES_EXPORTER is %r; known are %s. No traces are sent", exporter, ", ".join(EXPORTERS))
        return None
    try:
        return Tracing(_provider(exporter))
    except ImportError:
        logger.warning("no traces are sent: OTEL_* asks for them, but shepherd[otel] is not installed")
        return None


def _provider(exporter: str) -> TracerProvider:
    """Raises: `ImportError` without the extra."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra, and slow
    from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415

    sender: export.SpanExporter
    if exporter == "console":
        sender = export.ConsoleSpanExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        sender = OTLPSpanExporter()
    named = dict(Resource.create().attributes)
    # The SDK calls a service without a name `unknown_service`; a name in the environment wins over ours.
    if str(named.get("service.name", "")).startswith("unknown_service"):
        del named["service.name"]
    provider = TracerProvider(resource=Resource({"service.name": OURSELVES, **named}), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(sender))
    return provider


class SpanObserver(Observer):
    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._begun_ns = time.time_ns()
        self._parent: Any = None
        self._decoded: Decoded[Any] | None = None
        self._model = ""
        self._finishes: list[str] = []

    def receive(self, scope: Scope, body: bytes) -> None:
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._parent = self._tracing.propagator.extract(carrier)

    def decode(self, decoded: Decoded[Any]) -> None:
        self._decoded = decoded

    def see(self, event: Event, choice: int) -> None:
        match event:
            case Started(model=model):
                self._model = model
            case Finished(reason=reason):
                self._finishes.append(FINISHES.get(reason, reason))
            case _:
                pass

    def close(self, record: Record) -> None:
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415

        operation = next((name for word, name in OPERATIONS.items() if word in record.surface), "chat")
        span = self._tracing.tracer.start_span(
            f"{operation} {record.model}".strip(),
            context=self._parent,
            kind=SpanKind.SERVER,
            start_time=self._begun_ns,
            # A sampler may choose by these.
            attributes={OPERATION: operation, REQUEST_MODEL: record.model, SURFACE: record.surface},
        )
        if span.is_recording():
            span.set_attributes(self._attributes(record))
            # The reason, in one word, if there is no whole answer. A wrong request is not a failure of the server.
            if record.status != 200 or (record.started and not record.finished):
                span.set_attribute(ERROR, record.reason.partition(" field=")[0].replace(" ", "_"))
                if record.status >= 500 or (record.status == 200 and not record.client_gone):
                    span.set_status(StatusCode.ERROR)
        span.end()

    def _attributes(self, record: Record) -> dict[str, Any]:
        usage = record.usage
        values: dict[str, Any] = {
            # `local:MODEL` is our own engine; other back ends begin with the provider's name.
            PROVIDER: OURSELVES if record.backend.startswith(("local", "-")) else record.backend.partition(":")[0],
            ID: record.id,
            STATUS: record.status,
            RESPONSE_MODEL: self._model or None,
            CACHE: record.cache or None,
            CONVERSATION: record.session or None,
            EVICTED: record.evicted or None,
            FINISH_REASONS: self._finishes or None,
            FIRST_CHUNK: None if record.first_s is None else record.first_s - record.begun_s,
        }
        if record.started:
            values |= {
                INPUT_TOKENS: usage.prompt,
                OUTPUT_TOKENS: usage.output,
                CACHED_TOKENS: usage.cache_read,
                WRITTEN_TOKENS: usage.cache_write or None,
            }
        if self._decoded is not None:
            request = self._decoded.request
            values |= {SAMPLING + name: getattr(request.sampling, name) for name in SAMPLED}
            values |= {MAX_TOKENS: request.max_tokens}
            values |= {STREAM: self._decoded.stream, CHOICES: record.n_choices if record.n_choices > 1 else None}
        return {name: value for name, value in values.items() if value is not None}
