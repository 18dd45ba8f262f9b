"""The memory's tools: what they answer, and how they take what models send."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import ShepherdError, Text, ToolCall
from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore
from shepherd.tools.arguments import read_arguments
from shepherd.tools.base import Form, Question, ToolError, Verdict
from shepherd.tools.builtin import memory
from shepherd.tools.permission import Permission
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox
from shepherd.tools.user_tools import find_tools

TOOLS = {tool.name: tool for tool in find_tools(memory) if isinstance(tool, Tool)}
NAMES = ["search_memory", "get_fact", "set_fact", "clear_fact", "store_memory", "clear_memory"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path / "memory.db") as made:
        yield made


async def answer(context: ToolContext, name: str, text: str) -> str:
    result = await TOOLS[name].run(context, read_arguments(text, TOOLS[name]))
    assert result.success
    return result.content


async def call(store: MemoryStore, tool: str, /, **arguments: object) -> str:
    return await answer(ToolContext(memory=store), tool, json.dumps(arguments))


async def test_facts_are_set_read_changed_and_cleared(store: MemoryStore) -> None:
    assert await call(store, "get_fact", key="favorite_color") == '{"value": null, "found": false}'
    assert await call(store, "set_fact", key="favorite_color", value="blue") == '{"success": true}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": "blue"}'
    assert await call(store, "set_fact", key="favorite_color", value="red") == '{"success": true}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": "red"}'
    assert await call(store, "clear_fact", key="favorite_color") == '{"success": true, "found": true}'
    assert await call(store, "clear_fact", key="favorite_color") == '{"success": true, "found": false}'
    assert await call(store, "get_fact", key="favorite_color") == '{"value": null, "found": false}'


class Answering:
    """A person who gives these answers."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.questions: list[Question] = []

    async def allow(self, question: Question) -> Verdict:
        self.questions.append(question)
        return self.verdicts.pop(0)

    async def fill(self, form: Form) -> None:
        raise AssertionError(form)


async def said(store: MemoryStore, permission: Permission, name: str, **arguments: str) -> str:
    box = ConversationToolbox(
        lambda: list(TOOLS.values()), context=ToolContext(memory=store), permission=permission, n_ctx=8_000
    )
    ran = await box.run(ToolCall("c", name, json.dumps(arguments)))
    return "".join(part.text for part in ran.result.parts if isinstance(part, Text))


async def test_a_fact_is_replaced_and_deleted_only_with_consent(store: MemoryStore, tmp_path: Path) -> None:
    person = Answering("no", "once", "always", "no", "once")
    permission = Permission(person=person, folder=tmp_path)
    assert await said(store, permission, "set_fact", key="name", value="Ann") == '{"success": true}'
    assert await said(store, permission, "set_fact", key=" name ", value="Ann") == '{"success": true}'
    assert person.questions == []
    refused = await said(store, permission, "set_fact", key="name", value="2 in a")
    assert refused.startswith("Error: the user refused this call of set_fact")
    assert await call(store, "get_fact", key="name") == '{"value": "Ann"}'
    for value in ("Anna", "Ana"):  # "always" counts once
        assert await said(store, permission, "set_fact", key="name", value=value) == '{"success": true}'
    assert "the user refused" in await said(store, permission, "clear_fact", key="name")
    assert await call(store, "get_fact", key="name") == '{"value": "Ana"}'
    assert await said(store, permission, "clear_fact", key="name") == '{"success": true, "found": true}'
    assert await said(store, permission, "clear_fact", key="name") == '{"success": true, "found": false}'
    assert [(each.subject, each.diff, each.each_time) for each in person.questions] == [
        ("name", "-name: Ann\n+name: 2 in a", True),
        ("name", "-name: Ann\n+name: Anna", True),
        ("name", "-name: Anna\n+name: Ana", True),
        ("name", "-name: Ana", True),
        ("name", "-name: Ana", True),
    ]
    assert {each.why for each in person.questions} == {"replaces or deletes what is stored"}


