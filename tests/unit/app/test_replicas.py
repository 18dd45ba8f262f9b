"""A provider with several servers behind the whole program: real requests over loopback, with servers that die, are
taken out, come back, are busy, or serve other models."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.fakes.vllm import Vllm, vllm
from tests.in_process import client_of
from tests.providers_quirks import QUIRKS
from tests.providers_scripted import Heard, Said
from tests.unit.app.test_providers import running

from shepherd.app.app import App
from shepherd.app.replica_watch import ReplicaWatch
from shepherd.backends.replicas import MISSES

CHAT = "/v1/chat/completions"
MANY = 64
"""Conversations of which some go to each of two replicas: all but one time in 2^63."""


@dataclass
class Fleet:
    servers: list[Vllm]
    app: App
    client: httpx2.AsyncClient

    async def ask(self, *texts: str, **more: Any) -> httpx2.Response:
        roles = itertools.cycle(("user", "assistant"))
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        return await self.client.post(CHAT, json={"model": "x", "messages": messages, **more})

    async def reached(self, wanted: set[int], more: str = "Question") -> set[int]:
        """The replicas that new conversations reach: eight of them, and as many more as it takes to see all that are
        `wanted`. Where each goes depends on the ports, which differ from run to run."""
        found: set[int] = set()
        for n in range(MANY):
            if n >= 8 and found >= wanted:
                break
            found.add(number_of(await self.ask(f"{more} {n}")))
        return found

    async def look(self, *numbers: int) -> None:
        """What the watch does, now: enough looks for its mind to change."""
        for number in (*numbers,) * MISSES:
            found = await self.app.dispatcher.providers.open(f"fleet-{number}").cloud.look(5.0, lists=True)  # type: ignore[union-attr]  # no package
            self.app.dispatcher.providers.replicas.see(f"fleet-{number}", found, 10.0)

    def asked(self) -> list[int]:
        return [len(each.heard) for each in self.servers]


@asynccontextmanager
async def fleet(
    folder: Path,
    n: int = 3,
    more: str = "",
    route: str = "",
    *,
    name: str = "fleet",
    script: Any = lambda heard: Said("Hello there."),
) -> AsyncIterator[Fleet]:
    """The servers have the model m; nothing looks at them unasked. `more`: lines of the provider, `route`: of the route
    and what stands behind it."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(vllm("m", script=script)) for _ in range(n)]
        text = f'[providers.{name}]\ntype = "vllm"\nmodel = "m"\nprobe_s = 0\n'
        text += f"base_urls = {[each.url for each in servers]}\n"
        text += f'{more}\n[[routes]]\nmatch = "*"\nprovider = "{name}"\n{route}'
        app = await stack.enter_async_context(running(folder, text))
        yield Fleet(servers, app, await stack.enter_async_context(client_of(app)))


def number_of(answer: httpx2.Response) -> int:
    """Of the replica that has answered."""
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-shepherd-backend"].removeprefix("fleet-").removesuffix(":m"))


async def test_a_client_does_not_see_that_its_replica_has_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shepherd")
    async with fleet(tmp_path) as it:
        first = number_of(await it.ask("Hello"))
        await it.servers[first - 1].die()
        answer = await it.ask("Hello", "Hello there.", "Again")
        assert answer.json()["choices"][0]["message"]["content"] == "Hello there."
        assert number_of(answer) != first
        assert answer.headers["x-shepherd-instead-of"] == f"fleet-{first}"
        assert f"fleet-{first} cannot answer (backend_unreachable); fleet-" in caplog.text
        assert f"cache=fleet-{number_of(answer)}" in caplog.text
        caplog.clear()
        others = {1, 2, 3} - {first}
        assert await it.reached(others) == others
        assert "cannot answer" not in caplog.text, "it rests"


async def test_behind_its_first_content_an_answer_ends_with_its_replica(tmp_path: Path) -> None:
    async with fleet(tmp_path, script=lambda heard: Said("one two three four", breaks_behind="two")) as it:
        answer = await it.ask("Hello", stream=True)
        assert "one" in answer.text
        assert "[DONE]" not in answer.text
        assert "closed the connection in the middle of its answer" in answer.text
        assert sum(it.asked()) == 1, "half an answer is never begun again"


