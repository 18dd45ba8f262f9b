"""What conversations and other agents are equipped with, by the configuration; no model is there."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shepherd import config as configuration
from shepherd.app.toolset import TINY_TOOLS, Advisors, Toolset
from shepherd.core import ConfigError, Event, Finished, Request, Started, Text, ToolCall, Usage
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import LOCAL
from shepherd.tools.base import Form, Question, Verdict
from shepherd.tools.toolbox import ConversationToolbox


async def silent(request: Request) -> AsyncGenerator[Event, None]:
    for _ in ():
        yield Finished("end", Usage())


def toolset(folder: Path, text: str = "", *, models: tuple[str, ...] = ("lamb",), **flags: Any) -> Toolset:
    file = folder / "shepherd.toml"
    file.write_text(text)
    config = configuration.load(flags=flags, env={}, cwd=folder, user_dir=folder / "none", file=file)
    return Toolset(config, env={}, models=Advisors([(name, True) for name in models], silent))


def names(box: ConversationToolbox) -> set[str]:
    return {tool.name for tool in box.tools}


@pytest.mark.parametrize(
    ("flags", "offered"),
    [
        ({}, True),
        ({"enable_tools": ("filesystem",)}, True),
        ({"enable_tools": ("filesystem", "chat")}, True),
        ({"disable_tools": ("chat",)}, False),
        ({"disable_tools": ("models",)}, False),
        ({"enable_tools": ("chat",), "disable_tools": ("chat",)}, False),
        ({"enable_tools": ()}, False),
    ],
    ids=str,
)
def test_other_agents_can_chat_unless_somebody_has_said_no(tmp_path: Path, flags: Any, offered: bool) -> None:
    made = toolset(tmp_path, **flags)
    for everything in (True, False):
        assert ("chat" in names(made.offer(user=None, store=None, everything=everything).toolbox)) is offered
    assert "chat" not in names(made.box(n_ctx=32768)), "a model of ours has no use for it"


@pytest.mark.parametrize("flags", [{}, {"enable_tools": ("read_file", "chat")}, {"disable_tools": ("chat",)}], ids=str)
def test_without_a_model_that_can_be_asked_other_agents_get_the_other_tools(tmp_path: Path, flags: Any) -> None:
    made = toolset(tmp_path, models=(), **flags)  # as with `-m openai/gpt-4o` alone
    found = names(made.offer(user=None, store=None, everything=True).toolbox)
    assert "read_file" in found
    assert "chat" not in found


@pytest.mark.parametrize("key", ["enabled", "disabled", "allow", "ask", "deny"])
def test_a_name_that_means_nothing_is_said_at_the_start(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"tools.{key}: there is no tool or category 'filesytem'.*filesystem"):
        toolset(tmp_path, f"[tools]\n{key} = ['filesytem']")
    for word in ("command", "Command_Execution", "READ_FILE", "Read", "chat", "http_*", "nothing*"):
        toolset(tmp_path, f"[tools]\n{key} = ['{word}']")


@pytest.mark.parametrize("enabled", ["command", "command_execution", "execute_command", "*", "bash"])
@pytest.mark.parametrize("disabled", ["command", "command_execution", "execute_command", "exec*", "BASH"])
async def test_what_is_disabled_stays_so_whatever_it_is_called(tmp_path: Path, enabled: str, disabled: str) -> None:
    flags: dict[str, Any] = {"enable_tools": (enabled,), "disable_tools": (disabled,), "allow_tools": ("*",)}
    box = toolset(tmp_path, **flags).box(n_ctx=32768)
    assert "execute_command" not in names(box)
    for name in ("execute_command", "Bash", "EXECUTE_COMMAND"):
        ran = await box.run(ToolCall("c", name, '{"command": "exit 0"}'))
        assert ran.result.is_error
        (said,) = ran.result.parts
        assert isinstance(said, Text)
        assert "disabled" in said.text


def test_a_root_that_is_no_folder_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("gone", "file"):
        with pytest.raises(ConfigError, match=rf"tools.roots: .*{name} is not a folder; create it"):
            toolset(tmp_path, roots=(str(tmp_path), str(tmp_path / name)))
    assert toolset(tmp_path, roots=(str(tmp_path),)).folders == (str(tmp_path),)


@pytest.mark.parametrize(("user", "owner"), [("ada", "ada"), (LOCAL, ""), (None, "")])
async def test_a_model_is_asked_for_the_user_that_asks(tmp_path: Path, user: str | None, owner: str) -> None:
    """What it leaves in a cache is that user's; the owner of the machine shares it with its own conversations."""
    asked: list[Request] = []

    async def answer(request: Request) -> AsyncGenerator[Event, None]:
        asked.append(request)
        yield Started("m")
        yield Finished("end", Usage())

    config = configuration.load(flags={}, env={}, cwd=tmp_path, user_dir=tmp_path)
    offer = Toolset(config, env={}, models=Advisors([("lamb", True)], answer)).offer(
        user=user, store=None, everything=False
    )
    await offer.toolbox.run(ToolCall("c", "chat", '{"prompt": "Hello"}'))
    assert [request.owner for request in asked] == [owner]


