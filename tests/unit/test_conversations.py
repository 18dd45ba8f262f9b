"""Conversations on a really started server and in the terminal: acceptance scenarios 8, 9, 10, 19, 20 and 22.

The number in a test's name is the scenario's in the project's requirements.
"""

from __future__ import annotations

import concurrent.futures
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line
from tests.cases import amount
from tests.own_server import serving

pytestmark = pytest.mark.model

Messages = list[dict[str, Any]]


CLIENT = httpx2.Client(timeout=120)
"""Making one takes longer than many an answer."""


@pytest.fixture(scope="session", autouse=True)  # another folder uses the client, too
def _close_the_client() -> Iterator[None]:
    yield
    CLIENT.close()


@dataclass
class Answer:
    text: str
    prompt: int
    cached: int

    @property
    def new(self) -> int:
        return self.prompt - self.cached


def ask(address: str, messages: Messages, **more: Any) -> Answer:
    body = {"model": "lamb", "messages": messages, "temperature": 0, "max_tokens": 24, **more}
    told = CLIENT.post(f"{address}/v1/chat/completions", json=body)
    assert told.status_code == 200, told.text
    answer = told.json()
    usage = answer["usage"]
    return Answer(
        answer["choices"][0]["message"]["content"],
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def caches(address: str) -> Any:
    return CLIENT.get(f"{address}/v1/caches").json()["caches"]


def waiting_for(address: str, name: str, holds: Callable[[Any], bool]) -> Any:
    """The figures of a cache as soon as this holds."""
    until_s = time.monotonic() + 60
    while not holds(cache := caches(address)[name]):
        assert time.monotonic() < until_s, cache
    return cache


NAMES = ("Ada", "Bob", "Carl", "Dora", "Emma", "Finn", "Gina", "Hugo")
SAID = (
    "Hello!",
    "My name is {}.",
    "What can you do?",
    "I live in a small town by the sea, and I like it there.",
    "Tell me something nice.",
    "What is my name?",
)


# 8. The second turn is cheap


# 9. Edited history


# 10. The system prompt changes


def test_10_the_first_request_does_not_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shepherd")
    with serving(tmp_path) as address:
        ask(address, [said("system", "You are one."), said("user", "Hello!")])
    assert "model 'lamb'" in caplog.text or "cache 'main'" in caplog.text
    assert "system prompt" not in caplog.text


# 19. Background requests do not disturb


N_BACKGROUND = amount(3, 6)


def test_19_a_conversation_keeps_its_cells_while_others_come_and_go(tmp_path: Path, two_caches: str) -> None:
    with serving(tmp_path, two_caches) as address:
        history: Messages = [said("system", "You are Lamb."), said("user", "My name is Emma.")]
        history.append(said("assistant", ask(address, history).text))
        for n in range(N_BACKGROUND):
            held = caches(address)["main"]["sequences"]
            background = [said("user", f"Name conversation {n}: " + "word " * 60)]
            ask(address, background, model="claude-3-5-HAIKU", max_tokens=4)
            assert [s["tokens"] for s in caches(address)["main"]["sequences"]] == [s["tokens"] for s in held]
            history.append(said("user", "What is my name?"))
            answer = ask(address, history)
            assert answer.new <= 30, "the same prefix hit"
            assert "Emma" in answer.text
            history.append(said("assistant", answer.text))
        assert caches(address)["fast"]["jobs"] == N_BACKGROUND
        assert caches(address)["main"]["dropped"] == 0


# 20. Parallel clients


def test_20_a_request_that_fills_the_pool_harms_nobody(tmp_path: Path, two_caches: str) -> None:
    with serving(tmp_path, two_caches.replace("n_ctx = 2048", "n_ctx = 600")) as address:
        short: Messages = [
            said("user", "My name is Ada."),
            said("assistant", "Got it."),
            said("user", "What is my name?"),
        ]
        alone = ask(address, short)

        def greedy(n: int) -> int:
            body = {"model": "lamb", "messages": [said("user", f"Tell me story {n}.")], "ignore_eos": True, "seed": n}
            told = httpx2.post(f"{address}/v1/chat/completions", json={**body, "max_tokens": 500}, timeout=120).json()
            assert told["choices"][0]["finish_reason"] == "length"
            return int(told["usage"]["completion_tokens"])

        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            hogs = [pool.submit(greedy, n) for n in range(3)]
            others = [pool.submit(ask, address, short) for _ in range(6)]
            assert {other.result().text for other in others} == {alone.text}
            assert [hog.result() for hog in hogs] == [500, 500, 500], "each of them got all that it asked for"
        assert caches(address)["main"]["preemptions"] > 0


def test_20_a_full_queue_is_a_429_with_retry_after(tmp_path: Path, two_caches: str) -> None:
    with serving(tmp_path, two_caches.replace("n_ctx = 2048", "n_ctx = 2048\nsequences = 1\nqueue = 1")) as address:
        path = f"{address}/v1/chat/completions"
        body = {"model": "lamb", "messages": [said("user", "Hello!")], "max_tokens": 4}
        long = {**body, "stream": True, "ignore_eos": True, "max_tokens": 1900}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with CLIENT.stream("POST", path, json=long) as running:
                lines = running.iter_lines()
                next(lines)
                queued = pool.submit(httpx2.post, path, json=body, timeout=120)
                waiting_for(address, "main", lambda cache: cache["waiting"] == 1)
                refused = [CLIENT.post(path, json=body) for _ in range(2)]
            assert queued.result().status_code == 200
        for answer in refused:
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"


# 22. The endless conversation; over HTTP only for those who ask for it


N_TURNS = amount(30, 60)


def test_22_many_turns_in_the_terminal_on_512_tokens(tmp_path: Path) -> None:
    """Sixty in a thorough run."""
    lines = "".join(SAID[n % len(SAID)].format(NAMES[n % 8]) + "\n" for n in range(N_TURNS))
    command = ("--context-size", "512", "--enable-eviction", "--threads", "1")
    done = command_line.run(*command, "--verbose", "--temperature", "0", "--max-tokens", "20", stdin=lines)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len(re.findall(r"^> ", done.stdout, re.MULTILINE)) >= N_TURNS
    evicting = re.findall(r"Evicting messages (\d+)-(\d+) \(tokens (\d+)-(\d+)\)", done.stderr)
    shifting = re.findall(r"Shifting remaining tokens by -(\d+)", done.stderr)
    assert len(evicting) >= 3
    assert [int(stop) - int(start) for *_, start, stop in evicting] == [int(z) for z in shifting[: len(evicting)]]
    assert all(int(size) <= 512 for size in re.findall(r"New KV cache size: (\d+) tokens", done.stderr))
    assert re.search(r"\d+ messages .*left the context", done.stderr + done.stdout)


EVICTING = """
overflow = "evict"
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 512
"""


def test_22_a_client_that_resends_its_whole_history_hits_the_cache(tmp_path: Path) -> None:
    with serving(tmp_path, EVICTING) as address:
        history: Messages = [said("system", "You are Lamb.")]
        evicted, n_turns = 0, amount(25, 40)
        for turn in range(n_turns):
            history.append(said("user", SAID[turn % len(SAID)].format("Hugo")))
            body = {"model": "lamb", "messages": history, "temperature": 0, "max_tokens": 20}
            told = httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=120)
            assert told.status_code == 200, told.text
            evicted += int(told.headers.get("x-shepherd-evicted", 0))
            usage = told.json()["usage"]
            assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 60, turn
            history.append(said("assistant", told.json()["choices"][0]["message"]["content"]))
        assert evicted > amount(5, 20)
        assert caches(address)["main"]["evicted_messages"] == evicted