async def test_without_a_user_a_fact_is_set_once(store: MemoryStore, tmp_path: Path) -> None:
    alone = Permission(folder=tmp_path)
    assert await said(store, alone, "set_fact", key="name", value="Ann") == '{"success": true}'
    for tool, more in (("set_fact", {"value": "2 in a"}), ("clear_fact", {})):
        assert await said(store, alone, tool, key="name", **more) == (
            f"Error: {tool} replaces or deletes what is stored, and no user is present to allow it; it needs "
            f"--allow-tools {tool} (tools.allow). Continue without it, or tell the user"
        )
    assert await said(store, alone, "set_fact", key="other", value="x") == '{"success": true}'
    assert await call(store, "get_fact", key="name") == '{"value": "Ann"}'
    for allowing in (Permission(allow=["memory"], folder=tmp_path), Permission(enabled=["set_fact"], folder=tmp_path)):
        store.set_fact("name", "Ann")
        assert await said(store, allowing, "set_fact", key="name", value="Anna") == '{"success": true}'


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
    found = await answer(ToolContext(memory=store, session="now"), "search_memory", '{"query": "code shed"}')
    assert "Found 1 archived" in found
    assert "4711" in found


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
        ("set_fact", '{"key": "a", "value": "b", "user": "bob"}', "there is no argument 'user'"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_to_do(
    store: MemoryStore, name: str, arguments: str, says: str
) -> None:
    with pytest.raises(ShepherdError) as refused:
        await answer(ToolContext(memory=store), name, arguments)
    assert says in refused.value.message


async def test_arguments_are_taken_as_models_write_them(store: MemoryStore) -> None:
    await call(store, "set_fact", name="n", value=42)
    assert await call(store, "get_fact", key="n") == '{"value": "42"}'
    assert (
        await call(store, "search_memory", query="x", max_results="3") == "No archived conversations found matching: x"
    )
    assert "matching: x" in await call(store, "search_memory", query="x", max_results=10_000)


async def test_without_a_memory_each_tool_says_so() -> None:
    for name, tool in TOOLS.items():
        arguments = json.dumps(dict.fromkeys(tool.parameters["required"], "x"))
        with pytest.raises(ToolError, match="this conversation has no memory"):
            await answer(ToolContext(), name, arguments)


async def test_results_are_shortened_and_then_left_out_until_they_fit(store: MemoryStore) -> None:
    for n in range(5):
        store.remember(f"shed question {n}", f"shed answer {n} " + "and more " * 500)
    budget = 1_500
    found = await answer(ToolContext(memory=store, budget=budget), "search_memory", '{"query": "shed"}')
    assert len(found) <= budget
    assert "Result 2 [Relevance:" in found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["query", "max_results", "key", "value", "question", "answer", "name", "x"])


@settings(deadline=None, max_examples=examples(200))
@given(name=st.sampled_from(NAMES), given_=st.dictionaries(names, json_values))
def test_a_call_is_answered_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, given_: dict[str, object]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "hostile"
    folder.mkdir(exist_ok=True)
    with MemoryStore(folder / "memory.db") as store:
        try:
            asyncio.run(call(store, name, **given_)).encode()
        except ShepherdError as refused:
            refused.message.encode()


def test_their_names_and_arguments_are_the_seeds_and_writing_changes_something() -> None:
    assert list(TOOLS) == NAMES
    arguments = {name: list(tool.parameters["properties"]) for name, tool in TOOLS.items()}
    assert arguments == {
        "search_memory": ["query", "max_results"],
        "get_fact": ["key"],
        "set_fact": ["key", "value"],
        "clear_fact": ["key"],
        "store_memory": ["question", "answer"],
        "clear_memory": ["question"],
    }
    assert {name for name, tool in TOOLS.items() if tool.effect == "read"} == {"search_memory", "get_fact"}
    assert {tool.category for tool in TOOLS.values()} == {"memory"}
