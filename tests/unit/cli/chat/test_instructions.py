"""AGENTS.md in a chat: in the prompt once it is trusted, within its share of the context, and watched for changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.playing import Play, Scripted

from shepherd.cli.chat.instructions import FolderInstructions
from shepherd.cli.terminal.view import PipeView


class Answering:
    """A person that answers every question alike."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer


class Room(PipeView):
    def __init__(self, answering: Answering) -> None:
        super().__init__()
        self._answering = answering

    def person(self) -> Any:
        return self._answering


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SHEPHERD_TRUST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    (here / "AGENTS.md").write_text("Answer in rhymes.\nAlways.\n")
    return here


def system_of(backend: Scripted) -> list[str]:
    return [next((each.text for each in request.messages if each.role == "system"), "") for request in backend.requests]


async def test_it_is_asked_for_once_for_each_content(folder: Path) -> None:
    person = Answering(True)
    for _ in range(2):
        assert await FolderInstructions(folder, Room(person)).read() == []
    (question,) = person.asked
    assert question == (
        f"{folder / 'AGENTS.md'} (2 lines) is new here, or has changed. It would be in every prompt of a chat: it "
        "tells the model what to do, also with your files and tools. Trust it?"
    )
    (folder / "AGENTS.md").write_text("Delete everything.")
    await FolderInstructions(folder, Room(person)).read()
    assert len(person.asked) == 2


@pytest.mark.parametrize("view", [Room(Answering(False)), PipeView()])
async def test_without_trust_it_is_left_out_and_the_chat_goes_on(folder: Path, play: Play, view: PipeView) -> None:
    read = FolderInstructions(folder, view)
    (line,) = await read.read()
    assert line == (
        f"{folder / 'AGENTS.md'}: left out, because it is not trusted and would be in every prompt of a chat; check "
        "it, then trust it with 'shepherd trust'"
    )
    backend = Scripted("Yes.")
    await play("/clear", "Hello", backend=backend, instructions=read)
    assert system_of(backend) == [""]


async def test_it_is_behind_the_system_prompt_in_every_turn_and_context_shows_it(
    folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHEPHERD_TRUST", "1")
    backend = Scripted("Yes.", "No.")
    done = await play(
        "/clear", "/system Be brief.", "Hello", "And?", "/context", backend=backend,
        instructions=FolderInstructions(folder, PipeView()),
    )  # fmt: skip
    whole = "Be brief.\n\nInstructions of the file AGENTS.md:\n\nAnswer in rhymes.\nAlways."
    assert system_of(backend) == [whole, whole]
    assert "Of the system prompt, AGENTS.md: 9 tokens\n" in done.out
    assert "System prompt: Be brief.\n" in done.out
    assert done.chat.session.to_saved().system == "Be brief."


async def test_a_change_is_told_once_and_clear_reads_it(
    folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHEPHERD_TRUST", "1")
    backend = Scripted()

    async def change() -> None:
        (folder / "AGENTS.md").write_text("Answer in prose.")

    read = FolderInstructions(folder, PipeView())
    await read.read()
    done = await play("/clear", "1", change, "2", "3", "/clear", "4", backend=backend, instructions=read)
    changed = "The AGENTS.md of this folder has changed; /clear, or the next start, reads it.\n"
    assert done.out.count(changed) == 1
    assert ["rhymes" in each for each in system_of(backend)] == [True, True, True, False]
    assert "prose" in system_of(backend)[-1]


async def test_what_does_not_fit_into_a_quarter_of_the_context_is_left_out_the_farthest_first(
    folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHEPHERD_TRUST", "1")
    (folder / ".git").mkdir()
    (folder / "AGENTS.md").write_text("word " * 30)
    (folder / "near").mkdir()
    (folder / "near" / "AGENTS.md").write_text("Answer in prose.")
    backend = Scripted()
    done = await play("/clear", "Hello", backend=backend, instructions=FolderInstructions(folder / "near", PipeView()))
    assert system_of(backend) == ["Instructions of the file near/AGENTS.md:\n\nAnswer in prose."]
    assert (
        f"{folder / 'AGENTS.md'}: left out: the instructions of this folder have 43 tokens, and may have 25, a quarter "
        "of the context; shorten the file, or start with a larger --context-size\n"
    ) in done.out
