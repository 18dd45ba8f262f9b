"""Hundreds of turns on a context of 512 tokens, on the embedded model, with the books audited at every step."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator

import pytest
from tests.cases import amount

from shepherd.agent.session import Session
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core import Evicted, Finished, Started
from shepherd.dialects import Template, detect
from shepherd.engine.base import Memory
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.scheduler import EngineOptions, Scheduler

pytestmark = pytest.mark.model

N_CTX = 512
N_TURNS = amount(60, 500)
SYSTEM = "You are Lamb, a small assistant. Answer in one sentence."
SAID = (
    "Hello!",
    "My name is Ada.",
    "My cat is called Tom.",
    "What is my name?",
    "What can you do?",
    "My favourite colour is green, and I live in a small town by the sea.",
    "Tell me something nice.",
    "What is my cat called?",
)


class Auditor:
    """Compares ledger and library after every step of the engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_steps = 0
        step = Scheduler.step

        def audited(scheduler: Scheduler) -> None:
            step(scheduler)
            pool = scheduler.pool
            pool.ledger.check_self()
            for resident in pool.ledger:
                pool.ledger.check(resident, pool.runtime.held(resident.id))
            self.n_steps += 1

        monkeypatch.setattr(Scheduler, "step", audited)


@pytest.fixture
async def session(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Session, Auditor, InProcessEngine]]:
    auditor = Auditor(monkeypatch)
    source = weights.chat_template or ""
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=N_CTX, n_seq=8, n_threads=1))
    engine = InProcessEngine(runtime, show=weights.piece, options=EngineOptions(tiers=Tiers(ram_bytes=2**28)))
    template = Template(source, bos_token=weights.bos_text, eos_token=weights.eos_text)
    backend = LocalBackend(
        engine, weights, template=template, dialect=detect(source), model="lamb", options=LocalOptions()
    )
    yield (
        Session(backend, model="lamb", n_ctx=N_CTX, system=SYSTEM, max_tokens=8, on_full="evict"),
        auditor,
        engine,
    )
    await asyncio.to_thread(engine.close)


@pytest.mark.timeout(600)
async def test_hundreds_of_turns(
    session: tuple[Session, Auditor, InProcessEngine], caplog: pytest.LogCaptureFixture
) -> None:
    conversation, auditor, engine = session
    assert isinstance(engine._runtime.memory, Memory)
    expensive = []
    with caplog.at_level(logging.INFO, "shepherd.engine"):
        for turn in range(N_TURNS):
            evicted = 0
            async for event in conversation.chat(SAID[turn % len(SAID)]):
                match event:
                    case Evicted(messages=n):
                        evicted += n
                    case Started(usage=usage):
                        started = usage
                    case Finished(usage=usage):
                        assert usage.input + usage.cache_read + usage.output <= N_CTX
            # What is new: the notice, the message, its markup; an answer that was cut off is closed by the template.
            if started.input > 80:
                expensive.append((turn, started.input, evicted))
    stats = engine.stats()
    assert auditor.n_steps > 5 * N_TURNS
    assert stats.evictions > N_TURNS // 25
    assert stats.rebases >= N_TURNS // 250, "positions have passed the trained length more than once"
    assert not expensive, "a turn costs its new tokens, whatever has left"
    assert sum(message.role == "user" for message in conversation.messages) == N_TURNS, (
        "the transcript keeps everything"
    )
    notices = [m for m in conversation.messages if m.role == "user" and m.text.startswith("[NOTICE: ")]
    assert len(notices) >= stats.evictions - 1
    ranges = re.findall(r"Evicting messages (\d+)-(\d+) \(tokens (\d+)-(\d+)\)", caplog.text)
    shifts = re.findall(r"Shifting remaining tokens by -(\d+) \(their indexes", caplog.text)
    assert [int(stop) - int(start) for *_, start, stop in ranges] == [int(shift) for shift in shifts]
    assert int(ranges[0][0]) == 1, "the system prompt never leaves"
    assert [int(first) for first, *_ in ranges] == sorted(int(first) for first, *_ in ranges), "oldest first"