async def test_where_all_are_down_the_client_gets_one_sentence_with_every_reason(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        await it.servers[0].die()
        await it.servers[1].die()
        it.servers[2].script = lambda heard: it.servers[2]._refusal(503, "The engine is dead.")
        answer = await it.ask("Hello")
        words = answer.json()["error"]["message"]
        assert answer.status_code == 503
        assert words.startswith("none of 3 can answer: ")
        assert words.count("no connection to 127.0.0.1:") == 2
        assert "fleet-3: The engine is dead." in words
        health = (await it.client.get("/health")).json()
        assert {each["state"] for each in health["replicas"]["fleet"].values()} == {"resting"}
        assert "127.0.0.1" not in json.dumps(health), "a health check needs no key, and gets no address"
        listed = (await it.client.get("/v1/replicas")).json()["groups"]["fleet"]
        assert "no connection to 127.0.0.1:" in listed["fleet-1"]["detail"]


async def test_a_replica_that_comes_back_is_seen_and_asked_again(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as it:
        first = number_of(await it.ask("Hello"))
        server = it.servers[first - 1]
        await server.die()
        await it.look(first)
        before = it.asked()
        assert number_of(await it.ask("Hello", "Hello there.", "Again")) != first
        assert it.app.dispatcher.resting()[f"fleet-{first}"] > 0
        await server.live()
        await it.look(first)
        assert await it.reached({1, 2}) == {1, 2}
        assert len(server.heard) > before[first - 1]
        assert it.app.dispatcher.resting() == {"fleet-1": 0.0, "fleet-2": 0.0}


async def test_the_only_replica_that_is_in_is_asked_although_it_has_failed(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1, "network = {attempts = 1}") as it:
        await it.servers[0].die()
        answer = await it.ask("Hello")
        assert answer.status_code == 503
        assert answer.json()["error"]["message"].startswith("fleet-1: no connection to 127.0.0.1:")
        assert it.app.dispatcher.resting()["fleet-1"] > 0
        await it.servers[0].live()
        assert number_of(await it.ask("Hello")) == 1
        assert it.app.dispatcher.resting() == {"fleet-1": 0.0}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (503, {"status": "stopping", "detail": "the server is stopping"}, "fleet-1 says that it is stopping"),
        (200, {"status": "draining"}, "fleet-1 says that it is draining"),
        (503, None, "its health check answers: status 503, Service Unavailable"),
        (503, {"error": {"code": 503, "message": "Loading model"}}, "its health check answers: Loading model"),
    ],
)
async def test_a_replica_that_says_that_it_cannot_answer_is_left_at_once(
    tmp_path: Path, status: int, body: Any, words: str
) -> None:
    async with fleet(tmp_path, 2) as it:
        it.servers[0].health, it.servers[0].health_body = status, body
        await it.look(1)
        assert await it.reached({2}) == {2}
        listed = (await it.client.get("/v1/replicas")).json()["groups"]["fleet"]
        assert (listed["fleet-1"]["state"], listed["fleet-1"]["detail"]) == ("resting", words)


@pytest.mark.parametrize("status", [401, 404])
async def test_a_health_check_that_is_not_there_or_not_for_us_says_nothing(tmp_path: Path, status: int) -> None:
    async with fleet(tmp_path, 2) as it:
        it.servers[0].health = it.servers[1].health = status
        await it.look(1, 2)
        assert await it.reached({1, 2}) == {1, 2}
        assert it.app.dispatcher.providers.replicas.status("fleet-1").models == ("m",)


async def test_an_operator_takes_a_replica_out_while_it_answers(tmp_path: Path) -> None:
    is_asked = asyncio.Event()

    def script(heard: Heard) -> Said:
        is_asked.set()
        return Said("one two three", hangs_behind="one")

    async with fleet(tmp_path, 2, script=script) as it:
        running_answer = asyncio.create_task(it.ask("Hello", stream=True))
        await is_asked.wait()
        busy = 1 + it.asked().index(1)
        path = f"/v1/replicas/fleet-{busy}"
        answer = (await it.client.post(f"{path}/drain")).json()
        assert answer == {"name": f"fleet-{busy}", "state": "draining", "open": 1, "models": []}
        for each in it.servers:
            each.script = lambda heard: Said("Hello there.")
        assert await it.reached({3 - busy}) == {3 - busy}
        assert not running_answer.done()
        running_answer.cancel()
        await asyncio.wait((running_answer,))
        assert (await it.client.post(f"{path}/drain")).json()["state"] == "drained"
        metrics = (await it.client.get("/metrics")).text
        assert f'shepherd_replica_ready{{provider="fleet",replica="fleet-{busy}"}} 0.0' in metrics
        assert f'shepherd_replica_open_requests{{provider="fleet",replica="fleet-{busy}"}} 0.0' in metrics
        outcomes = (await it.client.get("/v1/caches")).json()["outcomes"]
        assert (outcomes[f"fleet-{busy}"]["is_out"], outcomes[f"fleet-{busy}"]["open"]) == (1.0, 0)
        assert (await it.client.post(f"{path}/resume")).json()["state"] == "ready"
        assert await it.reached({1, 2}, "More") == {1, 2}


