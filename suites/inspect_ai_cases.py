"""Inspect, over OpenAI's chat, OpenAI's responses and Anthropic's messages. Run by `python_clients.py`."""

# Inspect is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    CompactionAuto,
    CompactionEdit,
    CompactionNative,
    CompactionSummary,
    CompactionTrim,
    GenerateConfig,
    ResponseSchema,
    compaction,
    get_model,
)
from inspect_ai.model._model import ModelGenerateError
from inspect_ai.scorer import includes
from inspect_ai.solver import generate
from inspect_ai.tool import ToolCall, ToolFunction, ToolInfo, ToolParams, tool
from inspect_ai.util import JSONSchema
from suites.python_cases import ENDLESS, KEY, LONG, MANY, PLACES, QUESTION, SHEEP, Cancelled, address, cancel, is_sheep

surfaces = pytest.mark.parametrize("surface", ["openai", "responses", "anthropic"])
LOOK = ToolInfo(name="look", description="Look at a place.", parameters=ToolParams(**PLACES))


def model(surface: str, *, name: str = "lamb", key: str = KEY, script: bool = False, **settings: Any) -> Any:
    config = GenerateConfig(**{"temperature": 0, "max_tokens": 40, "max_retries": 0, "timeout": 50, **settings})
    asked = {"api_key": key, "config": config, "memoize": False}
    if surface == "anthropic":
        return get_model(f"anthropic/{name}", base_url=address(script), **asked)
    if surface == "vendor":  # the provider that has OpenAI's own compaction
        return get_model(f"openai/{name}", base_url=f"{address(script)}/v1", responses_api=True, **asked)
    more = {"responses_api": True} if surface == "responses" else {}
    return get_model(f"openai-api/shepherd/{name}", base_url=f"{address(script)}/v1", **asked, **more)


