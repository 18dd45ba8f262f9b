"""The tests of `tests/unit/test_adapters.py` that take long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import httpx2
import pytest
from tests.llama_server import llama_server
from tests.unit.test_adapters import PROMPTS, Client, Files, files, ours  # noqa: F401 - fixtures

from shepherd.models.catalog import embedded

pytestmark = pytest.mark.model

SETS: tuple[tuple[tuple[int, float], ...], ...] = (
    ((0, 0.0),), ((0, 1.0),), ((0, 0.5),), ((1, 1.0),), ((0, 1.0), (1, -0.5)),
)  # fmt: skip


@contextmanager
def theirs(*options: str) -> Iterator[Client]:
    """llama-server."""
    alone = ("-c", "1024", "-np", "1", "-fa", "off", "--cache-ram", "0")
    with llama_server(embedded(), *alone, *options) as url, httpx2.Client(base_url=url, timeout=120) as http:
        yield Client(http)


@pytest.fixture(scope="module")
def original(files: Files) -> Iterator[Client]:
    with theirs("--lora", f"{files.law},{files.med}") as client:
        yield client


def test_greedy_tokens_are_those_of_llama_server(ours: Client, original: Client) -> None:
    """In any order: each request finds what the others have left in the cache."""
    asked = [(prompt, lora) for prompt in PROMPTS for lora in SETS] * 2
    Random(1).shuffle(asked)
    expected = {one: original.tokens(*one) for one in dict.fromkeys(asked)}
    assert len({tuple(tokens) for tokens in expected.values()}) > 3 * len(PROMPTS), "the adapters change the answers"
    for one in asked:
        assert ours.tokens(*one) == expected[one], one


def test_a_control_vector_is_that_of_llama_server(ours: Client, files: Files) -> None:
    scaled = ("--control-vector-scaled", f"{files.calm}:0.8", "--control-vector-layer-range", "2", "3")
    with theirs(*scaled) as client:
        for prompt in PROMPTS:
            expected = client.tokens(prompt, None)
            assert ours.tokens(prompt, ((2, 0.8),)) == expected
            assert ours.tokens(prompt, ((0, 0.0),)) != expected