async def test_without_a_replica_that_is_in_a_request_is_refused_or_goes_to_the_fallback(tmp_path: Path) -> None:
    async with vllm("s") as spare:
        text = f'[providers.spare]\ntype = "vllm"\nmodel = "s"\nbase_url = "{spare.url}"\n'
        async with fleet(tmp_path, 2) as it:
            for number in (1, 2):
                await it.client.post(f"/v1/replicas/fleet-{number}/drain")
            answer = await it.ask("Hello")
            assert answer.status_code == 503
            assert "every replica of 'fleet' is taken out; 'shepherd provider resume'" in answer.text
            for path in ("/v1/replicas/fleet-3/drain", "/v1/replicas/fleet/drain"):
                wrong = await it.client.post(path)
                assert wrong.status_code == 404
                assert "; the replicas are: fleet-1, fleet-2" in wrong.text
        async with fleet(tmp_path, 2, route=f'fallback = ["spare"]\n{text}') as it:
            for number in (1, 2):
                await it.client.post(f"/v1/replicas/fleet-{number}/drain")
            assert (await it.ask("Hello")).headers["x-shepherd-backend"] == "spare:s"


async def test_a_request_goes_to_the_replicas_that_have_its_model(tmp_path: Path) -> None:
    async with vllm("m", "big") as first, vllm("m") as second:
        text = f'[providers.fleet]\ntype = "vllm"\nprobe_s = 0\nbase_urls = ["{first.url}", "{second.url}"]\n'
        text += '[[routes]]\nmatch = "*"\nprovider = "fleet"\n'
        async with running(tmp_path, text) as app, client_of(app) as client:
            it = Fleet([first, second], app, client)
            await it.look(1, 2)
            for model in ("big", "fleet/big"):
                for n in range(6):
                    assert (await it.ask(f"Question {n}", model=model)).status_code == 200
            assert it.asked() == [12, 0]
            assert {each.model for each in first.heard} == {"big"}, "without the name of the group"
            for n in range(MANY):
                assert (await it.ask(f"Question {n}", model="m")).status_code == 200
            assert it.asked()[1] > 0
            assert "The model `none` does not exist" in (await it.ask("Hello", model="none")).text


async def test_conversations_find_their_caches_and_a_long_beginning_is_computed_once(tmp_path: Path) -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool{n}", "description": "does things " * 30}} for n in range(9)
    ]
    async with fleet(tmp_path, 4) as it:
        for turn in range(4):
            for n in range(8):
                texts = [f"Question {n}", *(word for at in range(turn) for word in ("Hello there.", f"And {at}?"))]
                await it.ask(*texts, tools=tools)
        (used,) = [each for each in it.servers if each.heard]
        share = used.n_cached / used.n_prompt
        assert share > 0.9, "one prompt at a time: no reason to compute the tools at a second one"
        assert len(used.heard) == 32


async def test_eight_users_at_once_are_spread_and_stay(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4) as it:
        homes: list[set[int]] = [set() for _ in range(8)]
        for turn in range(4):
            texts = [[f"Question {n}", *("Hello there.", "And?") * turn] for n in range(8)]
            for n, answer in enumerate(await asyncio.gather(*(it.ask(*each) for each in texts))):
                homes[n].add(number_of(answer))
        assert all(len(home) == 1 for home in homes)
        assert it.asked() == [8, 8, 8, 8]


