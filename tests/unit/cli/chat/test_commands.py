"""The /commands, and what happens between two lines: a scripted model behind a real session, a pipe for a screen."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.places import ROOT
from tests.unit.cli.playing import Play, Script, Scripted, Stage

from shepherd.agent.session import Session
from shepherd.agent.storage import ConversationStore
from shepherd.agent.with_memory import MemoryBackend
from shepherd.app.app import App
from shepherd.app.commands.command import ELSEWHERE
from shepherd.cli.chat import saved_commands
from shepherd.cli.chat.commands import COMMANDS, is_command
from shepherd.cli.chat.repl import Repl
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal.reader import PipeReader
from shepherd.cli.terminal.view import PipeView
from shepherd.core import (
    EngineError,
    Message,
    Text,
)
from shepherd.memory.users import LOCAL, UserStores

# -- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", True),
        ("/help me", True),
        ("/help\r", True),
        ("/nope", True),
        ("/etc/hosts is a file", False),
        ("/Users", False),
        (" /help", False),
        ("/", False),
        ("/help\nme", False),
        ("what is /help", False),
    ],
)
def test_a_line_is_a_command_when_its_first_word_can_be_one(line: str, expected: bool) -> None:
    assert is_command(line) == expected


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/hlep", "did you mean /help?"),
        ("/perm", "did you mean /permissions?"),
        ("/qui", "did you mean /quit?"),
        ("/xyzzy", "/help lists them"),
        ("/help xyzzy", "there is no command /xyzzy; /help lists them"),
        ("/help loda", "did you mean /load?"),
        ("/init", "there is no command /init; /help lists them"),
        ("/plan", "there is no command /plan; /help lists them"),
    ],
)
async def test_a_command_that_there_is_not_is_answered_with_the_near_one(play: Play, line: str, hint: str) -> None:
    assert hint in (await play(line)).out


async def test_a_command_of_other_agents_is_answered_with_what_does_it_here(play: Play) -> None:
    for name, (own, sentence) in ELSEWHERE.items():
        assert name not in COMMANDS
        assert own in COMMANDS, name
        assert own in sentence
        assert f"there is no command {name}; {sentence}" in (await play(name)).out
        assert f"there is no command {name}; " in (await play(f"/help {name}")).out


async def test_help_names_every_command_in_one_line_and_says_more_of_each(play: Play) -> None:
    listed = (await play("/help")).out.splitlines()
    for name, command in COMMANDS.items():
        assert any(line.split(" ")[0] == name and line.endswith(f"  {command.help}") for line in listed), name
        details = (await play(f"/help {name}")).out
        assert details.startswith(f"{name} {command.argument}".rstrip() + "\n" + command.help)
        assert command.details in details
        assert (await play(f"/help {name.removeprefix('/')}")).out == details


async def test_every_command_of_the_issue_is_there() -> None:
    wanted = """/help /model /provider /system /tools /memory /facts /profile /context /evict /save /load /continue
        /clear /undo /retry /edit /export /stats /prompts /prompt /resource /mcp /permissions /exit /quit"""
    assert set(wanted.split()) <= set(COMMANDS)


def test_the_page_of_the_chat_has_every_command_with_its_argument() -> None:
    table = (
        (ROOT / "docs" / "chat.md").read_text(encoding="utf-8").partition("\n## Commands\n")[2].partition("\n## ")[0]
    )
    cells = re.findall(r"(?m)^\| (`/.*?`) \| ", table)
    shown = {name for cell in cells for name in re.findall(r"/[a-z]+", cell)}
    assert shown == {*COMMANDS}
    for name, command in COMMANDS.items():
        if command.argument and name not in {"/export", "/prompt", "/tools"}:  # the page says more, or less, of these
            whole = f"`{name} {command.argument}`".replace("|", "\\|")
            assert whole in cells, whole


async def test_a_wish_is_proposed_with_what_keeping_it_does(play: Play, tmp_path: Path) -> None:
    with UserStores(tmp_path / "memory.db") as stores:
        stage = Stage(None, archive=stores.find_store(LOCAL))
        played = await play("My name is Ada.", stage=stage, is_person=True, user=LOCAL)
    assert "Keep “My name is Ada” for all conversations?" in played.out
    assert "/profile keep 1 adds it to their system prompt; without it nothing changes." in played.out


async def test_a_message_is_answered_and_a_command_is_not_sent(play: Play) -> None:
    backend = Scripted("Hi there.")
    played = await play("/system Be brief.", "Hello", "/exit", "never read", backend=backend)
    assert "Hi there." in played.out
    assert [message.text for message in backend.requests[0].messages] == ["Be brief.", "Hello"]
    assert len(backend.requests) == 1
    assert played.status == 0


async def test_a_message_that_fails_leaves_the_conversation_usable_and_the_status_1(play: Play) -> None:
    played = await play("Hello", "Again", backend=Scripted(EngineError("the engine has a cold"), "Better."))
    assert "the engine has a cold" in played.err
    assert "Better." in played.out
    assert played.status == 1


async def test_ctrl_c_stops_an_answer_once_and_what_was_said_is_saved(play: Play, tmp_path: Path) -> None:
    backend = Scripted(Message("assistant", (Text("..."),)), "Fine.")
    stage = Stage(ConversationStore(tmp_path / "saved"))
    repls: list[Repl] = []

    class Impatient(Script):
        async def read(self, offers: object) -> str | None:
            if not self.n_read:  # the first answer never ends by itself
                asyncio.get_running_loop().create_task(stop())
            return await super().read(offers)

    async def stop() -> None:
        await backend.waiting.wait()
        repls[0]._stop()
        repls[0]._stop()

    reader = Impatient("Hello", "/continue")
    session = Session(backend, model="m", n_ctx=100)
    repls.append(Repl(Chat(cast("App", stage), session, PipeView(), cast("PipeReader", reader))))
    await repls[0].run()
    assert [message.text for message in session.messages] == ["Hello", "...Fine."]
    assert stage.kept is not None
    (listed,) = stage.kept.list()
    assert listed.n_messages == 2


# -- undo, retry, edit, continue --------------------------------------------------------------------------------------


async def test_undo_retry_and_edit_change_the_last_exchange(play: Play) -> None:
    backend = Scripted("One.", "Two.", "Three.")
    played = await play("First", "/retry", "/edit Second", "/undo", "/undo", "/retry", "/edit x", backend=backend)
    assert [request.messages[-1].text for request in backend.requests] == ["First", "First", "Second"]
    for piece in (
        "Again: First",
        "Instead: Second",
        "Taken back: Second",
        "There is nothing to take back.",
        "There is nothing to ask again.",
        "There is nothing to change.",
    ):
        assert piece in played.out
    assert played.chat.session.messages == ()


async def test_edit_needs_a_text_where_there_is_no_terminal(play: Play) -> None:
    played = await play("First", "/edit", "/edit First")
    assert "there is no terminal to edit in; write /edit TEXT" in played.out
    assert "Nothing has changed." in played.out


async def test_continue_goes_on_with_a_cut_off_answer_and_refuses_when_it_is_complete(play: Play) -> None:
    played = await play("Hello", "/continue")
    assert "There is nothing to continue" in played.out


async def test_the_system_prompt_and_the_model_are_shown(play: Play) -> None:
    played = await play("/system", "/system Be brief.", "/model", '/system ""', "/quit", "never read")
    for piece in ("There is no system prompt.\nSystem prompt: Be brief.\n", "Dialect: hermes\n", "Cache:   main\n"):
        assert piece in played.out
    assert played.out.endswith("There is no system prompt.\n")


# -- files ------------------------------------------------------------------------------------------------------------


async def test_the_chat_shows_which_files_go_along_and_how_large_they_are(play: Play, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\nbeta\n")
    (tmp_path / "b.txt").write_text("grün")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2040))
    stage = Stage(None, sees=True)
    played = await play(
        "See @a.txt, @b.txt, @cat.png, @none.txt and @a.txt", "/edit See @b.txt", "No file", stage=stage
    )
    assert [line for line in played.out.splitlines() if line.startswith("Attached")] == [
        "Attached: a.txt (2 lines, 11 B)",
        "Attached: b.txt (1 line, 5 B)",
        "Attached: cat.png (image/png, 2.0 KiB, 2048 tokens)",
        "Attached: b.txt (1 line, 5 B)",
    ]


# -- saved conversations ----------------------------------------------------------------------------------------------


async def test_every_turn_is_saved_and_an_empty_conversation_goes_on_with_the_newest(
    play: Play, tmp_path: Path
) -> None:
    saves = ConversationStore(tmp_path / "saved")
    first = await play("My name is Ann.", stage=Stage(saves))
    (listed,) = saves.list()
    assert (listed.title, listed.n_messages) == ("My name is Ann.", 2)
    backend = Scripted("Ann.")
    second = await play("/continue", "What is my name?", stage=Stage(saves), backend=backend)
    assert f"Continuing {listed.name}: 2 messages." in second.out
    assert "Last question: My name is Ann." in second.out
    assert [message.text for message in backend.requests[0].messages] == ["My name is Ann.", "Yes.", "What is my name?"]
    assert backend.requests[0].session == first.chat.session.id
    assert [each.n_messages for each in saves.list()] == [4], "it is the same conversation in the same file"


async def test_a_continued_conversation_shows_the_beginning_of_its_last_exchange(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    (tmp_path / "a.txt").write_text("secret of the file")
    long = "\n".join(f"Line {n}" for n in range(100))
    await play("First?", "See @a.txt", "/save talk", stage=Stage(saves), backend=Scripted("One.", long))
    await play("x" * 5000, "/save wide", stage=Stage(saves))
    out = (await play("/load talk", stage=Stage(saves))).out
    assert "Continuing talk: 4 messages.\nLast question: See @a.txt\nLast answer: Line 0\nLine 1\n" in out
    assert "Line 7 …\n" in out
    assert "Line 8" not in out
    assert "First?" not in out
    assert "secret" not in out
    out = (await play("/load wide", stage=Stage(saves))).out
    assert f"Last question: {'x' * 599}…\nLast answer: Yes.\n" in out


async def test_load_lists_and_loads_by_the_beginning_of_a_name(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    await play("I like soup.", "/save recipes", "/clear", "And trains.", "/save", stage=Stage(saves))
    assert len(saves.list()) == 2
    played = await play("/load", "/load reci", "/export out.md", "/load nope", "/load", stage=Stage(saves))
    assert "recipes" in played.out
    assert "2 messages  I like soup." in played.out
    assert "I like soup." in (tmp_path / "out.md").read_text()
    assert "no saved conversation is called 'nope'" in played.out
    assert played.chat.name == "recipes"


async def test_a_name_is_the_conversations_from_then_on(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    played = await play("Hello", "/save talk", "More", "/save other", "Even more", stage=Stage(saves))
    assert "'shepherd --resume talk' continues it" in played.out
    assert [(each.name, each.n_messages) for each in saves.list()] == [("other", 6)]
    assert (tmp_path / "saved" / "other.json").stat().st_mode & 0o077 == 0


async def test_what_another_program_has_added_is_read_before_the_next_line(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")

    async def on_the_page() -> None:
        saved = saves.load("talk")
        exchange = (Message.user("And trains."), Message.assistant("Choo."))
        saves.save(replace(saved, messages=(*saved.messages, *exchange)), "talk")

    async def in_an_odd_way() -> None:
        (saves.folder / "talk.json").write_text("{damaged")

    played = await play(
        "I like soup.", "/save talk", on_the_page, "More", in_an_odd_way, "Still here", stage=Stage(saves)
    )
    assert "Another program has continued this conversation.\nContinuing talk: 4 messages.\n" in played.out
    texts = ["I like soup.", "Yes.", "And trains.", "Choo.", "More", "Yes.", "Still here", "Yes."]
    assert [message.text for message in saves.load(played.chat.name).messages] == texts
    assert (saves.folder / "talk.json").read_text() == "{damaged"


@pytest.mark.parametrize(
    ("lines", "is_person", "is_saved", "expected"),
    [
        (("Hello", "/save talk"), True, True, True),
        (("Hello", "/save talk", "/exit"), True, True, True),
        (("Hello", "/save talk"), False, True, False),
        (("Hello",), True, False, False),
        (("/help",), True, True, False),
        (("Hello", "/save talk", "/clear"), True, True, False),
    ],
)
async def test_the_chat_ends_with_the_command_that_continues_it(
    lines: tuple[str, ...], *, is_person: bool, is_saved: bool, expected: bool, play: Play, tmp_path: Path
) -> None:
    stage = Stage(ConversationStore(tmp_path / "saved") if is_saved else None)
    last = (await play(*lines, stage=stage, is_person=is_person)).out.splitlines()[-1]
    assert (last == "To continue this conversation: shepherd --resume talk") is expected


async def test_without_saving_commands_say_so(play: Play) -> None:
    played = await play("Hello", "/save", "/load", "/save x", "/load x", "/clear", "/continue", stage=Stage(None))
    assert played.out.count("conversations are not saved here (--no-save") == 5
    assert played.status == 0


async def test_a_folder_that_cannot_be_written_to_is_told_once(play: Play, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    played = await play("One", "Two", stage=Stage(ConversationStore(tmp_path / "file" / "saved")))
    assert played.out.count("This conversation cannot be saved:") == 1
    assert f"saved: {tmp_path / 'file' / 'saved'} cannot be written: Not a directory" in played.out.replace("\n", " ")
    assert played.status == 0


async def test_what_is_damaged_is_refused_and_the_conversation_stays(play: Play, tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "saved")
    saves.folder.mkdir()
    (saves.folder / "bad.json").write_text('{"format":')
    played = await play("Hello", "/load bad", "/load", stage=Stage(saves))
    assert "the file is damaged" in played.out
    assert [message.text for message in played.chat.session.messages] == ["Hello", "Yes."]


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(seconds=-5), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=23), "23 h"),
        (timedelta(days=1), "1 day"),
        (timedelta(days=29), "29 days"),
        (timedelta(days=40), "2026-10-13"),
    ],
)
def test_ages_are_one_number(ago: timedelta, expected: str) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    assert saved_commands.age(now - ago, now) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("a b.md", ("a b.md", "")),
        ("a b html", ("a b", "html")),
        ("a HTML", ("a", "html")),
        ("a pdf", ("a", "pdf")),
        ("a.md pdf", ("a.md", "pdf")),
        ("a b/c", ("a b/c", "")),
        ("json", ("json", "")),
        ("", ("", "")),
    ],
)
def test_a_form_may_stand_behind_a_name(argument: str, expected: tuple[str, str]) -> None:
    assert saved_commands.split_format(argument) == expected


# -- recall -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def remembering(tmp_path: Path) -> Iterator[tuple[Stage, Scripted, MemoryBackend]]:
    """A stage with a memory, the back end that answers, and the one that recalls for it."""
    stores, room = UserStores(tmp_path / "memory.db"), Scripted()
    stage = Stage(ConversationStore(tmp_path / "saved"), archive=stores.find_store(LOCAL))
    yield stage, room, MemoryBackend(room, stores)
    stores.close()


async def test_a_conversation_that_was_cleared_is_not_recalled_until_it_continues(
    play: Play, remembering: tuple[Stage, Scripted, MemoryBackend]
) -> None:
    stage, room, memory = remembering
    room.answers = ["Noted.", "I do not know.", "I do not know."]
    asked = "What opens my bicycle lock?"
    lines = ["My bicycle lock opens with 4711.", "/save lock", "/clear", asked, "/memory bicycle lock"]
    played = await play(*lines, stage=stage, backend=memory, user=LOCAL)
    assert room.requests[1].messages == (Message.user(asked),)
    assert "User: My bicycle lock opens with 4711." in played.out, "the search finds it"
    await play(asked, stage=stage, backend=memory, user=LOCAL)
    assert room.requests[2].messages == (Message.user(asked),), "in another process as well"
    await play("/load lock", "Remember it.", stage=stage, backend=memory, user=LOCAL)
    await play(asked, stage=stage, backend=memory, user=LOCAL)
    assert "4711" in room.requests[4].messages[0].text


async def test_an_exchange_that_was_taken_back_is_not_recalled(
    play: Play, remembering: tuple[Stage, Scripted, MemoryBackend]
) -> None:
    stage, room, memory = remembering
    room.answers = ["Hi.", "Noted: 4711 opens your bicycle lock.", "I do not know.", "I do not know."]
    asked = "What opens my bicycle lock?"
    lines = ["Hello.", "My bicycle lock opens with 4711.", "/undo", asked, "/memory bicycle lock"]
    played = await play(*lines, stage=stage, backend=memory, user=LOCAL)
    assert room.requests[2].messages[2:] == (Message.user(asked),)
    assert "User: My bicycle lock opens with 4711." in played.out, "the search finds it"
    await play(asked, stage=stage, backend=memory, user=LOCAL)
    assert room.requests[3].messages == (Message.user(asked),), "in another process as well"


# -- export -----------------------------------------------------------------------------------------------------------


async def test_export_writes_every_form_and_over_no_file_unasked(play: Play, tmp_path: Path) -> None:
    await play(
        "/system Be kind.", "Hello", "/export a.md", "/export a.json", "/export a.jsonl", "/export a.html",
        "/export b html", "/save c.md",
    )  # fmt: skip
    assert (tmp_path / "a.md").read_text().startswith("# Conversation with lamb\n\n## System\n\nBe kind.\n")
    assert [message["role"] for message in json.loads((tmp_path / "a.json").read_text())["messages"]] == [
        "user", "assistant",
    ]  # fmt: skip
    roles = [json.loads(line)["role"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert roles == ["system", "user", "assistant"]
    assert (tmp_path / "b").read_text() == (tmp_path / "a.html").read_text()
    assert (tmp_path / "c.md").read_text() == (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.html").stat().st_mode & 0o077 == 0
    before = (tmp_path / "a.md").read_text()
    (tmp_path / "folder.md").mkdir()
    played = await play(
        "/export a.md", "/export x.docx", "/export x pdf", "/export nowhere/x.md", "/export", "/export folder.md"
    )
    assert (tmp_path / "a.md").read_text() == before
    for sentence in (
        "a.md exists; there is no terminal to ask whether to overwrite it, so choose another name",
        "'docx' is not a format of a transcript; the formats are md, json, jsonl, html",
        "'pdf' is not a format of a transcript; the formats are md, json, jsonl, html",
        "nowhere/x.md cannot be written: No such file or directory",
        "write /export FILE with a name that ends in one of",
        "folder.md exists; there is no terminal",
    ):
        assert sentence in played.out


# -- another model ----------------------------------------------------------------------------------------------------


async def test_the_conversation_goes_on_with_another_model(play: Play) -> None:
    stage = Stage(None, names=["lamb", "Ram", "ewe"], broken=frozenset({"ewe"}))
    played = await play(
        "Hello", "/model", "/model ram", "/provider", "/provider next", "More", "/provider next", "/model nope",
        "/model RAM", "/provider nope", stage=stage,
    )  # fmt: skip
    assert "/model NAME changes to another one: lamb, Ram, ewe" in played.out
    assert played.out.count("The conversation continues with Ram, 100 tokens of context.") == 1
    assert "* Ram" in played.out
    assert "model 'ewe' cannot be loaded: the file is damaged" in played.out
    assert played.out.count("'nope' does not exist; known: lamb, Ram, ewe") == 2
    assert [line for line in played.err.splitlines() if "Loading" in line] == [
        "Loading provider: Ram", "Loading provider: ewe", "Loading provider: ewe",
    ]  # fmt: skip
    assert "Ram is the current model already." in played.out
    assert [message.text for message in played.chat.session.messages] == ["Hello", "Yes.", "More", "Yes."]


async def test_there_is_nothing_after_the_only_model(play: Play) -> None:
    assert "there is no other model" in (await play("/provider next")).out


# -- the window, and figures ------------------------------------------------------------------------------------------


async def test_context_draws_the_window_in_plain_signs_for_a_pipe(play: Play) -> None:
    out = (await play("Hello", "/context")).out
    assert "Context: 10 of 100 tokens (10%)" in out
    assert "\x1b" not in out
    assert out.isascii()
    assert "2 messages" in out


async def test_evict_takes_a_number_of_turns(play: Play) -> None:
    played = await play("Hello", "/evict", "/evict 3", "/evict 0", "/evict all", "/evict -1")
    assert "[2 messages (40 tokens) left the context" in played.out
    assert "[6 messages (120 tokens) left the context" in played.out
    assert played.out.count("is not a number of turns; write /evict or /evict 3") == 3


async def test_stats_sum_up_the_answers(play: Play) -> None:
    out = (await play("One", "Two", "/stats")).out
    assert "Turns:       2, 2 rounds" in out
    assert "Tokens in:   20, of them 6 from the cache (30%)" in out
    assert "Tokens out:  10, of them 0 of thoughts" in out
    assert "Prefix hits: 2 of 2 prompts" in out
    assert "Turns:       0, 0 rounds" in (await play("One", "/clear", "/stats")).out


# -- what is not there ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/tools", "this conversation has no tools"),
        ("/tools off write_file", "this conversation has no tools"),
        ("/permissions", "this conversation has no tools"),
        ("/mcp", "no MCP server is configured"),
        ("/prompts", "no MCP server is configured"),
        ("/prompt x", "no MCP server is configured"),
        ("/resource", "no MCP server is configured"),
        ("/memory", "this conversation has no memory"),
        ("/profile", "this conversation has no memory"),
    ],
)
async def test_what_there_is_none_of_is_said_in_a_sentence(play: Play, line: str, sentence: str) -> None:
    played = await play(line, "Hello")
    assert sentence in played.out
    assert "Yes." in played.out


# -- files that go along ----------------------------------------------------------------------------------------------


async def test_a_file_goes_along_with_a_message_and_a_refused_one_is_not_sent(play: Play, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the answer is 42\n")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    backend = Scripted()
    played = await play("Look at @notes.txt and @nobody", "And @cat.png?", backend=backend)
    message = backend.requests[0].messages[-1]
    assert "the answer is 42" in message.text
    assert message.parts[-1] == Text("Look at @notes.txt and @nobody")
    assert "@cat.png is an image, and lamb reads only text" in played.err
    assert len(backend.requests) == 1
    assert played.status == 1
