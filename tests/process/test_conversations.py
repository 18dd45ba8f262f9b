"""The tests of `tests/unit/test_conversations.py` that start programs."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.cases import amount
from tests.unit.test_conversations import (
    CLIENT,
    SAID,
    Answer,
    Messages,
    _close_the_client,  # noqa: F401 - fixtures
    ask,
    said,
)

pytestmark = pytest.mark.model

StartServer = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="module")
def logged(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that logs everything but what is said, and its log."""
    log = tmp_path_factory.mktemp("logged") / "log"
    with start_server("--log-level", "debug", log=log) as address:
        yield address, log


def test_8_a_turn_costs_its_new_tokens(logged: tuple[str, Path]) -> None:
    address, log = logged
    system = said("system", " ".join(f"Rule {n}: be kind to guest number {n}." for n in range(60)))
    history: Messages = [system]
    lines = log.read_text().count("\n")
    turns: list[Answer] = []
    for turn in range(10):
        history.append(said("user", SAID[turn % len(SAID)].format("Ada")))
        answer = ask(address, history)
        turns.append(answer)
        history.append(said("assistant", answer.text))
    assert turns[0].cached == 0
    assert turns[0].prompt > 700
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
