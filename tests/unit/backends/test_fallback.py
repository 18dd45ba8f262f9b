"""Several back ends in order: who answers, who rests, and that half an answer is never repeated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import pytest

from shepherd.backends.fallback import FIRST_REST_S, Health, first_to_answer
from shepherd.core import (
    BackendError,
    BadReply,
    ContextFull,
    EngineDown,
    Event,
    Finished,
    InvalidRequest,
    NotAllowed,
    RateLimited,
    Refused,
    ShepherdError,
    Started,
    TextDelta,
    TimedOut,
    UnknownModel,
    Unreachable,
    Unsupported,
    fold,
)

DOWN = Unreachable("no connection", backend="a")


class Stage:
    """Back ends by name: each fails before its first content, after it, or answers with its name."""

    def __init__(self, **failures: ShepherdError | None) -> None:
        self.failures = failures
        self.late: dict[str, ShepherdError] = {}
        self.asked: list[str] = []
        self.now = 0.0
        self.health = Health(lambda: self.now)

    async def attempt(self, name: str) -> AsyncGenerator[Event, None]:
        self.asked.append(name)
        if (error := self.failures.get(name)) is not None:
            raise error
        yield Started(name)
        if name in self.late and name.startswith("silent"):
            raise self.late[name]
        yield TextDelta(name)
        if name in self.late:
            raise self.late[name]
        yield Finished("end")

    async def ask(self, *names: str) -> list[Event]:
        self.asked.clear()
        return [event async for event in first_to_answer(names, self.attempt, self.health)]


RETRIED: list[Callable[[], ShepherdError]] = [
    lambda: DOWN,
    lambda: TimedOut("late", backend="a"),
    lambda: BadReply("odd", backend="a"),
    lambda: EngineDown("stopped"),
    lambda: ContextFull(needed=9, limit=5),
    lambda: Refused("no key", backend="a", status=401),
    lambda: Refused("gone", backend="a", status=404),
    lambda: Refused("money", backend="a", status=402),
    lambda: RateLimited("slow down", backend="a", retry_after_s=60.0),
    lambda: Unsupported("no grammars here", field="grammar"),
]
FINAL: list[Callable[[], ShepherdError]] = [
    lambda: InvalidRequest("wrong", field="x"),
    lambda: UnknownModel("m"),
    lambda: NotAllowed("this route is private", status=403),
]


@pytest.mark.parametrize("made", RETRIED)
async def test_the_next_one_answers_where_another_may(made: Callable[[], ShepherdError]) -> None:
    stage = Stage(a=made())
    events = await stage.ask("a", "b")
    assert fold(events).message.text == "b"
    started = events[0]
    assert isinstance(started, Started)
    assert started.instead_of == ("a",)
    assert stage.asked == ["a", "b"]


@pytest.mark.parametrize("made", FINAL)
async def test_a_wrong_request_is_wrong_everywhere(made: Callable[[], ShepherdError]) -> None:
    stage = Stage(a=made())
    with pytest.raises(ShepherdError) as caught:
        await stage.ask("a", "b")
    assert type(caught.value) is type(made())
    assert stage.asked == ["a"]
    assert not stage.health.down()


async def test_half_an_answer_is_never_repeated() -> None:
    stage = Stage()
    stage.late = {"a": DOWN, "silent": DOWN}
    seen: list[Event] = []

    async def watch() -> None:
        async for event in first_to_answer(("a", "b"), stage.attempt, stage.health):
            seen.append(event)

    with pytest.raises(BackendError):
        await watch()
    assert seen == [Started("a"), TextDelta("a")]
    assert stage.asked == ["a"]
    assert fold(await stage.ask("silent", "b")).message.text == "b", "nothing was shown yet"


async def test_the_last_error_is_the_answer() -> None:
    stage = Stage(a=DOWN, b=RateLimited("slow down", backend="b"))
    with pytest.raises(RateLimited):
        await stage.ask("a", "b")


async def test_one_that_failed_rests_longer_each_time_and_is_tried_by_one_request() -> None:
    stage = Stage(a=DOWN)
    await stage.ask("a", "b")
    await stage.ask("a", "b")
    assert stage.asked == ["b"]
    for n in range(3):
        rest = FIRST_REST_S * 2**n
        stage.now += 0.9 * rest
        await stage.ask("a", "b")
        assert stage.asked == ["b"], "it still rests"
        stage.now += 0.2 * rest
        await stage.ask("a", "b")
        assert stage.asked == ["a", "b"], "one request finds out"
    stage.failures.clear()
    stage.now += 10_000
    probe = first_to_answer(("a", "b"), stage.attempt, stage.health)
    await anext(probe)
    assert stage.health.rests("a") is False, "its first content says that it is back"
    await probe.aclose()
    await stage.ask("a", "b")
    assert stage.asked == ["a"]


async def test_while_one_request_probes_the_others_go_elsewhere() -> None:
    stage = Stage(a=DOWN)
    await stage.ask("a", "b")
    stage.now += FIRST_REST_S
    stage.health.begin("a")
    await stage.ask("a", "b")
    assert stage.asked == ["b"]
    stage.health.release("a")
    assert not stage.health.rests("a"), "a probe that was cancelled makes room for another"


async def test_one_that_has_failed_for_days_rests_no_longer_than_five_minutes() -> None:
    stage = Stage()
    for _ in range(2_000):
        stage.health.note("a", DOWN)
    assert stage.health.down() == {"a": 300.0}


async def test_where_none_can_answer_the_error_has_each_reason_once() -> None:
    away = {name: Unreachable("x: no connection", backend=name) for name in ("a", "b")}
    stage = Stage(**away, c=Unreachable("c: too slow", backend="c"))
    with pytest.raises(Unreachable, match=r"^none of 3 can answer: a, b: x: no connection; c: too slow$"):
        await stage.ask("a", "b", "c")
    stage = Stage(a=DOWN, b=DOWN)
    with pytest.raises(Unreachable, match=r"^no connection$"):
        await stage.ask("a", "b")
    many = {f"n{number}": Unreachable(f"reason {number}", backend="") for number in range(12)}
    with pytest.raises(Unreachable, match=r"; n7: reason 7; and 4 other reasons$"):
        await Stage(**many).ask(*many)


async def test_a_provider_that_names_its_delay_rests_so_long() -> None:
    stage = Stage(a=RateLimited("slow down", backend="a", retry_after_s=42.0))
    await stage.ask("a", "b")
    assert stage.health.down() == {"a": 42.0}


@pytest.mark.parametrize("error", [
    ContextFull(needed=9, limit=5),
    Unsupported("no images", field="messages"),
    Refused("no such model", backend="a", status=404),
    Refused("too large", backend="a", status=413),
])  # fmt: skip
async def test_what_is_about_the_request_says_nothing_about_health(error: ShepherdError) -> None:
    stage = Stage(a=error)
    await stage.ask("a", "b")
    assert not stage.health.down()