class Someone:
    """A person that says yes, and is remembered by the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def allow(self, question: Question) -> Verdict:
        self.asked.append(question.tool)
        return "once"

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        raise AssertionError(form)


def test_a_tiny_model_gets_the_tools_of_its_training_and_those_that_were_asked_for(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.db") as store:
        made = toolset(tmp_path)
        assert names(made.box(n_ctx=4096, store=store, is_tiny=True)) == set(TINY_TOOLS)
        small = made.box(n_ctx=1024, store=store, is_tiny=True)
        assert 1 < len(names(small)) < len(TINY_TOOLS), "the first ones where the window is small"
        assert names(made.box(n_ctx=small.context_for_all(), store=store, is_tiny=True)) == set(TINY_TOOLS)
        assert {"set_fact", "write_file"} <= names(made.box(n_ctx=32_768, store=store))
        chosen = toolset(tmp_path, enable_tools=("set_fact",))
        assert names(chosen.box(n_ctx=4096, store=store, is_tiny=True)) == {"set_fact"}
    (tmp_path / "mine.py").write_text(
        'from shepherd.tools import tool\n\n\n@tool(category="mine", effect="read")\n'
        'async def bark() -> str:\n    """Bark."""\n    return "Woof"\n'
    )
    added = toolset(tmp_path, f"[tools]\nfiles = ['{tmp_path}/mine.py']").box(n_ctx=4096, is_tiny=True)
    of_memory = {"search_memory", "get_fact", "set_fact", "clear_fact"}
    assert names(added) == {*TINY_TOOLS, "bark"} - of_memory, "there is no memory"


@pytest.mark.parametrize(
    "call", [("set_fact", '{"key": "a", "value": "b"}'), ("write_file", '{"path": "a", "content": "b"}')]
)
async def test_each_write_of_a_tiny_model_is_asked_for_that_to_the_memory_too(
    tmp_path: Path, call: tuple[str, str]
) -> None:
    name, arguments = call
    with MemoryStore(tmp_path / "memory.db") as store:
        made, person = toolset(tmp_path, roots=(str(tmp_path),)), Someone()
        tiny = made.box(n_ctx=4096, user=LOCAL, store=store, person=person, is_tiny=True)
        assert not (await tiny.run(ToolCall("c", name, arguments))).result.is_error
        assert person.asked == [name]
        assert {row.name: row.decision.verdict for row in tiny.status()}[name] == "asked"
        alone = made.box(n_ctx=4096, user=LOCAL, store=store, is_tiny=True)
        ran = await alone.run(ToolCall("c", name, arguments))
        assert ran.result.is_error
        assert "no user is present to allow it" in str(ran.result.parts)
        larger = made.box(n_ctx=32_768, user=LOCAL, store=store, person=person)
        await larger.run(ToolCall("c", "store_memory", '{"question": "q", "answer": "a"}'))
        assert person.asked == [name], "of another model the memory is its own notebook"
