"""Several back ends for one request, in order: the next one answers where the one before it cannot.

    names in order ─ Health.order ─▶ attempt(first) ─ fails before its first content ─▶ attempt(second) ─▶ ...
                                          └ content ─▶ the answer is its own, whatever comes

Half an answer is never repeated. What comes before the first content decides by its class, never by a status:

    error                                              the next one is asked      it rests
    BackendError, EngineError but those below          yes                        yes
    Refused 404, 413, ContextFull, Unsupported         yes                        no: others may ask it
    InvalidRequest, UnknownModel, NotAllowed, others   no: wrong everywhere       no

A back end that rests is asked last; then one request finds out whether it is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from shepherd.core import (
    BackendError,
    CallStarted,
    ContextFull,
    EngineError,
    Event,
    Finished,
    OpaqueBlock,
    ReasoningDelta,
    Refused,
    ShepherdError,
    Started,
    TextDelta,
    Unreachable,
    Unsupported,
)
from shepherd.core.dataclasses import dataclass, replace

logger = logging.getLogger(__name__)

FIRST_REST_S = 5.0
LONGEST_REST_S = 300.0
MOST_NAMED = 8
"""Reasons in one sentence."""
_CONTENT = (TextDelta, ReasoningDelta, OpaqueBlock, CallStarted, Finished)
_OF_THE_REQUEST = frozenset({404, 413})
"""Statuses of `Refused` that say nothing about health: another model, or a shorter request, may be answered."""

Attempt = Callable[[str], AsyncGenerator[Event, None]]


def can_another_answer(error: ShepherdError) -> bool:
    return isinstance(error, BackendError | EngineError | ContextFull | Unsupported)


def is_unavailable(error: ShepherdError) -> bool:
    """Whether the error says that the back end itself cannot answer now."""
    if isinstance(error, Refused):
        return error.status not in _OF_THE_REQUEST
    return isinstance(error, BackendError | EngineError)


@dataclass(slots=True)
class _State:
    failures: int = 0
    rests_until: float = 0.0
    is_probed: bool = False
    """A request tests now whether it is back."""
    is_away: bool = False
    """It could not be reached, or a look at it has shown that it cannot answer: a look shows when it is back."""
    n_away: int = 0
    """How often it was; each time its cache may have gone."""
    reason: str = ""
    """Of the last failure."""


class Health:
    """Which back ends have failed lately. One event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[str, _State] = {}

    def order(self, names: Sequence[str]) -> list[str]:
        """Those that can be asked, then those that rest: if all do, the first is asked all the same."""
        resting = [name for name in names if self.rests(name)]
        return [name for name in names if name not in resting] + resting

    def rests(self, name: str) -> bool:
        """Whether it has failed, and its time is not over or another request is trying it."""
        state = self._states.get(name)
        return state is not None and state.failures > 0 and (state.is_probed or self._clock() < state.rests_until)

    def begin(self, name: str) -> None:
        if (state := self._states.get(name)) is not None and state.failures:
            state.is_probed = True

    def note(self, name: str, error: ShepherdError | None) -> None:
        """Record how a request ended; None = it was answered. Some errors do not count against its health."""
        state = self._states.setdefault(name, _State())
        state.is_probed = False
        if error is None:
            state.failures, state.is_away = 0, False
        elif is_unavailable(error):
            self._leave(state, error.message, is_away=isinstance(error, Unreachable))
            rest = min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(state.failures - 1, 10))
            stated = error.retry_after_s if isinstance(error, BackendError) else None
            state.rests_until = self._clock() + (min(stated, LONGEST_REST_S) if stated is not None else rest)

    def rest(self, name: str, reason: str) -> None:
        """Record that a look has found a back end that cannot answer; it rests until another one finds that it can."""
        state = self._states.setdefault(name, _State())
        self._leave(state, reason, is_away=True)
        state.rests_until = self._clock() + LONGEST_REST_S

    def wake(self, name: str) -> bool:
        """Record that a look has found a back end: if it rests because it was away, the next request tries it. Whether
        it does."""
        state, now = self._states.get(name), self._clock()
        if state is None or not state.is_away or state.rests_until <= now:
            return False
        state.rests_until = now
        return True

    def n_away(self, name: str) -> int:
        """How often it has gone away so far."""
        state = self._states.get(name)
        return 0 if state is None else state.n_away

    def reason(self, name: str) -> str:
        """Why it rests, in a sentence; empty where it has never failed."""
        state = self._states.get(name)
        return "" if state is None else state.reason

    def _leave(self, state: _State, reason: str, *, is_away: bool) -> None:
        state.failures += 1
        state.n_away += is_away and not state.is_away
        state.is_away |= is_away
        state.reason = reason

    def release(self, name: str) -> None:
        """Record that a request ended and showed nothing about health: it was cancelled, or invalid."""
        if (state := self._states.get(name)) is not None:
            state.is_probed = False

    def down(self) -> dict[str, float]:
        """Seconds that each resting back end still rests."""
        now = self._clock()
        return {name: each.rests_until - now for name, each in self._states.items() if self.rests(name)}


async def first_to_answer(names: Sequence[str], attempt: Attempt, health: Health) -> AsyncGenerator[Event, None]:
    """The events of the first back end that answers; `Started` names those in whose place it does: they have failed, or
    rest.

    Events before the first content wait for it, so that the answer has one beginning. Raises: the last error, as
    `Backend.stream`, with the reason of each that has failed.
    """
    failed: dict[str, str] = {}
    ordered = health.order(names)
    for at, name in enumerate(ordered):
        waiting: list[Event] = []
        has_content = False
        health.begin(name)
        try:
            async with aclosing(attempt(name)) as events:
                async for event in events:
                    if isinstance(event, Started):
                        passed = (each for at, each in enumerate(names) if each in failed or at < names.index(name))
                        event = replace(event, instead_of=tuple(passed))
                    if has_content:
                        yield event
                        continue
                    waiting.append(event)
                    if isinstance(event, _CONTENT):
                        has_content = True
                        health.note(name, None)
                        for each in waiting:
                            yield each
        except ShepherdError as error:
            if has_content or not can_another_answer(error):
                raise
            health.note(name, error)
            failed[name] = error.message.removeprefix(f"{name}: ")
            if at + 1 == len(ordered):
                if isinstance(error, BackendError) and len({*failed.values()}) > 1:
                    error.message = _reasons(failed)
                    error.args = (error.message,)
                raise
            logger.warning("%s cannot answer (%s); %s is asked", name, error.code, ordered[at + 1])
        else:
            return
        finally:
            health.release(name)


def _reasons(failed: Mapping[str, str]) -> str:
    """Why none of several back ends has answered."""
    alike: dict[str, list[str]] = {}
    for name, reason in failed.items():
        alike.setdefault(reason, []).append(name)
    listed = [f"{', '.join(names)}: {reason}" for reason, names in alike.items()]
    more = f"; and {len(listed) - MOST_NAMED} other reasons" if len(listed) > MOST_NAMED else ""
    return f"none of {len(failed)} can answer: {'; '.join(listed[:MOST_NAMED])}{more}"
