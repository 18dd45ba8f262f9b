"""However a server is asked to stop, the conversations of its cells are on disk; other commands end in order."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import httpx2
import psutil
import pytest
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
"""
N_TALKS = 4
STOPS = {
    "SIGTERM": [signal.SIGTERM],
    "Ctrl-C": [signal.SIGINT],
    "a closed terminal": [signal.SIGHUP],
    "all of them, several times": [signal.SIGHUP, signal.SIGTERM, signal.SIGINT] * 3,
}


def cached(url: str, number: int) -> int:
    """How many tokens of a conversation were computed before."""
    text = f"{number} is the number of this talk. " + f"alpha{number} beta gamma " * 15
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 4}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S)
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.grid(0.3)
@pytest.mark.parametrize("stop", STOPS)
def test_every_conversation_comes_back_after_a_stop(stop: str, tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    with serving(tmp_path) as (process, url):
        for number in range(N_TALKS):
            cached(url, number)
        for sent in STOPS[stop]:
            process.send_signal(sent)
        assert process.wait(PATIENCE_S) == 0
    with serving(tmp_path) as (process, url):
        assert [number for number in range(N_TALKS) if cached(url, number) < 100] == []


def test_nothing_is_lost_where_every_process_is_told_to_stop(tmp_path: Path) -> None:
    """As systemd does it: the processes of engines get the signal too, and wait for the server's word."""
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    with serving(tmp_path) as (process, url):
        for number in range(N_TALKS):
            cached(url, number)
        everyone = psutil.Process(process.pid).children(recursive=True)
        assert everyone
        for each in everyone:
            each.terminate()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    with serving(tmp_path) as (process, url):
        assert [number for number in range(N_TALKS) if cached(url, number) < 100] == []


def test_a_stream_ends_in_order_when_the_terminal_is_closed(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(CONFIG + "[server]\ngrace_s = 0.1\n")
    body = {
        "messages": [{"role": "user", "content": "Tell me a story"}],
        "max_tokens": 1900,
        "ignore_eos": True,
        "stream": True,
    }
    with serving(tmp_path) as (process, url):
        with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S) as answer:
            process.send_signal(signal.SIGHUP)
            told = answer.read().decode()  # raises for one that is cut
        assert "server is stopping" in told or told.rstrip().endswith("[DONE]")
        assert process.wait(PATIENCE_S) == 0


def test_a_server_that_is_to_ignore_hang_ups_keeps_running(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    with serving(tmp_path, before=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]) as (process, url):
        for number in range(3):
            process.send_signal(signal.SIGHUP)
            assert cached(url, number) >= 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.grid(0.1)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_command_without_an_event_loop_ends_in_order(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    with serving(tmp_path) as (_, url), program(tmp_path, "top", "--url", url, "--json") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("{")
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 128 + number
        finally:
            process.kill()
