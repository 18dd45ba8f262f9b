"""The tests of `tests/unit/server/http/test_listen.py` that start programs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from tests.unit.server.http.test_listen import PATIENCE_S, asking, started


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("loop", ["asyncio", "fastest"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_signal_ends_running_answers_and_lets_the_program_clean_up(number: signal.Signals, loop: str) -> None:
    with started(0.2, loop) as (program, url), asked(url, ENDLESS) as pieces:
        next(pieces)
        program.send_signal(number)
        assert "the server is stopping" in "".join(pieces)
        assert ended(program) == (0, b"cleaned up\n", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_an_answer_that_ends_within_the_grace_is_whole_and_new_requests_are_refused_meanwhile() -> None:
    with started(60) as (program, url), asked(url, 300) as pieces, httpx2.Client(timeout=PATIENCE_S) as other:
        next(pieces)
        assert other.get(f"{url}/health").status_code == 200
        program.send_signal(signal.SIGTERM)
        health = other.get(f"{url}/health")
        while health.status_code == 200:  # until the signal has come
            health = other.get(f"{url}/health")
        assert (health.status_code, health.json()["status"]) == (503, "stopping")
        refused = httpx2.post(f"{url}/v1/chat/completions", json=asking(1))  # over a connection of its own
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        whole = "".join(pieces)
        assert whole.count("word") >= 299
        assert whole.endswith("data: [DONE]\n\n")
        assert "stopping" not in whole
        assert ended(program) == (0, b"cleaned up\n", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_second_signal_does_not_wait() -> None:
    with started(3600) as (program, url), asked(url, ENDLESS) as pieces:
        next(pieces)
        program.send_signal(signal.SIGTERM)
        while httpx2.get(f"{url}/health").status_code == 200:  # until the first has come: two at once are one
            pass
        program.send_signal(signal.SIGTERM)
        assert "the server is stopping" in "".join(pieces)
        assert ended(program) == (0, b"cleaned up\n", b"")


ENDLESS = 10**9


def ended(program: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """The status, and what it said at last."""
    stdout, stderr = program.communicate(timeout=PATIENCE_S)
    return program.returncode, stdout, stderr


@contextmanager
def asked(url: str, n_words: int) -> Iterator[Iterator[str]]:
    """The pieces of an answer of so many words."""
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=asking(n_words), timeout=60) as answer:
        yield answer.iter_text()


BLOCKING = """
import sys
from shepherd.core import Finished, Message, Started, TextDelta
from shepherd.server.app import run_server
from tests.scripted_service import ScriptedService

async def script(request):
    yield Started("fake")
    yield TextDelta("Hi.")
    yield Finished("end")

run_server(ScriptedService(script), "127.0.0.1", int(sys.argv[1]))
"""


def test_a_program_can_run_the_server() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", BLOCKING, str(port)]) as process:
        deadline = time.monotonic() + PATIENCE_S
        answer = None
        while answer is None and time.monotonic() < deadline:
            try:
                body = {"messages": [{"role": "user", "content": "Hello"}]}
                answer = httpx2.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
            except httpx2.ConnectError:
                time.sleep(0.05)
        assert answer is not None
        assert answer.json()["choices"][0]["message"]["content"] == "Hi."
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
