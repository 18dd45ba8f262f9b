"""Which model a first start offers, in which words, and when it asks at all. The start itself: process/cli."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import empty_home  # noqa: F401 - a fixture

from shepherd import config
from shepherd.cli.chat.first_start import SPARE_BYTES, is_due, largest, lines
from shepherd.models.suggestions import SUGGESTIONS, Suggestion

ENDLESS = 2**50


def test_the_largest_that_memory_and_disk_have_room_for_is_offered() -> None:
    for index, each in enumerate(SUGGESTIONS):
        before = SUGGESTIONS[index - 1] if index else None
        assert largest(each.needed_bytes, ENDLESS) == each
        assert largest(each.needed_bytes - 1, ENDLESS) == before
        assert largest(ENDLESS, each.size_bytes + SPARE_BYTES) == each
    assert largest(0, ENDLESS) is largest(ENDLESS, SPARE_BYTES) is None


def test_the_offer_is_three_lines_with_what_it_costs() -> None:
    offered = Suggestion("Big 7B", "hf:a/b:Q4_K_M", 5.03, "Apache-2.0", "chat")
    speed = "about 9.0 tokens/s (from the 45 GB/s of this memory, measured now)"
    here, offer, keys = lines(offered, 8 * 2**30, speed, is_first=True)
    assert here == (
        "No model is chosen yet. Here is a tiny one for trying things out; models may take 8.0 GiB of memory."
    )
    assert offer == (
        "The largest suggested one that fits: Big 7B (hf:a/b:Q4_K_M): 5.03 GB to pull, 5.8 GiB of memory, licence "
        "Apache-2.0, about 9.0 tokens/s (from the 45 GB/s of this memory, measured now)."
    )
    assert keys == "p: pull it and chat   t: the tiny model   l: the whole list   Ctrl-C: leave"
    second = lines(offered, 8 * 2**30, speed, is_first=False)
    assert second == [
        offer.replace("The largest suggested one that fits", "A small one can be had from a package index"),
        keys,
    ]


CASES: dict[str, tuple[str, dict[str, Any], dict[str, str], bool, bool]] = {
    "the first start": ("", {}, {}, True, True),
    "other settings": (
        "memory_budget = 0.5\n[tools]\nenabled = []\n",
        {"threads": 2, "cache_type_k": "q8_0"},
        {},
        True,
        True,
    ),
    "CI is off": ("", {}, {"CI": "false"}, True, True),
    "no terminal": ("", {}, {}, False, False),
    "in CI": ("", {}, {"CI": "true"}, True, False),
    "a model by flag": ("", {"model": "embedded"}, {}, True, False),
    "a model by variable": ("", {}, {"MODEL_PATH": "embedded"}, True, False),
    "a model in the file": ("model = 'embedded'\n", {}, {}, True, False),
    "a table of models": ("[models.a]\npath = 'embedded'\n", {}, {}, True, False),
    "a cache": ("[caches.a]\nn_ctx = 2048\n", {}, {}, True, False),
    "a provider": ("[providers.p]\ntype = 'openai'\nmodel = 'm'\n", {}, {}, True, False),
    "a back end": ("backend = 'anthropic'\n", {}, {}, True, False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_asks_where_no_model_is_chosen_and_a_person_can_answer(
    empty_home: Path,  # noqa: F811
    case: tuple[str, dict[str, Any], dict[str, str], bool, bool],
) -> None:
    text, flags, env, is_terminal, expected = case
    (empty_home / "config.toml").write_text(text, encoding="utf-8")
    made = config.load(flags=flags, env={"HOME": str(empty_home), **env}, cwd=empty_home / "none", user_dir=empty_home)
    assert is_due(made, env, is_terminal=is_terminal) is expected
    answered = empty_home / ".local" / "state" / "shepherd" / "first-start"
    answered.parent.mkdir(parents=True)
    answered.write_text("tiny\n", encoding="utf-8")
    assert not is_due(made, env, is_terminal=is_terminal), "it was answered before"
