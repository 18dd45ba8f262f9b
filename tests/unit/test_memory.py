"""The memory in the terminal and over HTTP, on the real model: acceptance scenarios 22, 23 and 24.

The number in a test's name is the scenario's in the project's requirements.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line
from tests.cases import amount
from tests.own_server import serving

from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore

pytestmark = pytest.mark.model

CLIENT = httpx2.Client(timeout=120)
"""Making one takes longer than many an answer."""


@pytest.fixture(scope="session", autouse=True)  # another folder uses the client, too
def _close_the_client() -> Iterator[None]:
    yield
    CLIENT.close()


@pytest.fixture
def path() -> Path:
    """Where the memory of this test is (see conftest)."""
    return Path(os.environ["RAG_DB_PATH"])


def chat(folder: Path, *lines: str, flags: tuple[str, ...] = ()) -> str:
    """What the program writes when these lines are typed."""
    told = command_line.run("--threads", "1", *flags, stdin="".join(f"{line}\n" for line in lines), cwd=folder)
    assert told.returncode == 0, told.stderr
    return told.stdout


def answers(output: str) -> list[str]:
    """What stands behind each prompt."""
    return [part.strip() for part in re.split(r"^> ", output, flags=re.MULTILINE)[1:]]


def bodies(path: Path, role: str = "") -> list[str]:
    """What is in the archive, in the order of arrival."""
    with MemoryStore(path) as store:
        ids = store.read(lambda connection: [id for (id,) in connection.execute("SELECT id FROM message ORDER BY id")])
        return [message.body for message in store.stored(ids) if role in {"", message.role}]


def test_22_everything_that_was_said_in_a_context_too_small_for_it_is_archived_once(tmp_path: Path, path: Path) -> None:
    lines = [f"The number of box {n} is {n * 37}." for n in range(amount(25, 40))]
    output = chat(tmp_path, *lines, flags=("--context-size", "512", "--notools", "--verbose"))
    found = bodies(path)
    assert [body for body in found if body.startswith("The number of box")] == lines
    assert len(found) == 2 * len(lines)
    assert not any("NOTICE" in body for body in found)
    assert len(answers(output)) >= len(lines)
    with MemoryStore(path) as store:
        assert store.stats().evicted > amount(5, 20)


def test_23_the_model_searches_for_what_it_was_told_in_another_conversation(tmp_path: Path, path: Path) -> None:
    chat(tmp_path, "My favourite colour is turquoise.", flags=("--notools",))
    output = chat(tmp_path, "/memory off", "What is my favourite colour?", flags=("--enable-tools", "memory"))
    assert "[Tool Call: search_memory(query=" in output
    assert "[Tool Result: Found 1 archived conversation(s): Result 1 [Relevance: 0." in output
    assert "turquoise" in answers(output)[-2].splitlines()[-1], "in its own words, not in the result's"
    assert sum("turquoise" in body for body in bodies(path)) <= 3, "results are not archived again"


def test_23_a_new_conversation_knows_what_an_old_one_was_told(tmp_path: Path) -> None:
    chat(tmp_path, "My hamster is called Bertram.", flags=("--notools",))
    output = chat(tmp_path, "What is my hamster called?", flags=("--notools",))
    assert "Bertram" in answers(output)[0]
    output = chat(tmp_path, "What is my hamster called?", flags=("--notools", "--no-recall"))
    assert "Bertram" not in answers(output)[0]
    told = command_line.run("chat", "-p", "What is my hamster called?", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "Bertram" not in told.stdout, "one prompt gets the same answer whatever was said before"


@pytest.mark.parametrize(
    "query", ['"', "* : ^ (", "NOT AND OR NEAR(", "巴黎", "🦙🦙", "a" * 10_000, "it's", "\\", "{}"]
)
def test_23_any_text_can_be_searched_for(tmp_path: Path, path: Path, query: str) -> None:
    with MemoryStore(path) as store:
        store.archive([Entry("user", "法国的首都是巴黎 🦙🦙"), Entry("assistant", "好")])
        hits = store.search(query)
        assert [hit.user_message for hit in hits] == (["法国的首都是巴黎 🦙🦙"] if query in ("巴黎", "🦙🦙") else [])


# -- over HTTP ---------------------------------------------------------------------------------------------------------

ROUTES = """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
[[routes]]
match = "mine"
cache = "main"
user = "local"
archive = true
recall = true
[[routes]]
match = "shared"
cache = "main"
archive = true
recall = true
[[routes]]
match = "*"
cache = "main"
"""


@pytest.fixture
def remembering(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path, ROUTES) as address:
        yield address


def ask(address: str, model: str, *said: str, **more: Any) -> tuple[str, int, int]:
    """The answer, prompt tokens, and how many of them were cached; `said` by turns, the user first."""
    headers = more.pop("headers", {})
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 24, **more}
    told = CLIENT.post(f"{address}/v1/chat/completions", json=body, headers=headers)
    assert told.status_code == 200, told.text
    usage = told.json()["usage"]
    content = told.json()["choices"][0]["message"]["content"]
    return content, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def test_a_route_with_a_memory_brings_back_what_another_conversation_was_told(remembering: str, path: Path) -> None:
    ask(remembering, "mine", "My hamster is called Bertram.")
    assert "Bertram" in ask(remembering, "mine", "What is my hamster called?")[0]
    assert "Bertram" not in ask(remembering, "other", "What is my hamster called?")[0]
    assert "\nshepherd_archived_messages_total 4.0\n" in CLIENT.get(f"{remembering}/metrics").text
    found = bodies(path)
    assert found.count("What is my hamster called?") == 1, "the route without a memory archives nothing"


def test_what_is_put_into_the_prompt_does_not_cost_its_prefix(remembering: str) -> None:
    ask(remembering, "mine", "My hamster is called Bertram.")
    said = ["What is my hamster called?"]
    cached_before = prompt_before = 0
    for question in ("Tell me a joke", "Who are you?", "What is two and two?", "Thank you"):
        answer, prompt, cached = ask(remembering, "mine", *said)
        assert cached >= cached_before
        if prompt_before:
            assert prompt - cached <= prompt - prompt_before + 2, "more than the new tokens were computed"
        prompt_before, cached_before = prompt, cached
        said += [answer, question]


@pytest.mark.parametrize("way", ["header", "body"])
def test_users_of_one_server_never_meet_and_nobody_is_no_one(remembering: str, path: Path, way: str) -> None:
    def as_user(name: str) -> dict[str, Any]:
        return {"headers": {"x-shepherd-user": name}} if way == "header" else {"user": name}

    ask(remembering, "shared", "My hamster is called Bertram.", **as_user("ada"))
    assert "Bertram" in ask(remembering, "shared", "What is my hamster called?", **as_user("ada"))[0]
    assert "Bertram" not in ask(remembering, "shared", "What is my hamster called?", **as_user("bob"))[0]
    assert "Bertram" not in ask(remembering, "shared", "What is my hamster called?")[0]
    assert not path.exists() or bodies(path) == [], "who is not named has no memory, the owner's neither"


def test_turns_that_an_agent_drops_from_its_history_are_in_the_archive(remembering: str, path: Path) -> None:
    said = ["The build is broken by the flag --frobnicate."]
    for n in range(3):
        answer, *_ = ask(remembering, "mine", *said, session_id="agent-1")
        said += [answer, f"Step {n} is done."]
    compacted = ["Summary: we work on the build.", "Okay.", said[-1]]
    answer, *_ = ask(remembering, "mine", *compacted, session_id="agent-1")
    ask(remembering, "mine", *compacted, answer, "Step 4 is done.", session_id="agent-1")
    found = bodies(path)
    for text in (*said, *compacted, "Step 4 is done."):
        assert found.count(text) >= 1
    assert found.count(said[0]) == 1
    told = CLIENT.get(f"{remembering}/v1/memory/search", params={"q": "frobnicate flag"})
    assert told.status_code == 200
    assert "--frobnicate" in json.dumps(told.json())


def test_what_is_forgotten_is_nowhere_any_more(tmp_path: Path, path: Path) -> None:
    snapshots = tmp_path / "kv"
    with serving(tmp_path, f'{ROUTES}\n[kv]\ndisk = true\nfolder = "{snapshots}"\n') as address:
        first = ask(address, "mine", "My hamster is called Xylophontes.")[0]
        ask(address, "mine", "My cat is called Mimi.")
        ask(address, "mine", "My hamster is called Xylophontes.", first, "What is my hamster called?")
        ask(address, "mine", "What is my hamster called?")
        told = CLIENT.post(f"{address}/v1/memory/forget", json={"matching": "Xylophontes"})
        assert told.status_code == 200, told.text
        for file in path.parent.glob(f"{path.name}*"):
            data = file.read_bytes().lower()
            assert b"xylophont" not in data, file
        assert not list(snapshots.glob("*.kv"))
        caches = CLIENT.get(f"{address}/v1/caches").json()
        assert "Xylophontes" not in ask(address, "mine", "What is my hamster called?")[0], caches
        assert "Mimi" in ask(address, "mine", "What is my cat called?")[0]
        # A client that still sends it does not bring it back.
        ask(address, "mine", "My hamster is called Xylophontes.", first, "Thank you.")
    assert not any("Xylophontes" in body for body in bodies(path))


def test_a_memory_that_is_switched_off_keeps_nothing_but_facts(tmp_path: Path, path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text("[rag]\nenable_archival = false\n")
    lines = "My hamster is called Bertram.", "Store the fact city with the value Oslo"
    output = chat(tmp_path, *lines, flags=("--enable-tools", "set_fact,get_fact"))
    assert "[Tool Call: set_fact(" in output
    assert bodies(path) == []
    with MemoryStore(path) as store:
        assert [(fact.key, fact.value) for fact in store.facts()] == [("city", "Oslo")]
