"""Local back ends over the fake runtime, for the tests of every room above the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

from tests.fake_engine import BYTES, PLAIN, FakeRuntime, FakeVocabulary, Faults, say

from shepherd.backends.base import Backend
from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.constrain import Constraints
from shepherd.core import Event, Reply, Request, fold
from shepherd.dialects import Template, detect
from shepherd.engine.base import Memory
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.scheduler import EngineOptions

CHATML = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    '{% for c in m.tool_calls or [] %}{{ \'\n<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)

Make = Callable[..., tuple[LocalBackend, FakeRuntime]]


@asynccontextmanager
async def making() -> AsyncIterator[Make]:
    """A function that makes back ends, each with its runtime; their engines are closed behind the block."""
    engines: list[InProcessEngine] = []

    def make_one(
        *answers: str,
        model: Callable[[Sequence[int]], int] | None = None,
        vocabulary: FakeVocabulary | None = None,
        user_defined: Sequence[str] = (),
        end_tokens: frozenset[int] | None = None,
        n_ctx: int = 4096,
        memory: Memory = PLAIN,
        faults: Faults | None = None,
        engine: InProcessEngine | None = None,
        engine_options: EngineOptions | None = None,
        is_constrained: bool = False,
        template: str | Template = CHATML,
        options: LocalOptions | None = None,
    ) -> tuple[LocalBackend, FakeRuntime]:
        """`model`: in place of one that gives these `answers` in turn. `engine`: one that there is already, of which
        this back end has seen nothing."""
        vocabulary = vocabulary or FakeVocabulary(user_defined=user_defined)
        ends = frozenset({vocabulary.ids["<|im_end|>"]}) if end_tokens is None else end_tokens
        compiled = template if isinstance(template, Template) else Template(template)
        dialect = detect(compiled.source)
        constraints = Constraints(vocabulary, ends, dialect) if is_constrained else None
        if engine is None:
            script = model or say(vocabulary, *answers)
            engine = InProcessEngine(
                FakeRuntime(script, ends, n_ctx=n_ctx, memory=memory, faults=faults or Faults()),
                show=vocabulary.piece,
                options=engine_options or EngineOptions(),
                constrainer=constraints.constrainer if constraints else None,
            )
            engines.append(engine)
        backend = LocalBackend(
            engine,
            vocabulary,
            template=compiled,
            dialect=dialect,
            model="fake",
            options=options,
            constraints=constraints,
        )
        runtime = engine._runtime
        assert isinstance(runtime, FakeRuntime)
        return backend, runtime

    try:
        yield make_one
    finally:
        for each in engines:
            await asyncio.to_thread(each.close)


def seen(runtime: FakeRuntime) -> bytes:
    """All text that the model has computed, without control tokens, in order."""
    return bytes(token for batch in runtime.batches for chunk in batch for token in chunk.tokens if token < BYTES)


async def events(backend: Backend, request: Request) -> list[Event]:
    async with aclosing(backend.stream(request)) as stream:
        return [event async for event in stream]


async def reply(backend: Backend, request: Request) -> Reply:
    return fold(await events(backend, request))
