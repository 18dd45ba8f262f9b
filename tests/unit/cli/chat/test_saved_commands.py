"""Conversations that are gone on with by another process, and scripts of lines: the program on the embedded model."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scripted_service import ScriptedService

from shepherd.agent.storage import ConversationStore, SavedConversation
from shepherd.core import Event, Finished, Message, Request, Started, TextDelta

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

pytestmark = pytest.mark.model

FLAGS = ("--temperature", "0", "--notools", "--no-recall")


def folder(home: Home) -> Path:
    return home.folder / ".local" / "share" / "shepherd" / "conversations"


def test_the_chat_command_takes_the_same_options(home: Home) -> None:
    home.run(*FLAGS, text="My name is Ann.\n/save talk\n")
    for words in (("chat", "--resume", "talk"), ("--resume", "talk", "chat"), ("chat", "--continue")):
        assert "Ann" in home.run(*words, *FLAGS, "-p", "What is my name?").stdout, words


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("--continue", "-p", "Hello"), 1, "no conversation is saved yet"),
        (("--resume", "nope", "-p", "Hello"), 1, "no saved conversation is called 'nope'"),
        (("--resume", "nope"), 1, "no saved conversation is called 'nope'"),
        (("--resume", "/nowhere/x"), 1, "there is no file /nowhere/x"),
        (("--continue", "--resume", "talk"), 2, "--continue and --resume name two conversations; give one."),
        (("--resume", " "), 2, "--resume needs the name of a conversation"),
        (("--no-save", "--continue", "-p", "Hello"), 1, "conversations are not saved here (--no-save"),
        (("--continue", "serve"), 2, "--continue and --resume belong to the chat."),
    ],
)
def test_what_cannot_be_gone_on_with_is_one_sentence_before_anything_is_loaded(
    home: Home, arguments: tuple[str, ...], status: int, sentence: str
) -> None:
    done = home.run(*arguments)
    assert done.returncode == status
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_first_conversation_goes_on_with_nothing(home: Home) -> None:
    done = home.run(*FLAGS, "--continue", text="Hello\n")
    assert done.returncode == 0
    assert "No conversation is saved yet; this one is the first." in done.stdout


def test_without_a_terminal_the_conversations_are_listed(home: Home) -> None:
    assert home.run("--resume").stdout == "No conversation is saved yet.\n"
    home.run(*FLAGS, text="My name is Ann.\n/save talk\n")
    done = home.run("--resume", text="never read\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"talk  \d+ s  2 messages  My name is Ann\.\n", done.stdout)
    listed = home.run(*FLAGS, text="/resume\n/resume talk\n").stdout
    assert "/load NAME continues one." in listed
    assert "Continuing talk: 2 messages." in listed
    assert json.loads((folder(home) / "talk.json").read_text())["folder"] == str(home.folder)


def test_one_prompt_alone_is_not_saved_and_neither_is_what_must_not_be(home: Home) -> None:
    home.run(*FLAGS, "-p", "Hello")
    home.run(*FLAGS, "--no-save", text="Hello\n")
    assert not folder(home).exists()


SCRIPT = "My name is Zoë.\n/system\nWhat is my name?\n/export talk.json"


@pytest.mark.parametrize(
    "raw",
    [
        SCRIPT.encode(),
        SCRIPT.encode() + b"\n",
        SCRIPT.replace("\n", "\r\n").encode(),
        SCRIPT.replace("\n", "\r\n").encode("utf-8-sig"),
        SCRIPT.replace("\n", "\r\n").encode("utf-16"),
    ],
    ids=["no end", "unix", "windows", "windows with a mark", "utf-16"],
)
@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.grid(0.2)
def test_a_script_is_played_whatever_its_line_ends(home: Home, raw: bytes, from_file: bool) -> None:
    if from_file:
        (home.folder / "script.txt").write_bytes(raw)
    done = home.run(*FLAGS, text=home.folder / "script.txt" if from_file else raw)
    assert (done.returncode, done.stderr) == (0, "")
    assert "There is no system prompt." in done.stdout
    assert "\r" not in done.stdout
    messages = json.loads((home.folder / "talk.json").read_text())["messages"]
    said = [message["parts"][0]["text"] for message in messages]
    assert said[::2] == ["My name is Zoë.", "What is my name?"]


def test_bytes_that_are_no_text_are_replaced(home: Home) -> None:
    done = home.run(*FLAGS, text=b"Hello \xff\xfe there\n/export talk.json\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((home.folder / "talk.json").read_text())["messages"][0]["parts"][0]["text"] == "Hello �� there"


def test_a_prompt_brings_its_files_and_a_pipe_does_not(home: Home) -> None:
    (home.folder / "name.txt").write_text("My name is Ann.\n")
    asked = home.run(*FLAGS, "-p", "@name.txt What is my name?")
    assert "Ann" in asked.stdout
    assert "Ann" not in home.run("chat", *FLAGS, text="@name.txt What is my name?\n").stdout
    (home.folder / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    refused = home.run(*FLAGS, "-p", "What is on @cat.png?")
    assert refused.returncode == 1
    assert re.fullmatch(r"shepherd: @cat.png is an image, and lamb reads only text; .*\n", refused.stderr)


def test_another_model_goes_on_and_a_damaged_one_leaves_the_conversation_usable(home: Home, lamb: Path) -> None:
    (home.folder / "bad.gguf").write_bytes(lamb.read_bytes()[:100_000])
    (home.folder / "shepherd.toml").write_text(f"""\
