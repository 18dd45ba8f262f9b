"""However a server is asked to stop, the conversations of its cells are on disk; other commands end in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.cases import amount
from tests.in_time import PATIENCE_S
from tests.started import program, serving

pytestmark = [pytest.mark.model, pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")]

CONFIG = """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
[kv]
disk = true
ram_bytes = 0
[server]
grace_s = 0.1
"""
N_TALKS = amount(2, 4)
Process = subprocess.Popen[str]


def signals(*sent: int) -> Callable[[Process, str], None]:
    def stop(process: Process, _url: str) -> None:
        for number in sent:
            process.send_signal(number)

    return stop


def in_an_answer(number: int, path: str, ends: tuple[str, ...]) -> Callable[[Process, str], None]:
    """The answer ends in order, however much is left of it."""

    def stop(process: Process, url: str) -> None:
        messages = [{"role": "user", "content": "Tell me a story"}]
        body = {"model": "m", "messages": messages, "max_tokens": 1900, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", url + path, json=body, timeout=PATIENCE_S) as answer:
            process.send_signal(number)
            told = answer.read().decode()  # raises for one that is cut
        assert any(each in told for each in ends), told[-500:]

    return stop


def everyone(process: Process, _url: str) -> None:
    """As systemd does it: the processes of engines get the signal too, and wait for the server's word."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    for each in children:
        each.terminate()
    process.terminate()


STOPS: dict[str, Callable[[Process, str], None]] = {
    "SIGTERM": signals(signal.SIGTERM),
    "SIGTERM in an answer": in_an_answer(signal.SIGTERM, "/v1/messages", ("event: message_stop", "event: error")),
    "Ctrl-C": signals(signal.SIGINT),
    "a terminal that is closed in an answer": in_an_answer(
        signal.SIGHUP, "/v1/chat/completions", ("server is stopping", "data: [DONE]")
    ),
    "all of them, several times": signals(*[signal.SIGHUP, signal.SIGTERM, signal.SIGINT] * 3),
    "SIGTERM for every process": everyone,
}
TAKEN = amount(("Ctrl-C", "SIGTERM in an answer", "SIGTERM for every process"), tuple(STOPS))
"""The gate takes one way of each kind: at rest, in an answer, with the processes of engines. A start is what costs."""


def asked(url: str, messages: list[Any]) -> tuple[Any, int, int]:
    """The answer, the tokens of its prompt, and how many of them were computed before."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 4}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
    usage = answer["usage"]
    return answer["choices"][0]["message"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def talk(url: str, name: str) -> tuple[list[Any], int]:
    """A new conversation with its next question, and the tokens that another server must not compute again."""
    text = f"{name} is the name of this talk. " + f"alpha {name} beta gamma " * 15
    messages = [{"role": "user", "content": text}]
    answer, n_prompt, n_cached = asked(url, messages)
    assert n_cached < 50
    assert n_prompt > 100
    return [*messages, answer, {"role": "user", "content": "And now?"}], n_prompt - 1


@pytest.mark.timeout(600)  # of up to seven servers, on a machine that is busy
def test_however_a_server_is_asked_to_stop_every_conversation_comes_back(tmp_path: Path) -> None:
    """Each server goes on with the conversations of the one before it, and is stopped in the next way; the last one is
    to ignore hang-ups, and keeps running."""
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    talks: list[tuple[list[Any], int]] = []
    before = "the first start"
    for name in TAKEN:
        with serving(tmp_path) as (process, url):
            assert [n for n, (messages, n_kept) in enumerate(talks) if asked(url, messages)[2] < n_kept] == [], before
            talks = [talk(url, f"{name} {n}") for n in range(N_TALKS)]
            STOPS[name](process, url)
            assert process.wait(PATIENCE_S) == 0, name
        before = name
    with serving(tmp_path, before=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]) as (process, url):
        for messages, n_kept in talks:
            process.send_signal(signal.SIGHUP)
            assert asked(url, messages)[2] >= n_kept, before
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.grid(0.1)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_command_without_an_event_loop_ends_in_order(number: signal.Signals, server: str, tmp_path: Path) -> None:
    with program(tmp_path, "top", "--url", server, "--json") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("{")
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 128 + number
        finally:
            process.kill()
