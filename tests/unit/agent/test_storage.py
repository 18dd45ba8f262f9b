"""Conversations in files: each comes back exactly, and whatever a file holds is read or refused in one sentence."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.agent.storage import (
    ConversationStore,
    Quote,
    SavedConversation,
    SaveError,
    from_json,
    message_to_json,
    title_of,
    to_json,
)
from shepherd.core import (
    Audio,
    BadCall,
    Document,
    Image,
    Message,
    Opaque,
    Reasoning,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
)

BEGAN = datetime(2026, 11, 22, 15, 30, tzinfo=timezone(timedelta(hours=1)))
TEXTS = st.text(st.characters(), max_size=20)  # halves of surrogate pairs among them
MAYBE = st.none() | TEXTS
SHOWN = (
    st.builds(Text, TEXTS, st.booleans())
    | st.builds(Image, TEXTS, st.none() | st.binary(max_size=9), MAYBE)
    | st.builds(Audio, TEXTS, st.binary(max_size=9))
)
PARTS = (
    SHOWN
    | st.builds(Reasoning, TEXTS, MAYBE, st.booleans())
    | st.builds(ToolCall, TEXTS, TEXTS, TEXTS, MAYBE, MAYBE)
    | st.builds(Document, TEXTS, TEXTS, st.none() | st.binary(max_size=9), MAYBE)
    | st.builds(Opaque, TEXTS, TEXTS, st.just((Text("a"), ToolCall("1", "f", "{}"), ToolResult("1", ()))))
    | st.builds(BadCall, TEXTS, TEXTS, TEXTS, TEXTS)
    | st.builds(ToolResult, TEXTS, st.lists(SHOWN, max_size=3).map(tuple), TEXTS, st.booleans())
)
MESSAGES = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(PARTS, max_size=4).map(tuple), MAYBE
)


@st.composite
def conversations(draw: st.DrawFn) -> SavedConversation:
    messages = tuple(draw(st.lists(MESSAGES, min_size=1, max_size=5)))
    at = st.integers(0, len(messages) - 1)
    return SavedConversation(
        draw(TEXTS),
        messages,
        system=draw(MAYBE),
        title=draw(TEXTS),
        model=draw(TEXTS),
        folder=draw(TEXTS),
        began=draw(st.none() | st.just(BEGAN)),
        is_cut=draw(st.booleans()),
        unreported=draw(st.integers(0, 9)),
        reported=draw(st.dictionaries(at, st.integers(1, 9))),
        quotes=draw(st.dictionaries(at, st.builds(Quote, TEXTS, st.lists(st.integers(0, 2**60)).map(tuple)))),
    )


def one(text: str = "How are you, old friend?", id: str = "a", **fields: Any) -> SavedConversation:
    return SavedConversation(id, (Message.user(text), Message.assistant("Fine.")), began=BEGAN, **fields)


@given(conversations())
@settings(deadline=None)
def test_every_part_comes_back_exactly(saved: SavedConversation) -> None:
    assert from_json(json.loads(json.dumps(to_json(saved)))) == saved


@given(conversations())
@settings(deadline=None, max_examples=examples(20))
def test_so_it_does_through_a_file(tmp_path_factory: pytest.TempPathFactory, saved: SavedConversation) -> None:
    saves = ConversationStore(tmp_path_factory.mktemp("saves"))
    assert saves.load(saves.save(saved)) == saved


def test_how_answers_are_drawn_is_saved_to_the_last_zero() -> None:
    none = Sampling(
        temperature=0, top_k=0, min_p=0, frequency_penalty=0, repeat_last_n=0, dry_sequence_breakers=(), mirostat=0,
        seed=0, logit_bias=((5, 0.0), ("a", -100.0)), ignore_eos=False,
    )  # fmt: skip
    assert from_json(json.loads(json.dumps(to_json(one(sampling=none))))).sampling == none


def test_what_belongs_to_one_request_is_not_saved() -> None:
    message = Message("user", (Image("image/png", b"x", left_out="it is old", path="messages[0]"),))
    assert message_to_json(message)["parts"] == [{"type": "image", "media_type": "image/png", "data": "eA=="}]


def test_a_file_is_for_its_owner_and_its_name_says_what_it_is(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path / "data" / "conversations")
    name = saves.save(one())
    assert name == "2026-11-22-1530-how-are-you-old-friend"
    assert stat.S_IMODE(saves.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((saves.folder / f"{name}.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("title", "end"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("  Schöne Grüße, 世界!\n", "schöne-grüße-世界"),
        ("/\x00:*?", "conversation"),
        ("x" * 500, "x" * 40),
    ],
)
def test_any_title_makes_a_name_of_a_file(tmp_path: Path, title: str, end: str) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one(title=title))
    assert name == f"2026-11-22-1530-{end}"
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]


def test_a_conversation_that_is_saved_again_stays_in_its_file(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one(title="A title that is so long that it has to be cut for the name of the file"))
    assert saves.save(one("Other words.", title="new"), name) == name
    assert saves.names() == (name,)
    assert saves.load(name).messages[0].text == "Other words."


def test_a_file_that_was_given_another_name_keeps_it(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    (tmp_path / f"{saves.save(one())}.json").rename(tmp_path / "My Chat.json")
    assert saves.load("My Chat").id == "a"
    assert saves.save(one("Other words."), "My Chat") == "My Chat"
    assert saves.names() == ("My Chat",)


def test_nobody_elses_conversation_is_overwritten(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    first, second = saves.save(one()), saves.save(one(id="b"))
    assert second == f"{first}-2"
    (tmp_path / "notes.json").write_text("[1, 2")
    assert saves.save(one(), "notes") == "notes-2"
    assert (tmp_path / "notes.json").read_text() == "[1, 2"


def test_the_newest_comes_first_and_the_oldest_go(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path, keep=3)
    for n in range(5):
        name = saves.save(one(f"number {n}", id=str(n)))
        os.utime(tmp_path / f"{name}.json", ns=(0, n))
    assert saves.newest() == "2026-11-22-1530-number-4"
    assert [listed.title for listed in saves.list()] == ["number 4", "number 3", "number 2"]


def test_what_a_killed_process_has_left_is_cleared_away(tmp_path: Path) -> None:
    left, fresh = tmp_path / ".a.1.part", tmp_path / ".b.2.part"
    left.write_text("{")
    fresh.write_text("{")
    os.utime(left, (0, 0))
    saves = ConversationStore(tmp_path)
    assert saves.newest() is None
    saves.save(one())
    assert (left.exists(), fresh.exists()) == (False, True)


def test_the_beginning_of_a_name_or_a_path_will_do(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one())
    saves.save(one("Bye", id="b"))
    for said in (name, f"{name}.json", name[:20], str(tmp_path / f"{name}.json")):
        found = saves.find(said)
        assert (found.name, found.saved.id, found.stamp) == (name, "a", saves.stamp(name))
    with pytest.raises(SaveError, match="give more of the name"):
        saves.find("2026")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{name}.json").rename(elsewhere / "a.json")
    found = saves.find(str(elsewhere / "a.json"))
    assert (found.name, found.saved.id, found.stamp) == ("", "a", None), "no name of the folder"


def test_one_conversation_is_never_taken_for_another_whose_name_begins_alike(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    for name, id in (("hello-2", "b"), ("hello.json", "c"), ("~hello", "d"), (" hello", "e")):
        (tmp_path / f"{name}.json").write_text(json.dumps(to_json(one(id=id))))
    saves.remove("hello")
    with pytest.raises(SaveError, match="it cannot be read: No such file"):
        saves.load("hello")
    for name, id in (("hello-2", "b"), ("hello.json", "c"), ("~hello", "d"), (" hello", "e")):
        assert saves.load(name).id == id
        saves.remove(name)
        assert name not in saves.names()


@pytest.mark.parametrize("name", ["nope", "", "../nope", "/nope.json", "\x00"])
def test_a_name_that_nothing_has_is_an_error_that_names_what_there_is(tmp_path: Path, name: str) -> None:
    saves = ConversationStore(tmp_path)
    with pytest.raises(SaveError, match=r"none is saved yet|there is no file"):
        saves.find(name)
    saves.save(one())
    with pytest.raises(SaveError, match=r"2026-11-22-1530|there is no file"):
        saves.find(name)


def nested(n: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "text", "text": "x"}
    for _ in range(n):
        part = {"type": "opaque", "parts": [part]}
    return part


DAMAGE: list[tuple[Any, str]] = [
    ({"format": "something else"}, "no saved conversation"),
    ({"version": 2}, "version 2"),
    ({"version": "1"}, "version must be an integer"),
    ({"id": None}, "id is missing"),
    ({"messages": {}}, "messages must be an array"),
    ({"messages": [1]}, r"messages\[0\] must be an object"),
    ({"messages": [{"role": "root", "parts": []}]}, r"messages\[0\].role must be one of system, user"),
    ({"messages": [{"role": "user", "parts": [{"type": "file"}]}]}, r"messages\[0\].parts\[0\].type must be one of"),
    ({"messages": [{"role": "user", "parts": [{"type": "text"}]}]}, r"parts\[0\].text is missing"),
    ({"messages": [{"role": "user", "parts": [{"type": "text", "text": 3}]}]}, r"parts\[0\].text must be a string"),
    ({"messages": [{"role": "user", "parts": [{"type": "image", "data": "?"}]}]}, "data must be base64"),
    (
        {"messages": [{"role": "tool", "parts": [{"type": "result", "call_id": "", "parts": [{"type": "result"}]}]}]},
        r"parts\[0\].parts\[0\].call_id is missing",
    ),
    ({"told": {"7": 1}}, "told names message 7"),
    ({"told": {"-1": 1}}, "told names message -1"),
    ({"told": {"0": "x"}}, "told.0 must be an integer"),
    ({"quotes": {"0": {"text": "x", "ids": [True]}}}, "ids must be whole numbers"),
    ({"began": "yesterday"}, "began must be a time"),
    ({"began": "0001-01-01T00:00:00"}, "began must be a time"),
    ({"messages": [{"role": "assistant", "parts": [nested(300)]}]}, "nested too deeply"),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGE, ids=[told for _, told in DAMAGE])
def test_a_damaged_file_is_refused_and_says_where(tmp_path: Path, damage: dict[str, Any], told: str) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one())
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(SaveError, match=told):
        saves.load(name)
    with pytest.raises(SaveError, match=told) as caught:
        saves.find(name)
    assert str(path) in caught.value.message
    assert [bool(listed.error) for listed in saves.list()] == [True], "the others can still be listed"


@given(st.binary(max_size=40) | st.integers(0, 900))
@settings(deadline=None)
def test_a_file_of_anything_is_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, cut: bytes | int
) -> None:
    saves = ConversationStore(tmp_path_factory.mktemp("saves"))
    path = saves.folder / f"{saves.save(one())}.json"
    whole = path.read_bytes().rstrip()
    path.write_bytes(cut if isinstance(cut, bytes) else whole[: min(cut, len(whole) - 1)])
    with pytest.raises(SaveError):
        saves.load(path.stem)


def test_what_is_no_file_hides_no_conversation(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one())
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")  # as a file that is deleted while the folder is read
    (tmp_path / "folder.json").mkdir()
    assert saves.names() == (name,)


def test_a_file_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(SaveError, match="damaged"):
        ConversationStore(tmp_path).load("deep")


def test_a_folder_that_cannot_be_written_to_is_an_error_and_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="cannot be written"):
        ConversationStore(tmp_path / "file" / "folder").save(one())
    assert ConversationStore(tmp_path / "absent").list() == ()


def test_a_list_shows_where_a_conversation_was_and_how_it_began_and_ended(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    messages = (Message.user("One? " * 200), Message.assistant("Yes."), Message.user("And two?"))
    saves.save(SavedConversation("a", messages, folder="/srv/work"))
    (listed,) = saves.list()
    assert (listed.folder, listed.last) == ("/srv/work", "And two?")
    assert listed.first == ("One? " * 200)[:400]


def test_the_title_is_the_beginning_of_what_was_said_first() -> None:
    told = Message("user", (Text("[NOTICE: 2 messages]\n\n", aside=True), Text("  What is\n it? ")))
    assert title_of([Message.assistant("Hi"), told]) == "What is it?"
    assert title_of([Message.user("word " * 40)]) == "word " * 11 + "word…"
    assert title_of([]) == ""


def test_a_reader_finds_the_whole_file_while_it_is_written(tmp_path: Path) -> None:
    saves = ConversationStore(tmp_path)
    name = saves.save(one())
    with (tmp_path / f"{name}.json").open("rb") as reading:
        saves.save(replace(one(), messages=()), name)
        assert from_json(json.load(reading)) == one(), "what is read is the file as it was"
