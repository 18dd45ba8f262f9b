"""/rewind: the conversation is cut before a question, and files that tools have changed are put back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.playing import Play, Played, Scripted, Stage

from shepherd.agent.storage import ConversationStore
from shepherd.core import EngineError, Event, Message, Request, ToolCall
from shepherd.tools.base import Result
from shepherd.tools.builtin.files import MOST_BYTES, delete_file, edit_file, write_file
from shepherd.tools.permission import Permission
from shepherd.tools.sandbox.journal import FileJournal
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox


async def done(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result("done")


TOOLS = (
    write_file,
    edit_file,
    delete_file,
    Tool("execute_command", "Run.", {"type": "object"}, done, "command_execution", "run"),
    Tool("read_file", "Read.", {"type": "object"}, done, "filesystem", "read"),
)


def calling(name: str, **values: str) -> Message:
    return Message("assistant", (ToolCall("1", name, json.dumps(values)),))


class Project:
    """A folder with two files, and a conversation whose model changes them."""

    def __init__(self, play: Play, folder: Path) -> None:
        self._play = play
        self.folder = folder / "project"
        self.folder.mkdir()
        (self.folder / "a.txt").write_text("one")
        (self.folder / "b.txt").write_text("one")
        self.backend = Scripted(
            calling("write_file", path="a.txt", content="two"),
            "Done.",
            calling("delete_file", path="b.txt"),
            calling("execute_command", command="make install"),
            "Done, too.",
        )

    async def play(self, *lines: Any) -> Played:
        journal = FileJournal(None, [str(self.folder)])
        roots = Roots.of([str(self.folder)], str(self.folder), journal)
        box = ConversationToolbox(
            lambda: TOOLS, context=ToolContext(roots=roots), permission=Permission(allow=("*",)), n_ctx=4096
        )
        try:
            return await self._play(*lines, backend=self.backend, box=box, journal=journal)
        finally:
            journal.close()

    @property
    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.iterdir())}


@pytest.fixture
def project(play: Play, tmp_path: Path) -> Project:
    return Project(play, tmp_path)


async def test_the_conversation_and_the_files_are_as_before_the_question(project: Project) -> None:
    played = await project.play("Change a.", "Delete b.", "/rewind", "/rewind 1", "Anew.")
    assert project.files == {"a.txt": "one", "b.txt": "one"}
    assert "1  Change a.  (1 file)\n2  Delete b.  (1 file)\n/rewind N goes back to before question N.\n" in played.out
    for line in (
        "a.txt is put back\n",
        "b.txt is put back\n",
        "Put back: 2 files.\nBack to before: Change a.\n",
        'Not undone: [Tool Call: execute_command(command="make install")]\n',
    ):
        assert line in played.out
    assert [message.text for message in played.chat.session.messages] == ["Anew.", "Yes."]


async def test_the_next_prompt_begins_like_the_one_before_the_question(project: Project) -> None:
    await project.play("Change a.", "Delete b.", "/rewind 2", "Instead.")
    before, after = project.backend.requests[1].messages, project.backend.requests[-1].messages
    assert after[: len(before)] == before
    assert project.files == {"a.txt": "two", "b.txt": "one"}


async def test_another_answer_to_the_same_question_is_the_same_turn(project: Project) -> None:
    project.backend.answers[2:] = [calling("write_file", path="b.txt", content="two"), "Again."]
    await project.play("Change a.", "/retry", "/rewind 1")
    assert project.files == {"a.txt": "one", "b.txt": "one"}


async def test_another_answer_after_the_conversation_was_loaded_belongs_to_its_question(project: Project) -> None:
    project.backend.answers[:] = ["Hello.", calling("write_file", path="a.txt", content="two"), "Done."]
    await project.play("Change a.", "/save mine", "/clear", "/load mine", "/retry", "/rewind 1")
    assert project.files == {"a.txt": "one", "b.txt": "one"}


async def test_files_of_a_question_that_was_taken_back_stay_with_the_turn_before(project: Project) -> None:
    await project.play("Change a.", "Delete b.", "/undo", "Hello.", "/rewind 2")
    assert project.files == {"a.txt": "two"}


async def test_an_edit_that_fails_leaves_the_turn_as_it_was(project: Project) -> None:
    project.backend.answers[2:] = [EngineError("the engine has stopped")]
    await project.play("Change a.", "/edit Other.", "/rewind 1")
    assert project.files == {"a.txt": "one", "b.txt": "one"}


async def test_a_file_that_is_too_large_to_keep_is_named_below_the_turn(project: Project) -> None:
    (project.folder / "a.txt").write_bytes(bytes(MOST_BYTES + 1))
    played = await project.play("Change a.", "/rewind 1")
    assert '"a.txt" is changed, and /rewind cannot put it back: it has 16,777,217 bytes' in played.out.replace(
        str(project.folder) + "/", ""
    )
    assert "a.txt: stays as it is: it has 16,777,217 bytes" in played.out
    assert played.chat.session.messages == ()


async def test_what_others_have_changed_is_put_back_only_when_asked_for(project: Project) -> None:
    async def theirs() -> None:
        (project.folder / "a.txt").write_text("theirs")

    played = await project.play("Change a.", theirs, "/rewind 1")
    assert "a.txt is put back; another program has changed it, too\n" in played.out
    assert "write /rewind 1 files to put them back, or /rewind 1 conversation to leave all files" in played.out
    assert project.files["a.txt"] == "theirs"
    assert len(played.chat.session.messages) == 4


@pytest.mark.parametrize(("word", "content"), [("files", "one"), ("conversation", "theirs")])
async def test_a_word_says_what_becomes_of_the_files(project: Project, word: str, content: str) -> None:
    async def theirs() -> None:
        (project.folder / "a.txt").write_text("theirs")

    played = await project.play("Change a.", theirs, f"/rewind 1 {word}")
    assert project.files["a.txt"] == content
    assert played.chat.session.messages == ()


async def test_no_name_of_a_file_steers_the_terminal_or_forges_a_line(project: Project) -> None:
    (project.folder / "x\x1b[2J\n  a.txt is put back").write_text("one")
    project.backend.answers[:] = [calling("delete_file", path="x\x1b[2J\n  a.txt is put back"), "Done."]
    played = await project.play("Delete\x1b[2J it.", "/rewind 1")
    assert "/x␛[2J a.txt is put back is put back\n" in played.out
    assert "Back to before: Delete␛[2J it.\n" in played.out


@pytest.mark.parametrize("argument", ["0", "3", "x", "1 nonsense", "-1", "٣", "9" * 5000])
async def test_a_wrong_number_is_a_sentence(project: Project, argument: str) -> None:
    played = await project.play("Change a.", f"/rewind {argument}")
    assert "write /rewind N with a number from 1 to 1" in played.out
    assert project.files["a.txt"] == "two"


async def test_where_a_file_cannot_be_put_back_the_conversation_stays(project: Project) -> None:
    async def hinder() -> None:
        (project.folder / "b.txt").mkdir()
        (project.folder / "b.txt" / "theirs").write_text("")

    played = await project.play("Change a.", "Delete b.", hinder, "/rewind 1 files")
    assert "not all files could be put back: " in played.out
    assert 'b.txt" is a directory, not a file. The conversation stays; try again, or write' in played.out
    assert next(message.text for message in played.chat.session.messages) == "Change a."


async def test_an_empty_conversation_has_nothing_to_go_back_to(project: Project) -> None:
    assert "There is nothing to go back to.\n" in (await project.play("/rewind")).out


async def test_the_files_of_a_turn_beside_one_of_another_program_go_with_the_copy(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    base, folder = tmp_path / "kept", tmp_path / "project"
    folder.mkdir()
    journal, other = FileJournal(base, [str(folder)]), FileJournal(base, [str(folder)])
    roots = Roots.of([str(folder)], str(folder), journal)
    box = ConversationToolbox(
        lambda: TOOLS, context=ToolContext(roots=roots), permission=Permission(allow=("*",)), n_ctx=4096
    )
    former = ""

    async def answer() -> None:
        """In the middle of the turn: another program ends one of its own."""
        nonlocal former
        (former,) = saves.names()
        saved = saves.load(former)
        other.open(saved.id)
        other.settle(2)
        other.begin(2)
        theirs = ToolContext(roots=Roots.of([str(folder)], str(folder), other))
        assert (await write_file.run(theirs, {"path": "theirs.txt", "content": "1"})).success
        exchange = (Message.user("On the page."), Message.assistant("Done."))
        saves.save(replace(saved, messages=(*saved.messages, *exchange)), former)
        other.settle(4)

    class Beside(Scripted):
        async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
            if len(self.requests) == 2:  # its call has run
                await answer()
            async for event in super().stream(request):
                yield event

    backend = Beside("Hello.", calling("write_file", path="ours.txt", content="1"), "Done.")
    played = await play(
        "Hello",
        "In the terminal.",
        "/rewind",
        "/rewind 2",
        stage=Stage(saves),
        backend=backend,
        box=box,
        journal=journal,
    )
    copy = played.chat.name
    assert (
        f"Another program has changed {former} meanwhile. It stays as it is; you are in a copy: {copy}." in played.out
    )
    assert "1  Hello\n2  In the terminal.  (1 file)\n" in played.out
    assert "Put back: 1 file." in played.out
    assert [each.name for each in folder.iterdir()] == ["theirs.txt"]
    assert [message.text for message in saves.load(former).messages] == ["Hello", "Hello.", "On the page.", "Done."]
    assert [message.text for message in saves.load(copy).messages] == ["Hello", "Hello."]
    other.open(saves.load(former).id)
    assert [other.n_changed(0, 2), other.n_changed(2, 4)] == [0, 1]