def test_22_what_must_stay_and_does_not_fit_is_a_400(tmp_path: Path) -> None:
    with serving(tmp_path, EVICTING) as address:
        for code, messages in (
            ("400", [said("system", "word " * 600), said("user", "Hello!")]),  # no client can shorten it (ADR 18)
            ("context_length_exceeded", [said("user", "word " * 600)]),
        ):
            body = {"model": "lamb", "messages": messages}
            told = httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=120)
            assert told.status_code == 400
            error = told.json()["error"]
            assert error["code"] == code
            assert "512" in error["message"]
        assert ask(address, [said("user", "Hello!")]).text


# The cold tier


DISK = """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 1024
[kv]
disk = true
folder = {folder}
"""


def test_conversations_are_warm_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That of a whole process is in `server/test_house.py`."""
    config = DISK.format(folder=json.dumps(str(tmp_path / "kept")))
    histories: dict[str, Messages] = {}
    with serving(tmp_path, config) as address:
        for name in NAMES[:3]:
            system = " ".join(f"{name} likes rule {n}." for n in range(20))
            history = [said("system", system), said("user", f"My name is {name}.")]
            history.append(said("assistant", ask(address, history).text))
            histories[name] = [*history, said("user", "What is my name?")]
        cold = {name: (CLIENT.delete(f"{address}/v1/caches/main"), ask(address, h))[1] for name, h in histories.items()}
        for name in NAMES[:3]:
            ask(address, histories[name][:2])
    assert list((tmp_path / "kept").iterdir())
    with serving(tmp_path, config) as address:  # its model is loaded by the first request, after the folder is read
        for name, history in histories.items():
            warm = ask(address, history)
            assert warm.text == cold[name].text
            assert warm.new < 40
            assert warm.cached > 20
        assert caches(address)["main"]["restored"] >= 1
    damaged = sorted((tmp_path / "kept").iterdir())
    for file in damaged:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
    caplog.clear()
    with serving(tmp_path, config) as address:
        for name, history in histories.items():
            assert ask(address, history).text == cold[name].text, "a damaged file costs time and nothing else"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in warnings if "kept" in line or "damaged" in line]) == 1, warnings
