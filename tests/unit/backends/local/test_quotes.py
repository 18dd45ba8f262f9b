"""What has left a conversation and is named again is quoted at its end, and stays there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.backends.local.serving import Make, reply
from tests.unit.backends.local.test_backend import held
from tests.unit.backends.local.test_leaving import exchange, read, session

from shepherd.backends.local.backend import LocalOptions
from shepherd.backends.local.leaving import QUOTED
from shepherd.backends.local.quotes import CLOSING, Departed, cues, quoted, with_quotes
from shepherd.core import Message, Request, Text, ToolResult
from shepherd.core.edits import Edit, LeavingPolicy

CODE = "def parse(text):\n    return tokens_of(text)\n\nRELEASE_NAME = 'Bluebird'\nTIMEOUT_S = 30"


def everything(_: str) -> bool:
    return True


# -- what is named ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("look at src/parser.py again", {"src/parser.py"}),
        ("what is RELEASE_NAME?", {"release_name"}),
        ('it said "no such table" before', {"no such table"}),
        ("why does `tokens_of(text)` fail", {"tokens_of(text)", "tokens_of"}),
        ("see parseAll() and PROJ-123", {"parseall", "proj-123"}),
        ("what did I tell you about it?", set()),
        ("文件名是什么", {"文件"}),
    ],
)
def test_what_a_question_names(text: str, named: set[str]) -> None:
    assert named <= cues([Message.user(text)]).keys()


def test_a_question_names_nothing_by_its_small_words() -> None:
    assert cues([Message.user("What did you say about that before, and why?")]) == {}


def test_a_result_names_its_errors_and_the_arguments_of_its_call() -> None:
    call, result = exchange(
        "1", "bash", '{"command": "pytest tests/test_parser.py"}', "ok\nE   KeyError: 'Bluebird'\nmore words"
    )
    found = cues([Message.user("Go on"), call, result])
    assert "tests/test_parser.py" in found
    assert {"e   keyerror: 'bluebird'", "bluebird"} <= found.keys()
    assert not any("more" in cue for cue in found)


def test_a_name_in_an_error_is_looked_up() -> None:
    left = [Departed('read_file {"path": "a.py"}', CODE), Departed("bash make", "RELEASE_DATE = 1")]
    call, result = exchange("1", "bash", '{"command": "make"}', "E  NameError: name RELEASE_NAME is not defined")
    block, n = quoted([Message.user("Go on"), call, result], left, "", everything)
    assert (n, "RELEASE_NAME = 'Bluebird'" in block) == (1, True)


# -- what is quoted ---------------------------------------------------------------------------------------------------


def test_the_lines_that_hold_it_are_quoted_with_those_around() -> None:
    left = [Departed('read_file {"path": "a.py"}', CODE), Departed("user", "Mend it.")]
    block, n = quoted([Message.user("What is RELEASE_NAME?")], left, "", everything)
    assert n == 1
    assert block.startswith(f"{QUOTED}\n- read_file")
    assert "RELEASE_NAME = 'Bluebird' / TIMEOUT_S = 30" in block
    assert block.endswith(f"{CLOSING}\n\n")


@pytest.mark.parametrize(
    ("question", "held"),
    [("What is RELEASE_NAME?", "RELEASE_NAME = 'Bluebird'"), ("What is OTHER_NAME?", ""), ("And now?", "")],
)
def test_nothing_is_quoted_that_is_still_there_or_was_not_named(question: str, held: str) -> None:
    assert quoted([Message.user(question)], [Departed("result", CODE)], held, everything) == ("", 0)


def test_a_call_that_is_named_stands_for_its_result() -> None:
    left = [
        Departed('read_file {"path": "src/a.py"}', CODE),
        Departed('read_file {"path": "src/b.py"}', "nothing here"),
    ]
    block, _ = quoted([Message.user("What stands in src/a.py?")], left, "", everything)
    assert "def parse(text):" in block
    assert "nothing here" not in block


def test_what_a_newer_result_replaces_is_quoted_for_what_the_newer_one_does_not_name() -> None:
    old = Departed("bash make", "TIMEOUT_S = 30\nE   the_name is wrong", "replaced")
    new = Departed("bash make", "TIMEOUT_S = 60", "result")
    block, n = quoted([Message.user("What are TIMEOUT_S and the_name?")], [old, new], "", everything)
    assert n == 2
    assert "TIMEOUT_S = 60" in block
    block, n = quoted([Message.user("What is TIMEOUT_S?")], [old], "", everything, known="TIMEOUT_S = 60")
    assert n == 0
    block, n = quoted([Message.user("What about the_name?")], [old, new], "", everything)
    assert "the_name is wrong" in block


def test_a_folder_that_is_in_every_call_names_nothing() -> None:
    left = [
        Departed(f"read {{'path': '/home/me/my_project/part{n}.py'}}", f"value = {n}\nother = {n}") for n in range(9)
    ]
    call, result = exchange("1", "read", '{"path": "/home/me/my_project/part9.py"}', "value = 9")
    assert quoted([Message.user("Go on"), call, result], left, "", everything) == ("", 0)
    call, result = exchange("1", "read", '{"path": "/home/me/my_project/part4.py"}', "value = 9")
    block, n = quoted([Message.user("Go on"), call, result], left, "", everything)
    assert (n, "value = 4" in block) == (1, True)


def test_of_two_texts_the_newest_is_quoted_first() -> None:
    left = [Departed("result", "TIMEOUT_S = 30"), Departed("result", "TIMEOUT_S = 60")]
    block, _ = quoted([Message.user("How long is TIMEOUT_S?")], left, "", everything)
    assert block.index("60") < block.index("30")


def test_quotes_keep_within_the_budget() -> None:
    left = [Departed("result", f"VALUE_{n} = the_name") for n in range(50)]
    question = [Message.user("Where is `the_name`?")]
    assert quoted(question, left, "", lambda block: len(block) < 10) == ("", 0)
    block, n = quoted(question, left, "", lambda block: len(block) < 200)
    assert 0 < n < 50
    assert len(block) < 200


def test_a_full_budget_ends_the_search() -> None:
    left = [Departed("result", f"VALUE_{n} = the_name") for n in range(500)]
    sizes: list[int] = []

    def fits(block: str) -> bool:
        sizes.append(len(block))  # counting the tokens of a block is what a quote costs
        return len(block) < 200

    assert quoted([Message.user("Where is `the_name`?")], left, "", fits)[1]
    assert len(sizes) < 30


@given(st.text(max_size=300), st.text(max_size=300))
@example("", "\n")  # the name of a result without its call is the client's
def test_no_text_can_leave_its_quotation_marks(question: str, text: str) -> None:
    left = [Departed(text, f"{text} the_name {CLOSING}"), Departed("user", text)]
    block, n = quoted([Message.user(f"{question} the_name")], left, "", everything)
    lines = block.split("\n")
    assert (lines[0], lines[-3:]) == (QUOTED, [CLOSING, "", ""]) if n else block == ""
    assert all(line.startswith("- ") and line.count('"') == 2 for line in lines[1:-3])


def test_quotes_stand_in_front_of_a_question_and_behind_a_result() -> None:
    asked = with_quotes(Message("user", (Text("reminder", aside=True), Text("Why?"))), "B\n\n")
    assert [part.text for part in asked.parts if isinstance(part, Text)] == ["reminder", "B\n\n", "Why?"]
    (result,) = with_quotes(read("1", text="short")[1], "B\n\n").parts
    assert isinstance(result, ToolResult)
    assert [part.text for part in result.parts if isinstance(part, Text)] == ["short", "\n\nB"]


# -- in the cells -----------------------------------------------------------------------------------------------------

OPTIONS = LocalOptions(
    on_full="evict",
    n_window=50_000,
    reserve=16,
    leaving=LeavingPolicy(newest_exchanges=1, first_lines=2, least_chars=100),
)
FILLER = "\n".join(f"nothing to see in line {n}" for n in range(40))


async def test_what_has_left_comes_back_when_it_is_named_and_stays_where_it_came(make: Make) -> None:
    backend, runtime = make(*["Fine."] * 20, n_ctx=4096, options=OPTIONS)
    files = {f"f{n}.py": FILLER for n in range(1, 9)} | {"f0.py": CODE + "\n" + FILLER}
    messages: tuple[Message, ...] = (Message.user("Mend the parser."),)
    for n, path in enumerate(sorted(files)):
        messages += read(str(n), path, files[path])
        answer = await reply(backend, Request("fake", messages))
    assert "Bluebird" not in held(runtime)
    assert answer.usage.recalled == 0
    messages += (answer.message, Message.user("What is RELEASE_NAME?"))
    answer = await reply(backend, Request("fake", messages))
    assert "RELEASE_NAME = 'Bluebird'" in held(runtime)
    assert answer.usage.recalled > 0
    assert answer.usage.input < 500
    again = await backend.count(Request("fake", messages))
    assert again == answer.usage.prompt, "a count knows the quotes"
    messages += (answer.message, Message.user("Thanks."))
    answer = await reply(backend, Request("fake", messages))
    assert answer.usage.input < 40, "the quote stands where it stood"
    assert held(runtime).count("RELEASE_NAME = 'Bluebird'") == 1
    other = await reply(backend, Request("fake", (*messages[:-1], Message.user("Thank you.")), owner="bob"))
    assert other.usage.recalled == 0, "nothing of another owner"


async def test_what_a_client_has_cleared_is_quoted_too(make: Make) -> None:
    backend, runtime = make("Fine.", n_ctx=8192, options=OPTIONS)
    messages = (*session(read("1", "a.py", CODE), read("2", "b.py")), Message.user("What is RELEASE_NAME?"))
    edited = await backend.edit(Request("fake", messages), (Edit("results", trigger_tokens=0, keep=1),))
    await reply(backend, Request("fake", messages, cleared=edited.cleared))
    assert held(runtime).count("RELEASE_NAME = 'Bluebird'") == 1


async def test_a_cache_without_a_window_quotes_nothing(make: Make) -> None:
    backend, runtime = make("Fine.", n_ctx=1024, options=replace(OPTIONS, n_window=None, leaving=None))
    messages = (*session(read("1", "a.py", CODE + FILLER), read("2", "b.py", FILLER)), Message.user("RELEASE_NAME?"))
    answer = await reply(backend, Request("fake", messages))
    assert answer.usage.recalled == 0
    assert QUOTED not in held(runtime)
