"""The local back end over TensorRT-LLM's engine (a fake of the library): conversations, forms, stops and figures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_engine import FakeVocabulary
from tests.fakes import model_directory
from tests.unit.backends.local.serving import CHATML, events
from tests.unit.engine.trtllm.trt import FAKE

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.constrain import Constraints
from shepherd.core import Evicted, Finished, Message, Request, TextDelta, ToolSpec, Unsupported, fold
from shepherd.dialects import Template, detect
from shepherd.engine.trtllm.engine import TensorRTOptions, open_engine
from shepherd.engine.trtllm.library import LibraryOptions

CUP = "Place a cup of water on the table."
Make = Callable[..., tuple[LocalBackend, Any]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LocalBackend] = []

    def make_one(
        *say: tuple[str, str], kind: Any = "checkpoint", n_ctx: int = 1024, n_events: int = 1000, **options: Any
    ) -> tuple[LocalBackend, Any]:
        directory = model_directory.make(
            tmp_path / str(len(made)), kind, n_ctx=n_ctx, tokenizer=model_directory.bytewise(), say=[*say, ("", CUP)]
        )
        vocabulary = FakeVocabulary()
        library = LibraryOptions(str(directory), kind == "engine", n_ctx, n_events=n_events, module=FAKE)
        engine = open_engine(TensorRTOptions(library, end_tokens=vocabulary.end_tokens))
        dialect = detect(CHATML)
        backend = LocalBackend(
            engine, vocabulary, template=Template(CHATML), dialect=dialect, model="fake",
            options=LocalOptions(**options), constraints=Constraints(vocabulary, vocabulary.end_tokens, dialect),
        )  # fmt: skip
        made.append(backend)
        return backend, engine._library._llm._executor

    yield make_one
    for backend in made:
        await asyncio.to_thread(backend.engine.close)


def ask(text: str = "Where?", *history: Message, **fields: Any) -> Request:
    return Request("fake", (*history, Message.user(text)), **fields)


async def test_a_conversation_is_cached_turn_by_turn(make: Make) -> None:
    backend, _ = make()
    first = await events(backend, ask())
    assert "".join(event.text for event in first if isinstance(event, TextDelta)) == CUP
    reply = fold(first)
    assert reply.reason == "end"
    second = fold(await events(backend, ask("And then?", Message.user("Where?"), reply.message)))
    n_first = reply.usage.input + reply.usage.output - 1  # all but the end token was computed
    assert second.usage.cache_read == n_first
    n_prompt = await backend.count(ask("And then?", Message.user("Where?"), reply.message))
    assert second.usage.input + second.usage.cache_read == n_prompt


async def test_the_usage_has_the_librarys_own_figure(make: Make) -> None:
    backend, _ = make(n_events=0)
    first, again = [fold(await events(backend, ask())) for _ in range(2)]
    assert (first.usage.cache_read, again.usage.cache_read) == (0, first.usage.input - 1)
    assert again.usage.input == 1


@pytest.mark.parametrize("stop", [" water", "a cup", "table."])
async def test_a_stop_string_ends_the_answer_before_it(make: Make, stop: str) -> None:
    backend, worker = make(thinking="off")
    got = await events(backend, ask(stop=(stop,)))
    assert "".join(event.text for event in got if isinstance(event, TextDelta)) == CUP.partition(stop)[0]
    last = got[-1]
    assert isinstance(last, Finished)
    assert last.reason == "stop"
    assert worker.params_seen[-1].stop == ["<|im_start|>", stop], "the library looks for it too"


async def test_stops_stay_with_the_filter_where_thoughts_or_calls_may_hold_them(make: Make) -> None:
    backend, worker = make()
    tool = ToolSpec("add", "", {"type": "object"})
    got = fold(await events(backend, ask(stop=("cup",), tools=(tool,))))
    assert got.message.text == "Place a "
    assert worker.params_seen[-1].stop == ["<|im_start|>"], "what ends a turn is the library's in any case"


@pytest.mark.parametrize("kind", ["checkpoint", "engine"])
async def test_a_schema_is_kept_to(make: Make, kind: str) -> None:
    backend, worker = make(kind=kind, thinking="off")
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    got = fold(await events(backend, ask(schema=schema, max_tokens=300)))
    assert json.loads(got.message.text)["n"] in (1, 2)
    guide = worker.params_seen[-1].guided_decoding
    assert (guide.json if kind == "engine" else guide.grammar) is not None


async def test_an_engine_refuses_a_grammar_and_leaves_out_what_only_helps(make: Make) -> None:
    backend, worker = make(kind="engine", thinking="off")
    tool = ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}})
    assert fold(await events(backend, ask(tools=(tool,)))).message.text == CUP
    assert worker.params_seen[-1].guided_decoding is None
    with pytest.raises(Unsupported, match="can hold an answer to a JSON schema only"):
        await events(backend, ask(tools=(tool,), tool_choice="required"))


async def test_a_call_is_held_to_its_schema_on_a_checkpoint(make: Make) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'
    backend, worker = make(("add", call))
    tool = ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    reply = fold(await events(backend, ask("add three", tools=(tool,), max_tokens=200)))
    assert reply.reason == "tool_calls"
    assert json.loads(reply.message.calls[0].arguments) == {"a": 3}
    assert worker.params_seen[-1].guided_decoding.grammar is not None


async def test_old_turns_leave_and_the_conversation_goes_on(make: Make) -> None:
    backend, _ = make(n_ctx=512, on_full="evict")
    history: list[Message] = [Message.system("Be brief.")]
    n_gone = 0
    for n in range(12):
        request = ask(f"Question {n}, please.", *history)
        got = await events(backend, request)
        n_gone += sum(event.messages for event in got if isinstance(event, Evicted))
        reply = fold(got)
        assert reply.message.text == CUP
        history = [*request.messages, reply.message]
    assert n_gone >= 4
    assert backend.engine.stats().evicted_messages == n_gone
