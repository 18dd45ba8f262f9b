"""Conversations on a really started server and in the terminal: acceptance scenarios 8, 9, 10, 19, 20 and 22.

The number in a test's name is the scenario's in the project's requirements.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line
from tests.cases import amount
from tests.own_server import serving

pytestmark = pytest.mark.model

StartServer = Callable[..., AbstractContextManager[str]]
Messages = list[dict[str, Any]]


CLIENT = httpx2.Client(timeout=120)
"""Making one takes longer than many an answer."""


@pytest.fixture(scope="module", autouse=True)
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


@pytest.fixture(scope="module")
def logged(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that logs everything but what is said, and its log."""
    log = tmp_path_factory.mktemp("logged") / "log"
    with start_server("--log-level", "debug", log=log) as address:
        yield address, log


# 8. The second turn is cheap


def test_8_a_turn_costs_its_new_tokens(logged: tuple[str, Path]) -> None:
    address, log = logged
    system = said("system", " ".join(f"Rule {n}: be kind to guest number {n}." for n in range(130)))
    history: Messages = [system]
    lines = log.read_text().count("\n")
    turns: list[Answer] = []
    for turn in range(10):
        history.append(said("user", SAID[turn % len(SAID)].format("Ada")))
        answer = ask(address, history)
        turns.append(answer)
        history.append(said("assistant", answer.text))
    assert turns[0].cached == 0
    assert turns[0].prompt > 1500
    before = 0
    for earlier, later in itertools.pairwise(turns):
        # All of the last turn is there, the answer and its closing tag too; the answer's own tokens are not known here.
        assert later.cached >= earlier.prompt
        assert later.new <= 60
        before += earlier.new
    told = "\n".join(log.read_text().splitlines()[lines:])
    counts = [int(n) for n in re.findall(r"Prompt processing: (\d+) tokens in [\d.]+ s \([\d.]+ tokens/s\)", told)]
    assert counts == [turn.new for turn in turns], "the log counts what was really computed"
    assert "generate_from_session called with 20 messages" in told
    assert "KV cache contains 18 messages, session has 20 messages" in told
    # Lines of other threads may stand between these two.
    held = re.findall(r"Prefix match: (\d+) messages already cached\n(?:.*\n){0,5}?.*Adding (\d+) new messages", told)
    assert ("19", "1") in held, held
    assert re.search(r"Generation limits: \d+ max tokens \(protected: system=\d+ \+ user=\d+ \+ buffer=\d+\)", told)
    assert "Added closing tag to KV cache: <|im_end|>" in told
    assert "guest number" not in told, "what was said is in no log"


def test_8_answers_are_those_of_a_cold_server(logged: tuple[str, Path], server: str) -> None:
    address, _ = logged
    history: Messages = [said("system", "You are Lamb. Be short.")]
    for text in SAID:
        history.append(said("user", text.format("Finn")))
        answer = ask(address, history)
        CLIENT.delete(f"{server}/v1/caches/main")
        again = ask(server, history)
        assert again.cached == 0
        assert answer.text == again.text
        history.append(said("assistant", answer.text))


# 9. Edited history


def test_9_an_edited_history_is_computed_from_the_edit_on(logged: tuple[str, Path]) -> None:
    address, log = logged
    history: Messages = []
    for text in ("My name is Carl.", "I have a dog called Rex.", "What is my name?"):
        history.append(said("user", text))
        history.append(said("assistant", ask(address, history).text))
    mark = len(log.read_text())
    edited = [*history[:2], said("user", "I have a cat called Mia."), *history[3:5]]
    warm = ask(address, edited)
    told = log.read_text()[mark:]
    assert "Conversation diverged at message 2" in told
    assert warm.cached > 0, "what stands before the edit stays"
    again = ask(address, edited)
    assert again.text == warm.text
    assert again.new == 1, "only the last token is computed, for fresh logits (K5)"
    assert "Prompt already cached, skipping tokenization/decoding" in log.read_text()[mark:]
    CLIENT.delete(f"{address}/v1/caches/main")
    cold = ask(address, edited)
    assert (cold.cached, cold.text) == (0, warm.text)


def test_9_histories_may_shrink_repeat_and_reorder(logged: tuple[str, Path]) -> None:
    address, _ = logged
    history: Messages = []
    for text in SAID:
        history.append(said("user", text.format("Dora")))
        history.append(said("assistant", ask(address, history).text))
    generator = random.Random(5)
    for _ in range(amount(5, 12)):
        n = generator.randrange(1, len(history))
        part = [*history[:n], *generator.sample(history, 3), said("user", "What is my name?")]
        warm = ask(address, part)
        CLIENT.delete(f"{address}/v1/caches/main")
        assert ask(address, part).text == warm.text


# 10. The system prompt changes


def test_10_a_changed_system_prompt_is_warned_of_once_per_change(logged: tuple[str, Path]) -> None:
    address, log = logged

    def warnings_after(system: str) -> list[str]:
        mark = len(log.read_text())
        ask(address, [said("system", system), said("user", "Hello!")])
        return re.findall(r"system prompt .*cache 'main'.*", log.read_text()[mark:])

    warnings_after("You are one.")
    assert len(warnings_after("You are another.")) == 1
    assert warnings_after("You are another.") == []
    assert len(warnings_after("You are one.")) == 1
    assert warnings_after("You are one.") == []


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


def test_20_no_conversation_sees_another(tmp_path: Path, two_caches: str) -> None:
    """A soak: eight clients, two caches, cells for a few of them only; every answer is compared with a lonely one's."""
    generator = random.Random(20)
    scripts = {name: [text.format(name) for text in [SAID[1], *generator.sample(SAID, 3), SAID[-1]]] for name in NAMES}

    def talk(address: str, name: str, model: str) -> list[str]:
        history: Messages = [said("system", "You are Lamb.")]
        answers = []
        for text in scripts[name]:
            history.append(said("user", text))
            answers.append(ask(address, history, model=model).text)
            history.append(said("assistant", answers[-1]))
        return answers

    with serving(tmp_path, two_caches.replace("n_ctx = 2048", "n_ctx = 700")) as address:
        alone: dict[str, list[str]] = {}
        for name in NAMES:
            alone[name] = talk(address, name, "lamb")
            CLIENT.delete(f"{address}/v1/caches/main")
        healthy: list[bool] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                healthy.append(httpx2.get(f"{address}/health", timeout=10).status_code == 200)
                time.sleep(0.05)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as pool:
            models = itertools.cycle(("lamb", "lamb", "lamb", "claude-haiku"))
            for _ in range(amount(1, 3)):
                got = dict(zip(NAMES, pool.map(lambda name: talk(address, name, next(models)), NAMES), strict=True))
                assert {name: answers[-1] for name, answers in got.items() if name not in answers[-1]} == {}
                assert got == alone
        done.set()
        watcher.join()
        main = caches(address)["main"]
        assert main["dropped"] > 0, "there was not room for all of them"
        assert main["restored"] > 0
        assert len(healthy) > 5
        assert all(healthy), "whatever goes on"


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
        for messages in (
            [said("system", "word " * 600), said("user", "Hello!")],
            [said("user", "word " * 600)],
        ):
            body = {"model": "lamb", "messages": messages}
            told = httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=120)
            assert told.status_code == 400
            error = told.json()["error"]
            assert error["code"] == "context_length_exceeded"
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
