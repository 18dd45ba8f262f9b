"""The tests of `tests/unit/server/observe/test_telemetry.py` that start programs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from tests.unit.server.observe.test_telemetry import sent  # noqa: F401 - fixtures

PROGRAM = """
import json, os, sys
from shepherd.server.observe import telemetry
for more in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(more)
    tracing = telemetry.configured(os.environ)
    assert (tracing is not None) == (len(os.environ.get("OTEL_TRACES_EXPORTER", "")) > 0)
    if tracing:
        tracing.tracer.start_span("a span").end()
        tracing.close()
    print("end of", more)
# A library may import the bare interface by itself, where it is installed.
print(*sorted(name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))),
      file=sys.stderr)
"""


def run(*environments: dict[str, str], first: str = "") -> subprocess.CompletedProcess[str]:
    """What a process does and says whose environment is each of these in turn. `first`: a line of its program."""
    command = [sys.executable, "-c", first + PROGRAM, json.dumps(environments)]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=True, timeout=60)


def test_without_traces_nothing_of_them_is_imported() -> None:
    assert run({}, first="from shepherd.server import app").stderr.split() == []


def test_the_environment_configures_it() -> None:
    usual = {"OTEL_TRACES_EXPORTER": "console"}
    named = {**usual, "OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "team=sheep"}
    first, second, _ = run(named, usual).stdout.split("end of")
    assert '"service.name": "mine"' in first
    assert '"team": "sheep"' in first
    assert '"service.name": "shepherd"' in second
    assert '"team"' not in second


class _Collector(BaseHTTPRequestHandler):
    """Keeps what is sent to it."""

    got: ClassVar[list[tuple[str, str | None, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, self.headers.get("x-team"), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_spans_are_sent_to_the_collector_that_the_environment_names() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="shepherd[otel] is not installed")
    with HTTPServer(("127.0.0.1", 0), _Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_port}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=sheep"}
        run({"OTEL_TRACES_EXPORTER": "otlp", **variables})
        collector.shutdown()
    ((path, team, body),) = _Collector.got
    assert (path, team) == ("/v1/traces", "sheep")
    assert b"a span" in body
