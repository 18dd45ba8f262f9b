"""The window of a server with a memory, on the embedded model: what comes back and why, and the words behind it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from tests.in_time import PATIENCE_S
from tests.own_app import app_of, loaded
from tests.own_server import listening
from tests.unit.server.test_window_events import CHAT, user, watching

pytestmark = pytest.mark.model

CACHE = """
[caches.main]
model = "lamb"
n_ctx = 1024
overflow = "evict"

[[routes]]
match = "*"
cache = "main"
archive = true
recall = true
"""


async def test_what_comes_back_says_by_which_words_and_what_left_can_be_read(tmp_path: Path) -> None:
    async with (
        loaded(app_of(tmp_path, CACHE)) as app, listening(app) as url, watching(url) as watcher,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S, headers={"x-shepherd-user": "ann"}) as client,
    ):  # fmt: skip
        talk = []
        for n, text in enumerate(
            ["My hamster is called Otto.", *(f"Count to {n}. " + "Slowly. " * 100 for n in range(4))]
        ):
            talk.append(user(text))
            body = {"model": "lamb", "messages": talk, "max_tokens": 2, "temperature": 0}
            answer = await client.post(CHAT, json=body, headers={"x-session-id": "one"})
            assert answer.status_code == 200, answer.text
            talk.append(answer.json()["choices"][0]["message"])
            await watcher.until(lambda n=n: len(watcher.of("turn")) == n + 1)  # type: ignore[misc]
        left = [each for each in watcher.of("left") if each["session"] == "one"]
        assert left
        assert {each["archived"] for each in left} == {True}
        assert left[0]["messages"][0] in (0, 1)

        query = {"session": "one", "messages": "0"}
        (message,) = (await client.get("/v1/window/left", params=query)).json()["messages"]
        assert (message["index"], message["role"], message["text"]) == (0, "user", "My hamster is called Otto.")
        other = await client.get("/v1/window/left", params=query, headers={"x-shepherd-user": "bob"})
        assert (other.status_code, other.json()["error"]["message"]) == (
            404, 'the memory has no conversation of session "one"',
        )  # fmt: skip

        body = {"model": "lamb", "messages": [user("What is my hamster called?")], "max_tokens": 2, "temperature": 0}
        await client.post(CHAT, json=body, headers={"x-session-id": "two"})
        await watcher.until(lambda: any(each["session"] == "two" for each in watcher.of("recalled")))
        (back,) = [each for each in watcher.of("recalled") if each["session"] == "two"]
        assert message["id"] in back["ids"]
        assert "hamster" in back["words"]
        assert back["messages"] == len(back["ids"])
        await watcher.until(lambda: any(each["session"] == "two" for each in watcher.of("turn")))

        (spans,) = [each for each in watcher.known.values() if each["session"] == "two"]
        recalled = next(span for span in spans["spans"] if span["kind"] == "recalled")
        query = {"session": "two", "start": str(recalled["start"]), "stop": str(recalled["stop"])}
        found = (await client.get("/v1/window/tokens", params=query)).json()
        assert len(found["tokens"]) == recalled["stop"] - recalled["start"]
        assert "My hamster is called Otto." in "".join(each["text"] for each in found["tokens"])
        behind = (
            await client.get("/v1/window/tokens", params={"session": "two", "start": recalled["start"] + 1})
        ).json()
        assert behind["tokens"][: len(found["tokens"]) - 1] == found["tokens"][1:], "without a stop: what follows"

        for query, code, words in (
            ({"session": "two", "start": "9", "stop": "9"}, 400, "stop is 9 and start 9; stop must be larger"),
            ({"session": "two", "stop": "2001"}, 400, "2001 tokens are asked for; 2000 are allowed at a time"),
            ({"session": "two", "start": "-1"}, 400, 'start must be a number from 0, not "-1"'),
            ({"start": "0"}, 400, "name the sequence: seq, or session"),
            ({"session": "three"}, 404, "this sequence is not in the cells now"),
            ({"session": "two", "cache": "x"}, 404, 'there is no cache "x"; the caches are: main'),
        ):
            answer = await client.get("/v1/window/tokens", params=query)
            assert (answer.status_code, answer.json()["error"]["message"]) == (code, words)
