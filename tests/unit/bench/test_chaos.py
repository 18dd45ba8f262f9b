"""The checkers of `bench.engine.chaos`, each shown what it is there to find."""

from __future__ import annotations

import json
import os
import random
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest
from bench.engine.conversations import KEEPS, Acknowledged, Deaths, Stage
from bench.rig.pulse import Pulse
from bench.rig.remains import SHARED, Held, orphaned, shared_names, zombies
from bench.soak.checks import Colds, Findings, Kind
from bench.soak.surfaces import Ask, Failed, Surface, Turn, ask

# -- the memory --------------------------------------------------------------------------------------------------------


def kinds(said: Acknowledged, stored: list[tuple[str, str]]) -> dict[Kind, int]:
    findings = Findings()
    said.check("ann", stored, findings)
    return dict(findings.counts)


def test_each_acknowledged_message_is_in_the_memory_once() -> None:
    said = Acknowledged()
    said.add("ann", "a sheep 0-1?", "Yes.")
    said.add("ann", "a barn 0-2?", "No.")
    whole = [("user", "a sheep 0-1?"), ("assistant", "Yes."), ("user", "[image] a barn 0-2?"), ("assistant", "No. ")]
    assert kinds(said, whole) == {}
    assert kinds(said, whole[1:]) == {"lost": 1}
    assert kinds(said, whole[:-1]) == {"lost": 1}
    assert kinds(said, [*whole, ("user", "a sheep 0-1?")]) == {"doubled": 1}
    assert kinds(said, [*whole, ("assistant", "No.")]) == {"doubled": 1}


def test_an_attempt_that_failed_may_have_left_the_beginning_of_the_answer() -> None:
    said = Acknowledged()
    said.add("ann", "a sheep 0-1?", "Yes")
    said.add("ann", "a barn 0-2?", "Yes, a large one.")
    stored = [("user", "a sheep 0-1?"), ("assistant", "Yes"), ("user", "a barn 0-2?"), ("assistant", "Yes"),
              ("assistant", "Yes, a large one.")]  # fmt: skip
    assert kinds(said, stored) == {"doubled": 1}
    said.fail("ann", "a barn 0-2?")
    assert kinds(said, stored) == {}


# -- what may fail -----------------------------------------------------------------------------------------------------


def test_a_request_may_fail_only_between_a_death_and_the_first_answer_behind_it() -> None:
    deaths = Deaths(begun_s=[10.0, 20.0], recovered_s=[12.0])
    assert not deaths.explain(8.0, 9.0)
    assert deaths.explain(9.0, 10.5)
    assert deaths.explain(11.0, 11.5)
    assert deaths.explain(11.9, 15.0)
    assert not deaths.explain(12.5, 19.0)
    assert deaths.explain(25.0, 26.0), "it is not back yet"
    assert not Deaths().explain(1.0, 2.0)


def stage_over(status: int, body: str, findings: Findings) -> Stage:
    """A stage whose server answers every request with this."""
    client = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(status, text=body)), base_url="http://warm"
    )
    colds = Colds(client, findings, share=0.0, seed=1, patience_s=1.0)
    return Stage(client, colds, findings, seed=1, patience_s=0.2)


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (503, "{}", {"refused", "hang"}),  # no child has been killed, and it is never answered
        (400, "{}", {"refused"}),
        (200, "data: {", {"broken", "hang"}),
        (200, "", {"broken", "hang"}),
    ],
)
async def test_a_failure_without_a_death_is_found(status: int, body: str, found: set[str]) -> None:
    findings = Findings()
    stage = stage_over(status, body, findings)
    async with stage.client:
        assert await stage.answered(Ask("chat", KEEPS, (Turn("user", "why 0-1?"),)), random.Random(1)) is None
    assert set(findings.counts) == found


PIECES: dict[Surface, list[Any]] = {
    "chat": [{"choices": [{"delta": {"content": "The"}}]}, {"error": {"message": "the engine has died"}}],
    "responses": [
        {"type": "response.created", "response": {"error": None}},
        {"type": "response.failed", "response": {"error": {"message": "the engine has died"}}},
    ],
    "messages": [{"type": "error", "error": {"type": "api_error", "message": "the engine has died"}}],
    "ollama": [{"message": {"content": "The"}}, {"error": "the engine has died"}],
}


@pytest.mark.parametrize("surface", PIECES)
async def test_an_error_in_a_stream_is_one_in_every_protocol(surface: Surface) -> None:
    text = "".join(f"{'' if surface == 'ollama' else 'data: '}{json.dumps(each)}\n\n" for each in PIECES[surface])

    async def body() -> AsyncIterator[bytes]:
        yield text.encode()

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body()))
    async with httpx.AsyncClient(transport=transport, base_url="http://warm") as client:
        with pytest.raises(Failed, match="the engine has died"):
            await ask(client, Ask(surface, KEEPS, (Turn("user", "why?"),), stream=True), 30.0)


# -- what is slow ------------------------------------------------------------------------------------------------------


def judged(took_s: list[float], waited_s: float) -> dict[str, Any]:
    """What is said of answers of /health at 0, 1, 2 ... seconds, while the server's thread waits so long for each."""
    pulse = Pulse("http://127.0.0.1:1", "other", 1, 2)
    pulse.health = array("d", map(float, range(len(took_s)))), array("d", took_s)
    for at in range(4 * len(took_s)):
        pulse.waits.note(at / 4, at * waited_s, {}, {})
    health: dict[str, Any] = pulse.result()["health"]
    return health


def test_what_takes_longer_than_it_may_is_slow_unless_it_waited_for_a_processor() -> None:
    assert (quick := judged([0.001] * 9, 0.0))["slow"] == quick["above"] == 0
    assert (slow := judged([0.001] * 8 + [0.2], 0.0))["slow"] == slow["above"] == 1
    assert slow["told"] == [{"at_s": 8.0, "ms": 200, "waited_ms": 0}]
    assert (late := judged([0.001] * 8 + [0.2], 0.15))["slow"] == 0
    assert late["above"] == 1


# -- what is left ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="this system has no /dev/shm")
def test_what_a_process_holds_is_counted(tmp_path: Path) -> None:
    process, name = psutil.Process(), f"shepherd-test-{os.getpid()}"
    before, names = Held.of(process, tmp_path), shared_names()
    memory = os.memfd_create("shepherd-test")
    file = (SHARED / name).open("w")
    (tmp_path / "left").touch()
    try:
        now = Held.of(process, tmp_path)
        assert (now.memory_files, now.shared, now.files, now.handles) == (
            before.memory_files + 1, before.shared + 1, 1, before.handles + 2,
        )  # fmt: skip
        assert name in shared_names() - names
        assert orphaned({name}) == set()
        file.close()
        assert orphaned({name}) == {name}
    finally:
        os.close(memory)
        file.close()
        (SHARED / name).unlink()
    assert orphaned({name}) == set()
    assert zombies(process) == set()
