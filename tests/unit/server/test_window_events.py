"""`/v1/window/events` over a real connection: what it tells is what `/v1/caches` holds, and each key sees its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.in_process import client_of
from tests.in_time import PATIENCE_S, until
from tests.own_server import listening
from tests.scripted_service import ScriptedService

from shepherd.app.live_window import MOST_CHANGED, MOST_LISTENERS, MOST_NOTICES, Hello, LiveWindow
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core.status import CacheUsage, Health
from shepherd.dialects import Template, detect
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Gone, Picture, Turn
from shepherd.server.app import create_app
from shepherd.server.http.auth import Key
from shepherd.wire.base import Json, decode_json
from shepherd.wire.sse import EventReader

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EVENTS, CHAT = "/v1/window/events", "/v1/chat/completions"
ADA, BOB, HOUSE = "sk-ada", "sk-bob", "sk-house"
KEYS = (Key.of(ADA, name="ada", user="ada"), Key.of(BOB, name="bob", user="bob"), Key.of(HOUSE, name="house"))


class LocalService(ScriptedService):
    """One cache of a made-up model behind the server's seam; a token is a byte."""

    def __init__(self, n_ctx: int = 1024) -> None:
        vocabulary = FakeVocabulary()
        ends = frozenset({vocabulary.ids["<|im_end|>"]})
        runtime = FakeRuntime(say(vocabulary, "Yes", "No, never", "Well"), ends, n_ctx=n_ctx, n_seq=8, n_batch=512)
        self.engine = InProcessEngine(runtime, show=vocabulary.piece)
        backend = LocalBackend(
            self.engine, vocabulary, template=Template(TEMPLATE), dialect=detect(TEMPLATE), model="m",
            options=LocalOptions(on_full="evict"),
        )  # fmt: skip
        super().__init__(backend.stream, health=Health("ok", "llamacpp", "m", {"main": CacheUsage(n_ctx, 0, "m")}))
        self.window = LiveWindow(lambda: {"main": backend}, self.stats)

    def stats(self) -> Mapping[str, CacheStats]:
        return {"main": self.engine.stats()}


class Watcher:
    """A client that knows nothing but the events."""

    def __init__(self) -> None:
        self.known: dict[Any, Json] = {}
        self.events: list[tuple[str, Json]] = []
        self._changed = asyncio.Event()

    async def follow(self, client: httpx2.AsyncClient, query: str = "") -> None:
        reader = EventReader()
        async with client.stream("GET", EVENTS + query) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for piece in answer.aiter_bytes():
                for name, body in reader.feed(piece):
                    self.take(name, decode_json(body))
                self._changed.set()

    def take(self, name: str, body: Json) -> None:
        self.events.append((name, body))
        match name:
            case "hello":
                self.known.clear()
            case "spans":
                self.known[body["seq"]] = body
            case "grow":
                known = self.known[body["seq"]]
                n = body["tokens"] - known["tokens"]
                last = known["spans"][-1]
                last = {**last, "stop": last["stop"] + n, "held": last["held"] + n}
                self.known[body["seq"]] = {**known, **body, "spans": [*known["spans"][:-1], last]}
            case "gone":
                del self.known[body["seq"]]

    def of(self, name: str) -> list[Json]:
        return [body for each, body in self.events if each == name]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def served(*keys: Key, n_ctx: int = 1024) -> AsyncIterator[tuple[str, LocalService]]:
    service = LocalService(n_ctx)
    try:
        async with listening(service, api_keys=keys or None) as url:
            yield url, service
    finally:
        await asyncio.to_thread(service.engine.close)


@asynccontextmanager
async def watching(url: str, key: str = "", query: str = "") -> AsyncIterator[Watcher]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        watcher = Watcher()
        following = asyncio.create_task(watcher.follow(client, query))
        try:
            await watcher.until(lambda: bool(watcher.of("pool")))
            yield watcher
        finally:
            following.cancel()
            await asyncio.wait((following,))


