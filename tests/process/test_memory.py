"""The tests of `tests/unit/test_memory.py` that start programs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import amount
from tests.unit.test_memory import _close_the_client, answers, bodies, chat, path  # noqa: F401 - fixtures

from shepherd.memory.records import Entry
from shepherd.memory.users import LOCAL, UserStores

pytestmark = pytest.mark.model

N_BOXES = amount(20, 30)
"""More than a context of 512 tokens holds."""


def test_23_what_has_left_the_context_is_found_by_a_script_and_comes_back_into_the_conversation(
    tmp_path: Path, path: Path
) -> None:
    lines = ["The capital of France is Paris.", *(f"The number of box {n} is {n * 37}." for n in range(N_BOXES))]
    output = chat(tmp_path, *lines, "What is the capital of France?", flags=("--context-size", "512", "--notools"))
    assert "Paris" in answers(output)[N_BOXES + 1]

    script = (
        "from shepherd.memory import rag_manager\n"
        "for hit in rag_manager.search('capital of France', max_results=5):\n"
        "    print(f'{hit.score:.2f} {hit.user_message}')\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = [line.split(" ", 1) for line in told.stdout.splitlines()]
    assert found[0][1] in {"The capital of France is Paris.", "What is the capital of France?"}
    assert any(text == "The capital of France is Paris." for _, text in found)
    scores = [float(score) for score, _ in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert bodies(path, "user").count("The capital of France is Paris.") == 1
    assert bodies(path, "user").count("What is the capital of France?") == 1, "quotes are not archived again"


def test_24_a_fact_survives_kill_9_and_belongs_to_its_user(tmp_path: Path, path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "shepherd", "--threads", "1", "--enable-tools", "set_fact,get_fact"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("Store the fact city with the value Oslo\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("[Tool Result: "):
                assert line == '[Tool Result: {"success": true}]\n'
                break
        process.send_signal(signal.SIGKILL)
    output = chat(tmp_path, "/memory off", "Get the fact city", flags=("--enable-tools", "set_fact,get_fact"))
    assert '[Tool Call: get_fact(key="city")]' in output
    assert '[Tool Result: {"value": "Oslo"}]' in output
    shelf = UserStores(path)
    mine, yours = shelf.find_store(LOCAL), shelf.find_store("somebody else")
    assert mine is not None
    assert yours is not None
    assert yours.get_fact("city") is None
    said = [Entry("user", "The same words."), Entry("assistant", "Yes.")]
    assert len(mine.archive(said)) == len(yours.archive(said)) == 2
    assert yours.search("same words")
    assert mine.clear_fact("city")
    shelf.close()
