"""The memory's tools: what they answer, and how they take what models send."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.core import Text, ToolCall, ToolResult
from shepherd.memory.rows import Entry
from shepherd.memory.store import MemoryStore
from shepherd.tools.memory import SPECS, TOOLS, MemoryTools


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path / "memory.db") as made:
        yield made


def text_of(result: ToolResult) -> str:
    (part,) = result.parts
    assert isinstance(part, Text)
    return part.text


async def call(store: MemoryStore, tool: str, **arguments: object) -> str:
    result = await MemoryTools(store).run(ToolCall("c", tool, json.dumps(arguments)))
    assert result.call_id == "c"
    assert result.name == tool
    assert not result.is_error, text_of(result)
    return text_of(result)


async def test_facts_are_set_read_changed_and_cleared(store: MemoryStore) -> None:
    assert await call(store, "get_fact", key="favorite_color") == '{"value": null, "found": false}'
    assert await call(store, "set_fact", key="favorite_color", value="blue") == '{"success": true}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": "blue"}'
    assert await call(store, "set_fact", key="favorite_color", value="red") == '{"success": true}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": "red"}'
    assert await call(store, "clear_fact", key="favorite_color") == '{"success": true, "found": true}'
    assert await call(store, "clear_fact", key="favorite_color") == '{"success": true, "found": false}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": null, "found": false}'


async def test_a_note_is_found_in_the_seeds_words_replaced_and_cleared(store: MemoryStore) -> None:
    assert await call(store, "store_memory", question="What is the capital of France?", answer="Lyon") == (
        '{"success": true}'
    )
    await call(store, "store_memory", question="What is the capital of France?", answer="Paris")
    found = await call(store, "search_memory", query="capital of France", max_results=3)
    assert found.startswith("Found 1 archived conversation(s):\n")
    assert "Result 1 [Relevance: 0.9" in found
    assert "User: What is the capital of France?\n" in found
    assert "Assistant: Paris" in found
    assert "Lyon" not in found
    await call(store, "clear_memory", question="What is the capital of France?")
    assert await call(store, "search_memory", query="capital of France") == (
        "No archived conversations found matching: capital of France"
    )


async def test_the_question_that_is_being_asked_is_not_its_own_answer(store: MemoryStore) -> None:
    store.archive([Entry("user", "The code of the shed is 4711."), Entry("assistant", "Got it.")], session="before")
    store.archive([Entry("user", "What is the code of the shed?")], session="now")
    result = await MemoryTools(store, session="now").run(ToolCall("c", "search_memory", '{"query": "code shed"}'))
    assert "Found 1 archived" in text_of(result)
    assert "4711" in text_of(result)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("search_memory", "{}", "'query' is missing"),
        ("search_memory", '{"query": null}', "'query' is missing"),
        ("search_memory", '{"query": "x", "max_results": "many"}', "'max_results' must be a whole number"),
        ("search_memory", "[1]", "one JSON object"),
        ("search_memory", '{"query": ', "not JSON"),
        ("set_fact", '{"key": "a"}', "'value' is missing"),
        ("set_fact", '{"key": "  ", "value": "b"}', "key"),
        ("fly_to_moon", "{}", "there is no tool 'fly_to_moon'; there are: search_memory, get_fact"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_to_do(
    store: MemoryStore, name: str, arguments: str, says: str
) -> None:
    result = await MemoryTools(store).run(ToolCall("c", name, arguments))
    assert result.is_error
    assert text_of(result).startswith("Error: ")
    assert says in text_of(result)


async def test_arguments_are_taken_as_models_write_them(store: MemoryStore) -> None:
    await call(store, "set_fact", name="n", value=42)
    assert await call(store, "get_fact", key="n") == '{"value": "42"}'
    assert (
        await call(store, "search_memory", query="x", max_results="3") == "No archived conversations found matching: x"
    )
    assert "matching: x" in await call(store, "search_memory", query="x", max_results=10_000)


async def test_a_tool_that_is_not_offered_cannot_be_called(store: MemoryStore) -> None:
    tools = MemoryTools(store, names={"get_fact"})
    assert [spec.name for spec in tools.specs] == ["get_fact"]
    result = await tools.run(ToolCall("c", "set_fact", '{"key": "a", "value": "b"}'))
    assert result.is_error
    assert store.get_fact("a") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["query", "max_results", "key", "value", "question", "answer", "name", "x"])


@settings(deadline=None, max_examples=200)
@given(name=st.sampled_from(list(TOOLS)), given_=st.dictionaries(names, json_values))
def test_no_call_raises(tmp_path_factory: pytest.TempPathFactory, name: str, given_: dict[str, object]) -> None:
    import asyncio

    folder = tmp_path_factory.getbasetemp() / "hostile"
    folder.mkdir(exist_ok=True)
    with MemoryStore(folder / "memory.db") as store:
        result = asyncio.run(MemoryTools(store).run(ToolCall("c", name, json.dumps(given_))))
        assert result.name == name
        text_of(result).encode()


def test_every_schema_says_what_its_tool_takes() -> None:
    for spec in SPECS:
        schema = spec.parameters
        assert list(schema["properties"]) == list(TOOLS[spec.name].parameters)
        assert set(schema["required"]) <= set(schema["properties"])
