"""What of a conversation is in the cache: told as the ledger has it, and changed when turns are sent away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, in_process
from tests.unit.backends.local.serving import CHATML, making

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.window import Window, WindowRow, excerpt, window_rows
from shepherd.core import Evicted, InvalidRequest, Message, Request, Text, ToolResult, ToolSpec, fold
from shepherd.engine.base import CachedPrefix, Memory, Span
from shepherd.engine.decision_log import TRAILER
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import EngineOptions

Make = Callable[..., LocalBackend]
TOOLS = (ToolSpec("read_file", "Reads a file."),)


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with making() as make_one:

        def made(*answers: str, n_ctx: int = 2000, ram: int = 0, **more: Any) -> LocalBackend:
            tiers, options = EngineOptions(tiers=Tiers(ram_bytes=ram)), LocalOptions(on_full="evict")
            said = answers or ("Fine, thank you.",)
            return make_one(*said, n_ctx=n_ctx, engine_options=tiers, options=options, **more)[0]

        yield made


async def talk(backend: LocalBackend, n_turns: int, **fields: Any) -> Request:
    """A conversation of so many turns, had with the back end."""
    messages = [Message.system("Be kind.")]
    for n in range(n_turns):
        messages.append(Message.user(f"Question number {n}, and how are you?"))
        async with aclosing(backend.stream(Request("m", tuple(messages), session="s", **fields))) as events:
            messages.append(fold([event async for event in events]).message)
    return Request("m", tuple(messages), session="s", **fields)


def states(window: Window) -> list[str]:
    return [f"{row.kind} {row.state}{' kept' if row.kept else ''}" for row in window.rows]


async def test_a_conversation_is_told_turn_by_turn(make: Make) -> None:
    backend = make()
    request = await talk(backend, 2, tools=TOOLS)
    window = await backend.window(request)
    assert states(window) == ["system cached kept", "tools cached kept", "turn cached", "turn cached kept"]
    system, tools, first, second = window.rows
    assert (first.index, first.roles, first.excerpt) == (
        1,
        ("user", "assistant"),
        "Question number 0, and how are you?",
    )
    assert (system.excerpt, tools.roles, second.index) == ("Be kind.", (), 2)
    assert tools.n_tokens > len("Reads a file."), "a byte is a token here"
    assert window.n_held == sum(row.n_held for row in window.rows)
    assert (
        window.n_tokens == window.n_held + len("\n") == await backend.count(request) + len(["<|im_end|>"]) + len("\n")
    )
    assert (window.n_ctx, window.tier) == (2000, "cells")


async def test_what_nobody_has_computed_is_new(make: Make) -> None:
    backend = make()
    request = await talk(backend, 1)
    later = Request("m", (*request.messages, Message.user("Another.")), session="s")
    assert states(await backend.window(later)) == ["system cached kept", "turn cached", "turn new kept"]
    other = Request("m", (Message.system("Be rude."), Message.user("Hello")))
    window = await backend.window(other)
    assert states(window) == ["system partly kept", "turn new kept"]
    assert window.rows[0].n_held == len("<|im_start|>system\nBe ") - len("<|im_start|>") + 1
    assert states(await make().window(other)) == ["system new kept", "turn new kept"]


async def test_the_oldest_turns_leave_when_it_is_said_and_stay_away(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make()
    request = await talk(backend, 4)
    before = await backend.window(request)
    evicted = await backend.evict(request, 2)
    assert evicted == Evicted(4, before.rows[1].n_tokens + before.rows[2].n_tokens)
    assert evicted.gone == (1, 2, 3, 4)
    window = await backend.window(request)
    assert states(window) == [
        "system cached kept", "turn evicted", "turn evicted", "turn cached", "turn cached kept"
    ]  # fmt: skip
    assert window.n_held == before.n_tokens - evicted.tokens, "the markup behind the last answer is there now"
    later = Request("m", (*request.messages, Message.user("And now?")), session="s")
    caplog.clear()
    async with aclosing(backend.stream(later)) as events:
        usage = fold([event async for event in events]).usage
    new = len("<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n")
    assert usage.input <= new, "nothing of the rest is computed again"
    assert usage.prompt <= window.n_held + new
    assert "diverged" not in caplog.text, "what follows is no other conversation"


async def test_more_turns_than_there_are_leave_the_one_that_is_going_on(make: Make) -> None:
    backend = make()
    request = await talk(backend, 3)
    assert (await backend.evict(request, 99)).messages == 4
    assert states(await backend.window(request))[1:] == ["turn evicted", "turn evicted", "turn cached kept"]
    assert await backend.evict(request, 1) == Evicted(0, 0)


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["attention", "recurrent"])
async def test_the_cache_then_holds_what_is_left_whatever_the_memory_can(make: Make, memory: Memory) -> None:
    backend = make(memory=memory)
    request = await talk(backend, 3)
    await backend.evict(request, 1)
    window = await backend.window(request)
    assert window.rows[1].state == "evicted"
    pool = in_process(backend.engine)._scheduler.pool
    pool.ledger.check_self()
    assert all(row.state == "cached" for row in window.rows[2:])
    assert "Question number 0" not in held(backend)
    assert "Question number 1" in held(backend)


def held(backend: LocalBackend) -> str:
    runtime = in_process(backend.engine)._runtime
    assert isinstance(runtime, FakeRuntime)
    newest = max(in_process(backend.engine)._scheduler.pool.ledger, key=lambda resident: resident.used_at)
    return bytes(token for token in runtime.tokens(newest.id) if token < 256).decode()


async def test_a_conversation_that_is_not_in_the_cells_is_told_from_where_it_is(make: Make) -> None:
    backend = make(n_ctx=400, ram=2**20)
    request = await talk(backend, 2)
    other = Request("m", (Message.user("Hello. " * 40),))
    async with aclosing(backend.stream(other)) as events:
        assert [event async for event in events]
    window = await backend.window(request)
    assert (window.tier, states(window)) == ("memory", ["system cached kept", "turn cached", "turn cached kept"])


async def test_a_conversation_in_which_nothing_was_said_has_a_window_too(make: Make) -> None:
    backend = make()
    system = (Message.system("Be kind."),)
    assert (await backend.window(Request("m"))).rows == ()
    assert states(await backend.window(Request("m", tools=TOOLS))) == ["tools new kept"]
    assert states(await backend.window(Request("m", system, tools=TOOLS))) == ["system new kept", "tools new kept"]
    assert await backend.evict(Request("m", system), 1) == Evicted(0, 0)


async def test_nothing_leaves_a_cache_that_keeps_everything(make: Make) -> None:
    backend = make()
    request = await talk(backend, 2)
    with pytest.raises(InvalidRequest, match='overflow = "evict"'):
        await backend.evict(Request("m", request.messages, on_full="error"), 1)


async def test_whoever_asks_and_goes_away_does_not_break_the_engine(make: Make) -> None:
    backend = make()
    request = await talk(backend, 1)
    for _ in range(20):
        asking = asyncio.create_task(backend.window(request))
        await asyncio.sleep(0)
        asking.cancel()
    assert states(await backend.window(request)) == ["system cached kept", "turn cached kept"]


# -- a conversation of another process ------------------------------------------------------------------------------

WRITTEN = '<tool_call>{"name":"read_file","arguments":{"path":"a.txt"}}</tool_call>'
"""As no template spells it."""


async def usage(backend: LocalBackend, request: Request) -> tuple[int, Message]:
    """What an answer had to compute, and the answer."""
    async with aclosing(backend.stream(request)) as events:
        reply = fold([event async for event in events])
    return reply.usage.input, reply.message


async def test_what_another_process_has_been_told_is_read_from_the_tokens_it_has_left(make: Make) -> None:
    first = make(WRITTEN, "Fine, thank you.")
    asked = (Message.user("Read it."),)
    _, call = await usage(first, Request("m", asked, tools=TOOLS, session="s"))
    result = Message("tool", (ToolResult(call.calls[0].id, (Text("words"),), "read_file"),))
    history = (*asked, call, result)
    _, answer = await usage(first, Request("m", history, tools=TOOLS, session="s"))
    later = Request("m", (*history, answer, Message.user("And?")), tools=TOOLS, session="s")
    new = len("\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n")
    for is_acquainted in (False, True):
        again = make(engine=first.engine)
        if is_acquainted:
            await again.recognise(Request("m", (*history, answer), tools=TOOLS, session="s"))
        assert (await again.window(later)).rows[-2].state == "cached"
        assert (await usage(again, later))[0] <= new


async def test_nothing_is_believed_that_does_not_say_what_was_said(make: Make) -> None:
    first = make(WRITTEN)
    asked = (Message.user("Read it."),)
    _, call = await usage(first, Request("m", asked, tools=TOOLS, session="s"))
    forged = replace(call.calls[0], arguments='{"path": "b.txt"}', raw=None)
    result = Message("tool", (ToolResult(forged.id, (Text("words"),), "read_file"),))
    history = (*asked, Message("assistant", (forged,)), result)
    again = make(engine=first.engine)
    await again.recognise(Request("m", history, tools=TOOLS, session="s"))
    prompt = (await again.compile(Request("m", history, tools=TOOLS, session="s"))).prompt.text
    assert "b.txt" in prompt
    assert "a.txt" not in prompt


async def test_a_conversation_goes_on_with_the_day_on_which_it_began(make: Make) -> None:
    dated = "{{ strftime_now('%Y-%m-%d') }}" + CHATML
    began = datetime(2001, 2, 3, tzinfo=UTC)
    backend = make(template=dated)
    request = Request("m", (Message.user("Hello"), Message.assistant("Hi")), session="s")
    await backend.recognise(request, began)
    later = replace(request, messages=(*request.messages, Message.user("And?")))
    assert (await backend.compile(later)).prompt.text.startswith("2001-02-03")
    assert not (await backend.compile(replace(later, session="other"))).prompt.text.startswith("2001")


# -- pure --------------------------------------------------------------------------------------------------------------


def test_a_row_shows_the_beginning_of_what_was_asked() -> None:
    told = Message("user", (Text("[NOTICE]\n\n", aside=True), Text(" What\nis  it? " + "x" * 500)))
    assert excerpt([told, Message.assistant("That.")]) == f"What is it? {'x' * 67}…"
    assert excerpt([Message.assistant("Hi")]) == "Hi"
    assert excerpt([]) == ""


@settings(deadline=None)
@given(st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=9), st.data())
def test_every_token_of_the_prompt_is_in_one_row(roles: list[Any], data: st.DataObject) -> None:
    messages = [Message(role, (Text("x"),)) for role in roles]
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(roles), max_size=len(roles)))
    spans, at = [], 0
    for number, size in enumerate(sizes):
        spans.append(Span(at, at + size, number, number))
        at += size
    n_seen = data.draw(st.integers(0, at))
    gap = data.draw(st.integers(0, n_seen))
    kept = CachedPrefix(n_seen, ((0, gap // 2), (gap, n_seen)), "cells")
    made: tuple[WindowRow, ...] = window_rows(messages, spans, kept, n_tools=data.draw(st.integers(0, at)))
    assert sum(row.n_tokens for row in made) == at
    assert sum(row.n_held for row in made) == kept.n
    assert all(0 <= row.n_held <= row.n_tokens for row in made)
    assert all(row.state != "cached" for row in made if row.n_held < row.n_tokens - TRAILER)