async def test_vectors_come_from_one_replica_after_the_other_and_past_one_that_is_down(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3) as it:

        async def ask() -> httpx2.Response:
            return await it.client.post("/v1/embeddings", json={"model": "fleet/m", "input": "a text"})

        for _ in range(6):
            assert (await ask()).json()["data"][0]["embedding"] == pytest.approx([0.6, 0.8])
        assert [each.n_embedded for each in it.servers] == [2, 2, 2]
        await it.servers[0].die()
        assert [(await ask()).status_code for _ in range(3)] == [200] * 3
        assert it.app.dispatcher.resting()["fleet-1"] > 0


# -- what stands in front of them -------------------------------------------------------------------------------------


async def test_memory_recalls_at_one_replica_what_was_said_to_another(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, route='user = "ann"\narchive = true\nrecall = true\n') as it:
        first = number_of(await it.ask("My parrot is called Fridolin and lives in Lisbon."))
        await it.client.post(f"/v1/replicas/fleet-{first}/drain")
        answer = await it.ask("What is my parrot called?")
        assert number_of(answer) != first
        assert int(answer.headers["x-shepherd-recalled"]) > 0
        assert "Fridolin" in json.dumps(it.servers[2 - first].heard[-1].body)


async def test_a_budget_of_the_provider_counts_the_answers_of_all_its_replicas(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, "budget_tokens = 720", name="spent-by-a-fleet") as it:
        answers = [await it.ask(f"Question {n}") for n in range(72)]
        statuses = [each.status_code for each in answers]
        assert sum(each > 0 for each in it.asked()) > 1
        assert statuses == sorted(statuses)
        assert {200, 429} == {*statuses}
        assert answers[-1].json()["error"]["code"] == "budget_exceeded"
        assert list((await it.client.get("/v1/caches")).json()["providers"]) == ["spent-by-a-fleet"]


@pytest.mark.parametrize("quirk", ["arguments as objects", "null, then arguments", "blank ids", "counts as texts"])
async def test_clients_of_every_surface_get_a_call_however_a_replica_writes_it(tmp_path: Path, quirk: str) -> None:
    def script(heard: Heard) -> Said:
        return Said(calls=(("look", {"at": "the sky"}),), quirk=QUIRKS["openai.chat"][quirk])

    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    async with fleet(tmp_path, 2, script=script) as it:
        function = {"name": "look", "parameters": schema}
        ask = {"model": "x", "messages": [{"role": "user", "content": "Look up"}], "stream": False}
        chat = {**ask, "tools": [{"type": "function", "function": function}]}
        anthropic = {**ask, "max_tokens": 64, "tools": [{"name": "look", "input_schema": schema}]}
        (call,) = (await it.client.post(CHAT, json=chat)).json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"at": "the sky"}
        (block,) = (await it.client.post("/v1/messages", json=anthropic)).json()["content"]
        assert (block["name"], block["input"]) == ("look", {"at": "the sky"})
        (call,) = (await it.client.post("/api/chat", json=chat)).json()["message"]["tool_calls"]
        assert call["function"]["arguments"] == {"at": "the sky"}


# -- the watch --------------------------------------------------------------------------------------------------------


async def test_a_loaded_program_looks_at_its_own_servers_unasked_and_at_no_others(tmp_path: Path) -> None:
    async with vllm("m") as server:
        own = f'[providers.own]\ntype = "vllm"\nbase_urls = ["{server.url}"]\n'
        far = f'[providers.far]\ntype = "openai"\nbase_urls = ["{server.url}"]\napi_key = "key-of-a-test"\n'
        async with running(tmp_path, own + far) as app:
            await server.is_seen.wait()
            assert app.dispatcher.providers.watched() == {"own-1": 10.0}


async def test_the_watch_sees_every_replica_and_its_death(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, "") as it:
        waits: list[float] = []
        is_seen = asyncio.Event()

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            status = it.app.dispatcher.providers.replicas.status
            if status("fleet-1").state == "resting" and status("fleet-2").models:
                is_seen.set()
                await asyncio.Event().wait()

        providers = it.app.dispatcher.providers
        assert providers.watched() == {}
        providers.add(replace(providers.row("fleet"), probe_s=10.0))
        await it.servers[0].die()
        watch = ReplicaWatch(providers, sleep=sleep, chance=lambda: 0.5)
        watch.start()
        await is_seen.wait()
        await watch.aclose()
        assert waits.count(1.0) == 1, "one that is missed is looked at again soon"
        assert 10.0 in waits
        assert it.servers[1].n_looks > 0
