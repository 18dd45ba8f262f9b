"""A conversation of another process: its next prompt begins with the tokens that are saved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from tests.unit.backends.local.serving import making, reply
from tests.unit.backends.local.test_kept_system import ADD, DIRTY, OPUS, SYSTEM
from tests.unit.backends.local.test_leaving import read
from tests.unit.backends.local.test_quotes import CODE, FILLER, OPTIONS

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core import Message, Request

NAMED = replace(ADD, description="Adds.\nYou are Opus (1M context).")
RENAMED = replace(ADD, description='Adds "a".\nYou are Opus.')


@pytest.fixture
async def process() -> AsyncIterator[Callable[..., LocalBackend]]:
    """Each call is a back end over the cells of that name, of which it has seen nothing."""
    backends: dict[str, LocalBackend] = {}
    async with making() as make:

        def made(name: str, n_ctx: int = 32_768, options: LocalOptions | None = None) -> LocalBackend:
            engine = backends[name].engine if name in backends else None
            backends[name], _ = make(*["Baa."] * 40, n_ctx=n_ctx, options=options, engine=engine)
            return backends[name]

        yield made


async def test_a_changed_system_prompt_and_its_reminders_are_read_from_the_saved_tokens(
    process: Callable[..., LocalBackend],
) -> None:
    systems = (SYSTEM, OPUS, OPUS, DIRTY, DIRTY, SYSTEM, SYSTEM, OPUS)
    tools = (NAMED, NAMED, RENAMED, RENAMED, NAMED, NAMED, RENAMED, RENAMED)
    news: dict[str, list[int]] = {}
    for name, is_other in (("one", False), ("two", True)):
        turns: list[Message] = []
        backend = process(name)
        news[name] = []
        for n, (system, tool) in enumerate(zip(systems, tools, strict=True)):
            turns.append(Message.user(f"Question {n}, {name}"))
            if is_other:
                backend = process(name)
            asked = Request("m", (Message.system(system), *turns), tools=(tool,), session=name)
            answer = await reply(backend, asked)
            turns.append(answer.message)
            news[name].append(answer.usage.input)
    one, other = news.values()
    assert other == one


async def test_quotes_and_reminders_are_read_from_the_saved_tokens(process: Callable[..., LocalBackend]) -> None:
    files = {f"f{n}.py": FILLER for n in range(1, 7)} | {"f0.py": CODE + "\n" + FILLER}
    changes = replace(OPTIONS, reserve=64)
    news: dict[str, list[int]] = {}
    for name, is_other in (("one", False), ("two", True)):
        messages: list[Message] = [Message.user(f"Mend the parser, {name}.")]
        backend, news[name], n_quoted = process(name, 6144, changes), [], []
        questions = ["What is RELEASE_NAME?", "Thanks.", "And the status?", "What was RELEASE_NAME in f0.py?", "So?"]
        steps = [list(read(str(n), path, files[path])) for n, path in enumerate(sorted(files))]
        steps += [[Message.user(text)] for text in questions]
        for n, step in enumerate(steps):
            messages += step
            if is_other:
                backend = process(name, 6144, changes)
            system = SYSTEM if n < 3 else OPUS if n < 9 else DIRTY
            answer = await reply(backend, Request("m", (Message.system(system), *messages), session=name))
            if messages[-1].is_input:
                messages.append(answer.message)
            news[name].append(answer.usage.input)
            n_quoted.append(answer.usage.recalled)
        assert n_quoted[-1] > 0
    one, other = news.values()
    assert other == one