@surfaces
def test_chat(surface: str, tmp_path: Path) -> None:
    """An evaluation of two samples, as `inspect eval` runs it."""
    task = Task(
        [Sample(QUESTION, target="sheep"), Sample("Hello", target="Hello")], solver=generate(), scorer=includes()
    )
    (log,) = eval(task, model(surface), display="none", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert all(sample.output.completion for sample in log.samples)
    assert all(sample.error is None for sample in log.samples)


@surfaces
async def test_stream(surface: str) -> None:
    pieces = []

    async def heard(event: Any) -> None:
        pieces.append(event.text)

    answer = await model(surface).generate(QUESTION, on_stream=heard)
    assert len(pieces) > 3
    assert "".join(pieces) == answer.completion


@surfaces
async def test_forced_tool(surface: str) -> None:
    for choice in ("any", ToolFunction("look")):
        answer = await model(surface, max_tokens=300).generate(QUESTION, tools=[LOOK], tool_choice=choice)
        (call,) = answer.message.tool_calls
        assert call.function == "look"
        assert call.parse_error is None
        assert call.arguments["at"] in ("hill", "barn")
        assert answer.stop_reason == "tool_calls"


@surfaces
async def test_tool_result(surface: str) -> None:
    history = [
        ChatMessageUser(content=QUESTION),
        ChatMessageAssistant(content="", tool_calls=[ToolCall("call_1", "look", {"at": "hill"})]),
        ChatMessageTool(content="a sheep", tool_call_id="call_1", function="look"),
    ]
    answer = await model(surface).generate(history, tools=[LOOK])
    assert answer.stop_reason in ("stop", "max_tokens", "tool_calls")


@surfaces
@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_calls(surface: str, stream: bool) -> None:
    """The library's own loop: two calls at once, their results, the last words."""
    seen = []

    @tool
    def look():
        async def execute(at: str) -> str:
            """Look at a place.

            Args:
                at: The place.
            """
            seen.append(at)
            return "a sheep"

        return execute

    async def heard(event: Any) -> None:
        pass

    more = {"on_stream": heard} if stream else {}
    _, answer = await model(surface, name="fake", script=True).generate_loop(QUESTION, tools=[look()], **more)
    assert sorted(seen) == ["größe", "🐑"]
    assert answer.completion == "Two sheep."


@surfaces
async def test_schema(surface: str) -> None:
    schema = ResponseSchema(name="sheep", json_schema=JSONSchema(**SHEEP), strict=True)
    answer = await model(surface, max_tokens=300, response_schema=schema).generate(QUESTION)
    assert is_sheep(json.loads(answer.completion))


@surfaces
async def test_usage(surface: str) -> None:
    usage = (await model(surface, max_tokens=7).generate(QUESTION)).usage
    assert 0 < usage.output_tokens <= 7
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    assert usage.input_tokens + cached + usage.output_tokens == usage.total_tokens > 10


@surfaces
async def test_usage_of_a_stream(surface: str) -> None:
    async def heard(event: Any) -> None:
        pass

    whole = (await model(surface, max_tokens=7).generate(QUESTION)).usage
    usage = (await model(surface, max_tokens=7).generate(QUESTION, on_stream=heard)).usage
    assert (usage.total_tokens, usage.output_tokens) == (whole.total_tokens, whole.output_tokens)


@surfaces
async def test_unknown_model(surface: str) -> None:
    with pytest.raises(Exception, match="wolf") as caught:
        await model(surface, name="wolf").generate(QUESTION)
    assert status(caught.value) == 404


@surfaces
async def test_wrong_key(surface: str) -> None:
    with pytest.raises(Exception, match=r"(?i)key") as caught:
        await model(surface, key="wrong").generate(QUESTION)
    assert status(caught.value) == 401


def status(error: Exception) -> int | None:
    """Of its own error, or of the SDK's error that it lets through."""
    kind = type(error)
    assert isinstance(error, ModelGenerateError) or kind.__module__.partition(".")[0] in ("openai", "anthropic"), kind
    return error.status_code


@surfaces
async def test_overflow(surface: str) -> None:
    answer = await model(surface).generate(LONG)
    assert answer.stop_reason == "model_length"
    assert "1024" in answer.completion


@surfaces
async def test_overflow_of_a_stream(surface: str) -> None:
    async def heard(event: Any) -> None:
        pass

    answer = await model(surface).generate(LONG, on_stream=heard)
    assert answer.stop_reason == "model_length"


def test_embeddings() -> None:
    pytest.skip("Inspect has no embeddings")


@surfaces
async def test_async(surface: str) -> None:
    asked = model(surface)
    one, two = await asyncio.gather(asked.generate(QUESTION), asked.generate(QUESTION))
    assert one.completion == two.completion


@surfaces
async def test_cancelling(surface: str) -> None:
    async def read(has_begun: asyncio.Event) -> None:
        async def heard(event: Any) -> None:
            has_begun.set()

        await model(surface, name=ENDLESS, max_tokens=MANY).generate(QUESTION, on_stream=heard)

    async with Cancelled():
        await cancel(read)


VENDOR_LEAST = 50_000
"""Inspect has Anthropic compact prompts of more tokens only."""
STRATEGIES = {
    "native": CompactionNative,
    "auto": CompactionAuto,
    "edit": CompactionEdit,
    "trim": CompactionTrim,
    "summary": CompactionSummary,
}


@pytest.mark.parametrize(
    ("surface", "strategy", "threshold"),
    [
        ("vendor", "native", 1500),
        ("vendor", "auto", 1500),
        ("anthropic", "native", VENDOR_LEAST),
        ("anthropic", "auto", 1500),
        *(
            (surface, strategy, 1500)
            for surface in ("vendor", "anthropic")  # over OpenAI's chat it counts with a file of tiktoken's site
            for strategy in ("edit", "trim", "summary")
        ),
    ],
)
async def test_compaction(surface: str, strategy: str, threshold: int) -> None:
    """A session that the library compacts by itself, and that goes on behind it."""
    asked = model(surface, name="windowed", max_tokens=8, timeout=110)
    prefix = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content=QUESTION)]
    messages, size = [*prefix], 150 if threshold < 2000 else 1000
    handler = compaction(STRATEGIES[strategy](threshold=threshold, memory=False), prefix, [LOOK], asked)
    before, n_behind, n_rounds = frozenset(), 0, threshold // size + 6
    for n in range(n_rounds):
        input, more = await handler.compact_input(messages)
        messages += [more] if more is not None else []
        ids = {message.id for message in input}
        n_behind += bool(n_behind) or not before <= ids
        before = ids
        if n_behind:  # what comes before is not asked for: it is computed with the first question
            answer = await asked.generate(input, tools=[LOOK], tool_choice="none")
            assert answer.stop_reason in ("stop", "max_tokens"), answer.completion
            assert answer.usage.output_tokens > 0
            await handler.record_output(input, answer)
        if n_behind == 3:
            return
        call = ToolCall(f"call_{n}", "look", {"at": "hill"})
        messages += [
            ChatMessageAssistant(content="", tool_calls=[call]),
            ChatMessageTool(content=f"Sheep {n}. " * (size // 4), tool_call_id=call.id, function="look"),
        ]
    pytest.fail("it has not compacted")
