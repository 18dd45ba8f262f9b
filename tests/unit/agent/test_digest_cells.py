"""Digests on the cells of the engine: what they compute, whom they let pass, and what the next request computes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from tests.fake_engine import BYTES, FakeRuntime, Faults
from tests.in_time import until
from tests.unit.backends.local.serving import making

from shepherd.agent.compaction import CompactingBackend
from shepherd.agent.compaction_store import CompactionStore
from shepherd.agent.digest import CLOSING, MOST_NEW, OPENING, Digests, DigestWriter, question
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core import Message, Reply, Request, Sampling, fold
from shepherd.core.edits import Edit, LeavingPolicy
from shepherd.engine.scheduler import EngineOptions

NOW = (Edit("compact", trigger_tokens=0, pause=True),)
DIGEST = " ".join(f"PORT_{n} = {4711 + n}." for n in range(10))
ANSWER = "Yes."
WORDS = "about the sheep and the meadow " * 12


def answering(tokens: Sequence[int]) -> int:
    """A model that writes the digest where it is asked for, and a short answer elsewhere."""
    data = bytes(token if token < BYTES else 0 for token in tokens)
    asked, _, begun = data.rpartition(b"\0assistant\n")
    text = (DIGEST if b"Write a digest" in asked.rpartition(b"\0user\n")[2] else ANSWER).encode()
    return text[len(begun)] if len(begun) < len(text) else BYTES + 1


@dataclass
class Cells:
    """A cache with digests."""

    backend: CompactingBackend
    local: LocalBackend
    runtime: FakeRuntime
    digests: Digests

    async def ask(self, *messages: Message, edits: tuple[Edit, ...] = (), **fields: object) -> Reply:
        request = Request("fake", messages, edits=edits, max_tokens=8, **fields)  # type: ignore[arg-type]
        async with aclosing(self.backend.stream(request)) as events:
            return fold([event async for event in events])

    async def talk(self, n: int = 5) -> list[Message]:
        """A conversation of which all is in the cells."""
        messages: list[Message] = []
        for at in range(n):
            messages.append(Message.user(f"Question {at} {WORDS}"))
            messages.append((await self.ask(*messages)).message)
        return messages


Make = Callable[..., Cells]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with making() as make_one:

        def made(
            *, n_ctx: int = 8192, gate: threading.Semaphore | None = None, sequences: int = 4, **more: Any
        ) -> Cells:
            local, runtime = make_one(
                model=answering,
                n_ctx=n_ctx,
                faults=Faults(gate=gate),
                engine_options=EngineOptions(sequences=sequences),
                **more,
            )
            store = CompactionStore()
            digests = Digests(store)
            writer = DigestWriter(local.stream, local.count_tokens, is_always=True)
            return Cells(CompactingBackend(local, store, digests=digests, writer=writer), local, runtime, digests)

        yield made


def computed(reply: Reply) -> int:
    return reply.usage.input


OWN = len(f"{OPENING}\n{DIGEST.strip()}\n{CLOSING}\n\n")
MARKUP = 60
"""Tokens of a short question with its markup and that of the answer before it."""


async def n_question(cells: Cells) -> int:
    asked = question(Request("fake"), "")
    return len(asked.messages[0].text)


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("on_full", ["error", "evict"])
async def test_a_digest_computes_its_question_and_the_next_request_what_is_new_and_the_digest(
    make: Make, is_paused: bool, on_full: str
) -> None:
    cells = make(options=LocalOptions(on_full="evict" if on_full == "evict" else "error"))
    messages = await cells.talk()
    if is_paused:
        item = (await cells.ask(*messages, edits=NOW)).message
    else:
        messages.append(Message.user("And?"))
        answer = await cells.ask(*messages, edits=(Edit("compact", trigger_tokens=500),))
        assert computed(answer) < MARKUP, "nothing is computed again to wait"
        item = answer.message
    n_before = sum(n for _, _, n in cells.runtime.decoded)
    await cells.digests.idle()
    fresh = sum(n for _, _, n in cells.runtime.decoded) - n_before - len(DIGEST)
    asked = await n_question(cells)
    assert asked <= fresh < asked + MARKUP
    new = [item, Message.user("Next?")]
    reply = await cells.ask(*new)
    assert OWN < computed(reply) < OWN + MARKUP
    size = reply.usage.input + reply.usage.cache_read
    assert size < sum(len(message.text) for message in messages) * 0.8, "what has left is gone"
    new += [reply.message, Message.user("And then?")]
    assert computed(await cells.ask(*new)) < MARKUP, "the digest stays in its place"


async def test_in_a_window_larger_than_the_cells_it_is_written_of_what_they_hold(make: Make) -> None:
    options = LocalOptions(n_window=48_000, on_full="evict", leaving=LeavingPolicy())
    cells = make(n_ctx=3000, options=options)
    answer = await cells.ask(*await cells.talk(20), Message.user("And?"), edits=(Edit("compact", trigger_tokens=3000),))
    assert computed(answer) < MARKUP
    await cells.digests.idle()
    new = [answer.message, Message.user("Next?")]
    reply = await cells.ask(*new)
    assert OWN < computed(reply) < OWN + MARKUP
    assert computed(await cells.ask(*new, reply.message, Message.user("And then?"))) < MARKUP


async def test_the_prompt_is_the_same_from_request_to_request(make: Make) -> None:
    cells = make()
    item = (await cells.ask(*await cells.talk(), edits=NOW)).message
    await cells.digests.idle()
    new = [item, Message.user("Next?")]
    reply = await cells.ask(*new)
    first = await cells.backend.render(Request("fake", tuple(new)))
    second = await cells.backend.render(Request("fake", (*new, reply.message, Message.user("And then?"))))
    assert second.startswith(first)
    assert second.count(OPENING) == 1


@pytest.mark.parametrize("sequences", [1, 4])
async def test_a_request_that_comes_while_a_digest_is_written_takes_as_many_steps_as_without(
    make: Make, sequences: int
) -> None:
    gate = threading.Semaphore(10_000)
    cells = make(gate=gate, sequences=sequences)
    item = (await cells.ask(*await cells.talk(), edits=NOW)).message
    while gate.acquire(blocking=False):
        pass
    n_asked = await n_question(cells)
    n_steps = n_asked // cells.runtime.n_batch + 12  # its prompt, and a few of its tokens
    n_before = len(cells.runtime.batches) + n_steps
    gate.release(n_steps)
    await until(lambda: len(cells.runtime.batches) == n_before)
    assert not await stored(cells, item)
    new = asyncio.create_task(cells.ask(item, Message.user("Next?")))

    def has_answer() -> bool:
        gate.release()
        return new.done()

    await until(has_answer)
    assert not await stored(cells, item), "the request has passed it"
    n_steps = len(cells.runtime.batches) - n_before
    n_meanwhile = 40  # of the digest, until the request has come to the engine: more on a busy machine
    assert n_steps < MARKUP // cells.runtime.n_batch + len(ANSWER) + n_meanwhile < len(DIGEST) // 2
    gate.release(10_000)
    await cells.digests.idle()
    assert cells.local.engine.stats().background_jobs == 1
    assert await stored(cells, item), "it was written on behind that"


async def stored(cells: Cells, item: Message) -> bool:
    return OPENING in await cells.backend.render(Request("fake", (item, Message.user("Is it there?"))))


async def test_a_digest_whose_cells_another_conversation_has_taken_computes_nothing(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = threading.Semaphore(10_000)
    cells = make(gate=gate)
    messages = [Message.user("x" * (MOST_NEW + 100)), Message.assistant("Yes."), *await cells.talk(2)]
    await cells.local.engine.clear()
    n_before = cells.local.engine.stats().generated_tokens
    while gate.acquire(blocking=False):  # a decode takes longer than it takes to see that the cells are gone
        pass
    item = (await cells.ask(*messages, edits=NOW)).message
    await cells.digests.idle()
    gate.release(10_000)
    assert "have left the cells" in caplog.text
    assert cells.local.engine.stats().generated_tokens == n_before
    assert not await stored(cells, item)


async def test_a_digest_takes_no_cells_of_a_conversation(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cells = make(n_ctx=2400)
    messages = await cells.talk(5)
    item = (await cells.ask(*messages, edits=NOW)).message
    await cells.digests.idle()
    assert "no digest of a compaction: prompt is too long" in caplog.text
    reply = await cells.ask(item, Message.user("Next?"))
    assert computed(reply) < MARKUP


async def test_an_answer_has_all_of_its_tokens_though_what_leaves_has_stayed(make: Make) -> None:
    """The turns leave at once where they and the answer have no room."""
    cells = make(n_ctx=2600)
    messages = [*await cells.talk(5), Message.user("And?")]
    request = Request("fake", tuple(messages), edits=(Edit("compact", trigger_tokens=500),), max_tokens=900)
    edited = await cells.local.edit(request, request.edits)
    assert edited.n_before + 900 > 2600
    assert not edited.can_wait


async def test_what_shapes_the_clients_answers_does_not_shape_the_digest() -> None:
    sampling = Sampling(temperature=0.3, seed=7, ignore_eos=True, logit_bias=((1, -100.0),))
    asked = question(Request("m", sampling=sampling, stop=("\n",), schema={"type": "object"}, max_tokens=1), "")
    assert asked.sampling == Sampling(temperature=0.0)
    assert (asked.stop, asked.schema) == ((), None)
