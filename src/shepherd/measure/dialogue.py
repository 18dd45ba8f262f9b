"""Asks a side as a client does, and times its answers: first tokens cold and warm, generation, evictions.

A prompt is never the same twice, also not in another run: a server may have kept the one of yesterday.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from shepherd.core import (
    BadReply,
    ContextFull,
    Event,
    Evicted,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    Started,
    TextDelta,
    Usage,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.stats import CacheStats
from shepherd.measure.metrics import Measured

LEAST_TOKENS = 8
"""Of an answer that shows how fast a side generates."""
TRIES = 3
"""Answers in one piece, from which on a side counts as one that does not stream."""
N_ANSWER = 16
"""Tokens of the answers that show what the server costs."""
TURN = 96
"""Tokens of a question in the conversation that overflows, about."""
MOST_MESSAGES = 200
"""Of that conversation, then another begins."""
IN_PROCESS = "in process"
PATIENCE_S = 2.0
"""For the engine to publish what it has counted."""
WORDS = (
    "river stone light garden window letter morning bread captain yellow paper mountain quiet engine silver question "
    "harbour winter simple number market teacher forest coffee evening little bridge travel music answer summer corner "
    "village clever picture machine island doctor kitchen open machine ancient story weather water basket distant"
)
"""All prompts are made of them."""


class Prompts:
    """Makes texts in common English words, none of them twice."""

    def __init__(self, tokens_per_word: float, seed: int | None = None) -> None:
        """`seed`: None = from the system."""
        self._random = random.Random(seed)
        self._tokens_per_word = tokens_per_word

    def text(self, n_tokens: int) -> str:
        n_words = max(4, round(n_tokens / self._tokens_per_word))
        words = self._random.choices(WORDS.split(), k=n_words)
        return f"{self._random.randrange(10**6)} {' '.join(words)}."


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    model: str
    stream: Callable[[Request], AsyncGenerator[Event, None]]
    ignores_end: bool = True
    """An answer continues behind its end, up to its limit (`ignore_eos`), so that all sides do the same work."""

    def request(self, *messages: Message, max_tokens: int) -> Request:
        sampling = Sampling(temperature=0, ignore_eos=True if self.ignores_end else None)
        return Request(self.model, messages, max_tokens=max_tokens, sampling=sampling)


class Timed(NamedTuple):
    first_s: float
    """From the request to the first text."""
    last_s: float
    """From the request to the last text."""
    whole_s: float
    n_pieces: int
    """Texts that it came in."""
    text: str
    usage: Usage
    """As counted by the side; all 0 where it counts nothing."""
    n_computed: int
    """Tokens of the prompt that were computed; 0 where the side does not report them."""
    n_evicted: int
    """Messages that have left the context for it."""

    @property
    def n_tokens(self) -> int:
        """Of the answer; a side that counts none has sent one with each piece, as far as is known."""
        return self.usage.output or self.n_pieces

    @property
    def tokens_per_s(self) -> float | None:
        """Behind the first token; None for an answer that is too short to tell."""
        if self.n_tokens < LEAST_TOKENS or self.last_s <= self.first_s:
            return None
        return (self.n_tokens - 1) / (self.last_s - self.first_s)


async def timed(side: Side, request: Request) -> Timed:
    """The whole answer, and when it came. Raises: what the side raises; `BadReply` for an answer without text."""
    texts: list[str] = []
    first = last = 0.0
    usage, n_computed, n_evicted = Usage(), 0, 0
    began = time.perf_counter()
    async with aclosing(side.stream(request)) as events:
        async for event in events:
            match event:
                case Started():
                    n_computed = event.usage.input + event.usage.cache_write
                case TextDelta() | ReasoningDelta() if event.text:
                    last = time.perf_counter() - began
                    first = first or last
                    texts.append(event.text)
                case Evicted():
                    n_evicted += event.messages
                case Finished():
                    usage = event.usage
                case _:
                    pass
    whole = time.perf_counter() - began
    if not texts:
        raise BadReply(f"{side.name}: the answer has no text", backend=side.name)
    return Timed(first, last, whole, len(texts), "".join(texts), usage, n_computed, n_evicted)


async def check_streams(side: Side, question: Message) -> None:
    """Ask until an answer comes in pieces: on a busy machine, a stream may arrive all at once.

    Raises: as `timed`; `BadReply` where no answer does, so that there is no first token.
    """
    for _ in range(TRIES):
        answer = await timed(side, side.request(question, max_tokens=4 * LEAST_TOKENS))
        if answer.n_pieces > 1 or answer.n_tokens < LEAST_TOKENS:
            return
    raise BadReply(
        f"{side.name} does not stream: an answer of {answer.n_tokens} tokens comes in one piece, so there is no first "
        "token to measure",
        backend=side.name,
    )


# -- what is measured -------------------------------------------------------------------------------------------------


async def ask_through(sides: Sequence[tuple[Side, Measured]], prompts: Prompts, depth: int, n_generate: int) -> None:
    """One round through HTTP: the same prompts to each side, one after the other; all metrics of `THROUGH_HTTP`."""
    short, long = (f"{prompts.text(n)} Tell a long story about it, and do not stop." for n in (8, depth))
    more = f"{prompts.text(16)} Go on."
    for side, found in sides:
        answer = await timed(side, side.request(Message.user(short), max_tokens=n_generate))
        _add_speed(found, "generation", answer)
        cold = await _cold_and_warm(side, found, long, more, n_generate)
        _add_speed(found, "generation_deep", cold)
        n_prompt = cold.usage.prompt - cold.usage.cache_read if cold.usage.prompt else depth
        found.add(prompt=n_prompt / cold.first_s)


async def first_tokens(side: Side, found: Measured, prompts: Prompts, depth: int) -> None:
    """A prompt that was never seen, then the same with one more turn."""
    await _cold_and_warm(side, found, prompts.text(depth), prompts.text(16), 4)


async def _cold_and_warm(side: Side, found: Measured, long: str, more: str, max_tokens: int) -> Timed:
    cold = await timed(side, side.request(Message.user(long), max_tokens=max_tokens))
    again = (Message.user(long), Message.assistant(cold.text), Message.user(more))
    warm = await timed(side, side.request(*again, max_tokens=4))
    found.add(first_cold=1000 * cold.first_s, first_warm=1000 * warm.first_s)
    return cold


def _add_speed(found: Measured, name: str, answer: Timed) -> None:
    if (speed := answer.tokens_per_s) is not None:
        found.add(**{name: speed})
        found.missing.pop(name, None)
    elif name not in found.samples:
        found.missing[name] = f"its answers have fewer than {LEAST_TOKENS} tokens, or came in one piece"


class ServerCost:
    """The same short request in process and through HTTP, in turn, over a prompt that both have in the cache."""

    def __init__(self, in_process: Side, through_http: Side, prompts: Prompts) -> None:
        self._sides = (in_process, through_http)
        self._text = prompts.text(16)
        self._is_warm = False

    async def pair(self, found: Measured) -> None:
        if not self._is_warm:
            self._is_warm = True
            for side in self._sides:
                await self._ask(side)
        self._sides = self._sides[::-1]
        answers = {side.name: await self._ask(side) for side in self._sides}
        inside, outside = sorted(self._sides, key=lambda side: side.name != IN_PROCESS)
        less, more = answers[inside.name], answers[outside.name]
        found.add(server_first=1000 * (more.first_s - less.first_s))
        found.add(server_answer=1000 * (more.whole_s - less.whole_s))

    async def _ask(self, side: Side) -> Timed:
        return await timed(side, side.request(Message.user(self._text), max_tokens=N_ANSWER))


class Overflow:
    """A conversation that is longer than its context: old turns leave, so that new ones fit."""

    def __init__(
        self, side: Side, prompts: Prompts, count: Callable[[Request], Awaitable[int]], stats: Callable[[], CacheStats]
    ) -> None:
        """`count`: the tokens of a whole prompt; `stats`: what the engine has counted so far."""
        self._side, self._prompts, self._count, self._stats = side, prompts, count, stats
        self._messages: tuple[Message, ...] = ()
        self._n_known = 0
        """Tokens of the last prompt. The answer behind it counts as new in the next one: its text need not give the
        same tokens again, and what an eviction spoils before it spoils it too."""
        self._usual = 0
        """Tokens computed besides the new ones where nothing left, at most: some templates change old turns."""

    async def turn(self, found: Measured) -> None:
        if len(self._messages) >= MOST_MESSAGES:
            self._messages, self._n_known = (), 0
        self._messages += (Message.user(self._prompts.text(TURN)),)
        request = self._side.request(*self._messages, max_tokens=4)
        n_prompt = await self._count(request)
        n_before, seconds_before = self._counted()
        try:
            answer = await timed(self._side, replace(request, on_full="evict"))
        except ContextFull:
            found.missing["eviction"] = "no turn can leave the context of this model"
            self._messages, self._n_known = (), 0
            return
        besides = max(0, answer.n_computed - (n_prompt - self._n_known))
        if answer.n_evicted:
            n_evictions, seconds = await self._newly_counted(n_before)
            found.add(computed_again=max(0, besides - self._usual))
            if n_evictions > n_before:
                found.add(eviction=1000 * (seconds - seconds_before) / (n_evictions - n_before))
        elif self._n_known:
            self._usual = max(self._usual, besides)
        self._messages += (Message.assistant(answer.text),)
        self._n_known = n_prompt

    def _counted(self) -> tuple[int, float]:
        stats = self._stats()
        return stats.evictions, stats.eviction_s.total

    async def _newly_counted(self, n_before: int) -> tuple[int, float]:
        """What the engine has counted: after more evictions than `n_before`, or after `PATIENCE_S`."""
        give_up = time.monotonic() + PATIENCE_S
        while (counted := self._counted())[0] <= n_before and time.monotonic() < give_up:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.005)
        return counted