async def ask(url: str, messages: list[Json], key: str = "", session: str = "one") -> Json:
    headers = {"x-session-id": session} | ({"authorization": f"Bearer {key}"} if key else {})
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        answer = await client.post(CHAT, json={"model": "m", "messages": messages})
        assert answer.status_code == 200, answer.text
        body: Json = answer.json()
        return body


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def shown(spans: Json) -> tuple[int, int, int, str | None]:
    """What `/v1/caches` says of a sequence too; its spans have no gap, and as many tokens as are held."""
    assert [span["start"] for span in spans["spans"]] == [0, *(span["stop"] for span in spans["spans"][:-1])]
    assert spans["spans"][-1]["stop"] == spans["tokens"]
    assert sum(span["held"] for span in spans["spans"]) == spans["held"]
    return spans["seq"], spans["held"], spans["tokens"] - spans["held"], spans["session"]


@pytest.mark.parametrize("seed", range(2))
async def test_what_the_events_tell_is_what_the_caches_hold(seed: int) -> None:
    dice, talks = random.Random(seed), {f"s{at}": [user("Who shears the sheep?")] for at in range(2)}
    async with (
        served(n_ctx=300) as (url, service),
        watching(url) as watcher,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        for n in range(1, 15):
            name = dice.choice([*talks])
            answer = await ask(url, talks[name], session=name)
            talks[name] += [answer["choices"][0]["message"], user("and " * dice.randint(1, 9))]
            await watcher.until(lambda: len(watcher.of("turn")) == n)  # noqa: B023 - at once
            held = (await client.get("/v1/caches")).json()["caches"]["main"]["sequences"]
            expected = {(each["seq"], each["tokens"], each["evicted"], each["session"]) for each in held}
            await watcher.until(lambda: {shown(each) for each in watcher.known.values()} == expected)  # noqa: B023
            usage, turn = answer["usage"], watcher.of("turn")[-1]
            assert turn["cached"] == usage["prompt_tokens_details"]["cached_tokens"]
            assert (turn["session"], turn["cache"], turn["seq"]) == (name, "main", turn["seq"])
            kinds = [each["kind"] for each in watcher.known[turn["seq"]]["spans"]]
            assert set(kinds) == {"user", "assistant", "markup"}
        assert watcher.of("left"), "the story has evictions"
        assert {each["reason"] for each in watcher.of("left")} == {"oldest exchange"}
        assert watcher.of("hello") == [{"version": 1, "server": watcher.of("hello")[0]["server"],
                                        "caches": {"main": {"model": "m", "n_ctx": 300}}}]  # fmt: skip
        await service.engine.clear()
        await watcher.until(lambda: not watcher.known)


async def test_a_key_of_one_user_sees_no_other() -> None:
    async with (
        served(*KEYS) as (url, _), watching(url, ADA) as ada, watching(url, BOB) as bob, watching(url, HOUSE) as house
    ):  # fmt: skip
        await ask(url, [user("My code is 428.")], ADA, "of ada")
        await ask(url, [user("My cod is a fish.")], BOB, "of bob")
        await ask(url, [user("My coat is red.")], ADA, "of ada")
        await house.until(lambda: len(house.of("turn")) == 3)
        await ada.until(lambda: len(ada.of("turn")) == 2)
        await bob.until(lambda: len(bob.of("turn")) == 1)
        await bob.until(lambda: any(pool["caches"]["main"]["jobs"] == 3 for pool in bob.of("pool")))
        assert [(each["was"], each["is"]) for each in ada.of("miss")] == [("... code...", "... coat...")] or ada.of(
            "miss"
        )
        for watcher, name, other in ((ada, "of ada", "of bob"), (bob, "of bob", "of ada")):
            assert {each["session"] for kind in ("spans", "turn", "grow", "miss") for each in watcher.of(kind)} == {
                name
            }
            assert other not in str(watcher.events)
        assert {each["session"] for each in house.of("spans")} == {"of ada", "of bob"}


async def test_a_listener_of_one_session_gets_that_alone() -> None:
    async with served() as (url, _), watching(url, query="?session=two") as watcher:
        for session in ("one", "two"):
            await ask(url, [user(f"I am {session}")], session=session)
        await watcher.until(lambda: bool(watcher.of("turn")))
        assert {each["session"] for kind in ("spans", "turn") for each in watcher.of(kind)} == {"two"}


async def test_tokens_of_a_model_that_has_just_left_are_spelled_with_no_other_ones_words() -> None:
    service = LocalService()

    class Leaving(LiveWindow):
        async def tokens(self, cache: str, seq: int, owner: str, start: int, stop: int) -> Sequence[int]:
            found = await super().tokens(cache, seq, owner, start, stop)
            service._health = Health("ok", "llamacpp", "n", {"main": CacheUsage(1024, 0, "n")})
            return found

    service.window = Leaving(service.window._caches, service.stats)
    async with listening(service) as url:
        await ask(url, [user("Hello")], session="one")
        async with httpx2.AsyncClient(base_url=url) as client:
            answer = await client.get("/v1/window/tokens", params={"session": "one"})
    assert answer.status_code == 404
    assert "has just changed" in answer.json()["error"]["message"]


async def test_the_engine_shows_nothing_while_there_is_no_listener() -> None:
    async with served() as (url, service):
        display = service.engine._scheduler.pool.display
        async with watching(url):
            await until(lambda: display.is_on)
        await ask(url, [user("Hello")])
        await until(lambda: not display.is_on)  # the server has seen that its client has gone
        async with watching(url) as again:
            await again.until(lambda: [shown(each)[3] for each in again.known.values()] == ["one"])


async def test_a_listener_that_leaves_at_once_leaves_no_feed_open() -> None:
    async with served() as (_, service):
        with service.window.listen():
            pass
        await service.engine.clear()  # behind the mail that opens the feed
        await until(lambda: not service.engine._scheduler.pool.display.is_on)


async def test_a_listener_that_never_looks_costs_bounded_memory() -> None:
    window = LiveWindow(dict, dict)
    with window.listen() as listener:
        assert await listener.take(PATIENCE_S)  # it has the whole picture, and looks away
        for n in range(20_000):
            window._take("main", Picture(f"saved {n}", "s", "", "memory", 5, 5, ((0, 5),), ()))
            window._take("main", Gone(f"saved {n}"))
            window._take("main", Turn("s", "", 0.0, 1, 0, 5, 0.1, n, 9.0, 0))
            assert len(listener._changed) <= MOST_CHANGED
            assert len(listener._notices) <= MOST_NOTICES
        news = await listener.take(PATIENCE_S)
        assert news is not None
        assert isinstance(news[0], Hello)
        assert len(news) <= MOST_NOTICES + 2


async def test_bad_questions_are_sentences() -> None:
    service = ScriptedService(lambda request: None)  # type: ignore[arg-type, return-value]  # never asked
    async with client_of(create_app(service)) as client:
        for query, words in (
            ("?sesion=x", 'there is no parameter "sesion" here; known: session, cache'),
            ("?cache=a&cache=b", "cache is given twice; send one"),
            (f"?session={'x' * 1001}", "session has 1001 characters; 1000 are allowed"),
        ):
            answer = await client.get(EVENTS + query)
            assert (answer.status_code, answer.json()["error"]["message"]) == (400, words)
    with_many = [service.window.listen() for _ in range(MOST_LISTENERS)]
    for each in with_many:
        each.__enter__()
    async with client_of(create_app(service)) as client:
        answer = await client.get(EVENTS)
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            429, f"{MOST_LISTENERS} clients look at the window already; close one of them",
        )  # fmt: skip
    for each in with_many:
        each.__exit__(None, None, None)
