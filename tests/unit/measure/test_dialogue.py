"""Dialogues with sides that are scripted: what is asked, and what is made of the answers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest

from shepherd.core import (
    BadReply,
    ContextFull,
    Event,
    Evicted,
    Finished,
    Message,
    Progress,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    Usage,
)
from shepherd.engine.stats import CacheStats, Histogram
from shepherd.measure.dialogue import (
    IN_PROCESS,
    Overflow,
    Prompts,
    ServerCost,
    Side,
    Timed,
    ask_through,
    check_streams,
    timed,
)
from shepherd.measure.metrics import THROUGH_HTTP, Measured


class Scripted:
    """A side that remembers what it was asked; tokens are words."""

    def __init__(self, name: str = "s", *, n_pieces: int = 40, recomputes: int = 0, n_ctx: int = 10**9) -> None:
        self.side = Side(name, "m", self.stream)
        self.n_pieces, self.recomputes, self.n_ctx = n_pieces, recomputes, n_ctx
        self.asked: list[Request] = []
        self.log: list[str] = []
        self.stats = CacheStats(n_ctx)
        self.stats.eviction_s = Histogram()
        self.in_cache = 0
        self.of_answer = 0
        """Of those, tokens of the last answer: what is computed again before it takes it along."""
        self.resident = 0

    async def count(self, request: Request) -> int:
        return sum(len(message.text.split()) for message in request.messages)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        self.log.append(self.side.name)
        n_prompt = await self.count(request)
        new = n_prompt - self.in_cache
        self.resident += new
        computed, evicted = new, None
        if self.resident > self.n_ctx:
            self.resident -= self.n_ctx // 2
            computed += self.recomputes + self.of_answer if self.recomputes else 0
            evicted = Evicted(2, self.n_ctx // 2)
            self.stats.evictions += 1
            self.stats.eviction_s.observe(0.002)
        n_out = min(self.n_pieces, request.max_tokens or 10**9)
        yield Started("m", usage=Usage(input=computed, cache_read=n_prompt - computed))
        if evicted is not None:
            yield evicted
        yield Progress(1, 1)
        yield ReasoningDelta("a ")
        for _ in range(n_out - 1):
            yield TextDelta("word ")
        # the texts of all answers but the first ones give other tokens than the answers had
        self.of_answer = n_out if len(self.asked) < 4 else 0
        self.in_cache = n_prompt + self.of_answer
        self.resident += n_out
        yield Finished("length", Usage(computed, n_prompt - computed, 0, n_out))


async def test_an_answer_is_timed_from_its_first_text_to_its_last() -> None:
    scripted = Scripted(n_pieces=3)
    answer = await timed(scripted.side, scripted.side.request(max_tokens=5))
    assert 0 < answer.first_s < answer.last_s <= answer.whole_s
    assert (answer.n_pieces, answer.text, answer.usage.output) == (3, "a word word ", 3)
    assert answer.tokens_per_s is None, "three tokens show no speed"
    assert scripted.asked[0].sampling.temperature == 0
    assert scripted.asked[0].sampling.ignore_eos is True


async def test_an_answer_without_text_is_an_error() -> None:
    async def stream(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        yield Finished("end")

    side = Side("s", "m", stream)
    with pytest.raises(BadReply, match="s: the answer has no text"):
        await timed(side, side.request(max_tokens=5))


def answer(n_pieces: int, n_tokens: int) -> Timed:
    return Timed(1.0, 2.0, 2.0, n_pieces, "x", Usage(output=n_tokens), 0, 0)


def test_a_speed_is_that_behind_the_first_token() -> None:
    assert answer(9, 9).tokens_per_s == 8.0
    assert answer(11, 0).tokens_per_s == 10.0, "a side that counts nothing has sent one with each piece"


@pytest.mark.parametrize(
    ("pieces", "n_tokens", "n_asked"), [((1, 1, 1), 9, 3), ((1, 2), 9, 2), ((2,), 9, 1), ((1,), 7, 1)]
)
async def test_a_side_streams_if_one_answer_in_three_comes_in_pieces(
    pieces: tuple[int, ...], n_tokens: int, n_asked: int
) -> None:
    """A busy machine may bring a whole stream at once."""
    left, asked = list(pieces), []

    async def stream(request: Request) -> AsyncGenerator[Event, None]:
        asked.append(request)
        yield Started("m")
        for _ in range(left.pop(0)):
            yield TextDelta("x")
        yield Finished("length", Usage(output=n_tokens))

    side = Side("there", "m", stream)
    if len(pieces) == 3:
        with pytest.raises(BadReply, match="there does not stream: an answer of 9 tokens comes in one piece"):
            await check_streams(side, Message.user("Hi."))
    else:
        await check_streams(side, Message.user("Hi."))
    assert len(asked) == n_asked


async def test_both_sides_get_the_same_prompts_in_turn_and_none_twice() -> None:
    one, other = Scripted("one"), Scripted("other")
    found, theirs = Measured(), Measured()
    prompts = Prompts(1.0, seed=1)
    await ask_through([(one.side, found), (other.side, theirs)], prompts, 50, 16)
    await ask_through([(other.side, theirs), (one.side, found)], prompts, 50, 16)
    assert [each.messages for each in one.asked] == [each.messages for each in other.asked]
    assert {name: len(found.samples[name]) for name in THROUGH_HTTP} == dict.fromkeys(THROUGH_HTTP, 2)
    assert found.samples.keys() == theirs.samples.keys() == set(THROUGH_HTTP)
    firsts = [each.messages[0].text for each in one.asked]
    assert firsts[1] == firsts[2], "the warm prompt continues the cold one"
    assert len(set(firsts)) == 4
    assert one.asked[2].messages[:1] == one.asked[1].messages
    assert one.asked[2].messages[1].text == "a " + 15 * "word ", "with the answer that came"
    assert 45 <= await one.count(one.asked[1]) - 11 <= 55
    # the same seed in another run would find the prompts in a cache
    assert Prompts(1.0).text(50) != Prompts(1.0).text(50)


async def test_short_answers_show_no_speed_and_why() -> None:
    scripted, found = Scripted(n_pieces=4), Measured()
    await ask_through([(scripted.side, found)], Prompts(1.0), 50, 16)
    assert found.missing == {
        "generation": "its answers have fewer than 8 tokens, or came in one piece",
        "generation_deep": "its answers have fewer than 8 tokens, or came in one piece",
    }
    assert {"first_cold", "first_warm", "prompt"} == found.samples.keys()


async def test_the_server_costs_the_difference_of_pairs_in_changing_order() -> None:
    inside, outside = Scripted(IN_PROCESS), Scripted("server")
    log = inside.log = outside.log
    cost, found = ServerCost(inside.side, outside.side, Prompts(1.0)), Measured()
    for _ in range(2):
        await cost.pair(found)
    assert len(found.samples["server_first"]) == len(found.samples["server_answer"]) == 2
    assert log[2:] == ["server", IN_PROCESS, IN_PROCESS, "server"], "the first two only warm up"
    assert len({each.messages for each in (*inside.asked, *outside.asked)}) == 1, "the same work"


@pytest.mark.parametrize("recomputes", [0, 120])
async def test_tokens_that_are_computed_again_behind_an_eviction_are_counted(recomputes: int) -> None:
    scripted, found = Scripted(recomputes=recomputes, n_ctx=500), Measured()
    overflow = Overflow(scripted.side, Prompts(1.0), scripted.count, lambda: scripted.stats)
    for _ in range(12):
        await overflow.turn(found)
    assert len(found.samples["eviction"]) >= 2
    assert found.samples["eviction"] == pytest.approx([2.0] * len(found.samples["eviction"]))
    assert set(found.samples["computed_again"]) == {float(recomputes)}
    assert {each.on_full for each in scripted.asked} == {"evict"}


async def test_a_context_that_no_turn_can_leave_is_no_error() -> None:
    scripted, found = Scripted(), Measured()

    async def stream(request: Request) -> AsyncGenerator[Event, None]:
        if len(request.messages) > 2:
            raise ContextFull(needed=9, limit=8)
        async for event in scripted.stream(request):
            yield event

    overflow = Overflow(Side("s", "m", stream), Prompts(1.0), scripted.count, lambda: scripted.stats)
    for _ in range(3):
        await overflow.turn(found)
    assert found.missing == {"eviction": "no turn can leave the context of this model"}
    assert [len(each.messages) for each in scripted.asked] == [1, 1], "another conversation begins"


async def test_a_conversation_that_grows_too_long_begins_again() -> None:
    scripted, found = Scripted(), Measured()
    overflow = Overflow(scripted.side, Prompts(50.0), scripted.count, lambda: scripted.stats)
    for _ in range(102):
        await overflow.turn(found)
    lengths = [len(each.messages) for each in scripted.asked]
    assert max(lengths) == 199
    assert [after for before, after in itertools.pairwise(lengths) if after < before] == [1]
    assert found.samples == {}