isolate = false
[models.lamb]
path = "embedded"
[models.ram]
path = "{lamb}"
load = "demand"
[models.ewe]
path = "{home.folder / "bad.gguf"}"
load = "demand"
[caches.main]
model = "lamb"
n_ctx = 2048
[caches.other]
model = "ram"
n_ctx = 1024
[caches.third]
model = "ewe"
n_ctx = 1024
""")
    lines = "My name is Ann.", "/provider next", "What is my name?", "/provider ewe", "/provider nope", "/model LAMB"
    done = home.run(*FLAGS, text="\n".join([*lines, "What is my name?", "/provider"]))
    assert done.returncode == 0
    assert done.stdout.count("Your name is Ann.") == 3
    assert "The conversation continues with ram" in done.stdout or "1,024 tokens of context" in done.stdout
    assert "model 'ewe' cannot be loaded" in done.stdout
    assert "no model is called 'nope'; give a path" in done.stdout
    assert "* lamb" in done.stdout
    loads = [line for line in done.stderr.splitlines() if line.startswith("Loading provider: ")]
    assert loads == ["Loading provider: ram", "Loading provider: ewe", "Loading provider: lamb"]


def test_one_answer_beside_a_change_by_another_program_is_in_a_copy(
    home: Home, listening: Callable[..., AbstractContextManager[int]]
) -> None:
    saves = ConversationStore(folder(home))
    talk = SavedConversation("s", (Message.user("Hello"), Message.assistant("Hi.")))
    name = saves.save(talk, "talk")

    async def answer(request: Request) -> AsyncGenerator[Event, None]:
        saves.save(replace(talk, title="On the page"), name)
        yield Started("m")
        yield TextDelta("Here.")
        yield Finished("end")

    with listening(ScriptedService(answer)) as port:
        far = f'[providers.far]\ntype = "openai_compat"\nbase_url = "http://127.0.0.1:{port}/v1"\nmodel = "m"\n'
        (home.folder / "shepherd.toml").write_text(far)
        done = home.run("-m", "far/m", "--resume", "talk", "-p", "Are you here?")
    assert (done.returncode, done.stdout) == (0, "Here.\n"), done.stderr
    assert "Another program has changed talk meanwhile; this answer is in " in done.stderr
    assert saves.load("talk").title == "On the page"
    (copy,) = {*saves.names()} - {"talk"}
    assert [message.text for message in saves.load(copy).messages] == ["Hello", "Hi.", "Are you here?", "Here."]
