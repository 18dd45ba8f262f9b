"""What is large is done off the event loop, a few at a time, and given up with its client; what is wrong is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.backends.local.serving import making

from shepherd.backends.local.backend import LocalBackend
from shepherd.backends.local.constrain import Constraints, loose
from shepherd.backends.local.offload import HEAVY, offload, weight_of
from shepherd.core import Finished, InvalidRequest, Message, Request, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects import Template
from shepherd.dialects.families.hermes import HERMES
from shepherd.engine.grammar.mask import ProbeBudget
from shepherd.process.pools import THREADS

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ strftime_now('%Y') }}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PATIENCE_S = 60.0


def optional(n: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(n)}}


def tools(n: int) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(f"tool_{at}", "Does it.", optional(3)) for at in range(n))


class Held:
    """A clock that a rendering asks, and that answers when it is let."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.threads: set[int] = set()

    def __call__(self) -> datetime:
        self.threads.add(threading.get_ident())
        if threading.current_thread() is not threading.main_thread():
            self.asked.set()
            assert self.go_on.wait(PATIENCE_S)
        return datetime(2026, 1, 1)


@pytest.fixture
def clock() -> Iterator[Held]:
    held = Held()
    yield held
    held.go_on.set()


@pytest.fixture
async def backend(clock: Held) -> AsyncIterator[LocalBackend]:
    async with making() as make:
        yield make("Hi.", n_ctx=10_000_000, template=Template(TEMPLATE, clock=clock))[0]
        clock.go_on.set()


def ask(**fields: Any) -> Request:
    return Request("fake", (Message.user("Hello"),), **fields)


LARGE = [
    ask(tools=tools(200)),
    ask(tools=(ToolSpec("one", "", optional(5000)),)),
    Request("fake", tuple(Message.user("Hm.") for _ in range(2000))),
    Request("fake", (Message("user", tuple(Text("Hm. " * 50) for _ in range(1000))),)),
    Request("fake", (Message.user("?"), Message("assistant", (ToolCall("1", "a", "{}"),)),
                     Message("tool", (ToolResult("1", (Text("x" * 200_000),)),)))),
]  # fmt: skip


@pytest.mark.parametrize("request_", LARGE, ids=["tools", "schema", "messages", "parts", "result"])
async def test_the_event_loop_goes_on_while_a_large_request_is_rendered(
    backend: LocalBackend, clock: Held, request_: Request
) -> None:
    counting = asyncio.create_task(backend.count(request_))
    assert await asyncio.to_thread(clock.asked.wait, PATIENCE_S)  # in a thread of its own, which waits
    assert not counting.done()
    clock.go_on.set()
    assert await counting > 0
    assert threading.main_thread().ident not in clock.threads


async def test_an_ordinary_request_takes_no_thread(backend: LocalBackend, clock: Held) -> None:
    async with aclosing(backend.stream(ask(tools=tools(20)))) as events:
        assert [event async for event in events if isinstance(event, Finished)]
    assert clock.threads == {threading.main_thread().ident}


async def test_heavy_requests_wait_for_each_other_and_leave_the_line_with_their_clients() -> None:
    heavy = Request("fake", (Message.user("x" * (HEAVY + 1)),))
    assert weight_of(heavy) > HEAVY
    go_on, running, done = threading.Event(), threading.Semaphore(0), list[int]()

    def work(number: int) -> None:
        running.release()
        assert go_on.wait(PATIENCE_S)
        done.append(number)

    asked = [asyncio.create_task(offload(HEAVY + 1, work, number)) for number in range(100)]
    for _ in range(THREADS["heavy prompts"]):
        assert await asyncio.to_thread(running.acquire, timeout=PATIENCE_S)
    before = threading.active_count()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    go_on.set()
    await offload(HEAVY + 1, lambda: None)
    await offload(HEAVY + 1, lambda: None)
    assert len(done) <= THREADS["heavy prompts"]
    assert threading.active_count() <= before


# ---- what an answer is held to


@pytest.fixture(scope="module")
def constraints(weights: Weights) -> Constraints:
    return Constraints(weights, weights.end_tokens, HERMES)


@pytest.mark.model
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (optional(10_000), "response_format.schema has 20002 values in it; at most 20000 are accepted"),
        (optional(2_001), "response_format.schema.properties has 2001 properties that are not required; at most 2000"),
        ({"enum": [str(at) for at in range(100_000)]}, "response_format.schema has 100001 values in it"),
        (
            {
                "$defs": {"big": optional(900)},
                "type": "object",
                "properties": {f"a{at}": {"allOf": [{"$ref": "#/$defs/big"}]} for at in range(900)},
            },
            "allOf joins more than 5000 values",
        ),
    ],
)
def test_a_form_that_is_too_much_is_refused_by_its_own_name(
    constraints: Constraints, schema: dict[str, Any], told: str
) -> None:
    request = ask(schema=schema, extra={"constrained_by": "response_format.schema"})
    with pytest.raises(InvalidRequest) as refused:
        constraints.find(request, "")
    assert told in refused.value.message
    assert "tool" not in refused.value.message
    assert (refused.value.field or "").startswith("response_format.schema")


@pytest.mark.model
def test_a_form_that_the_library_finds_too_complex_is_refused_in_words_about_the_form(
    constraints: Constraints,
) -> None:
    alternatives = [
        {"type": "object", "properties": {f"k{at}": {"const": at}}, "required": [f"k{at}"]} for at in range(2500)
    ]
    request = ask(schema={"anyOf": alternatives}, extra={"constrained_by": "format"})
    with pytest.raises(InvalidRequest, match=r"^format cannot be kept to: .*; make it simpler$") as refused:
        constraints.find(request, "")
    assert refused.value.field == "format"


@pytest.mark.model
def test_a_form_of_hundreds_of_properties_is_kept_to(constraints: Constraints) -> None:
    names = [f"p{at}" for at in range(600)]
    for schema in (optional(600), {**optional(600), "required": names, "additionalProperties": False}):
        assert constraints.find(ask(schema=schema), "").lark is not None


@pytest.mark.model
def test_a_tool_whose_schema_is_too_much_can_still_be_called(constraints: Constraints) -> None:
    found = constraints.find(ask(tools=(ToolSpec("one", "", optional(10_000)), *tools(2))), "")
    assert found.lark is not None
    assert len(found.lark) < 10_000


def test_what_is_wrong_with_many_tools_is_looked_for_only_so_long() -> None:
    broken = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "(?=x)"}, **optional(50)["properties"]},
    }
    left = ProbeBudget(10_000)
    fit = partial(loose, probes=left)
    for at in range(1000):
        assert fit(ToolSpec(f"tool_{at}", "", broken), broken)
    assert fit(ToolSpec("last", "", broken), broken) == {"type": "object"}
