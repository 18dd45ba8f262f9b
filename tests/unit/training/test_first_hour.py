"""The first hour's sentences: how many, which of them training may not see, and that the judge finds what is wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.places import ROOT
from training import conversations, small_talk
from training.chat import Chat, says
from training.draw import Draw
from training.first_hour import Outcome, Sentence, faults, load, plain

SENTENCES, FOLDER = load()
HELD_OUT = [plain(each.text) for each in SENTENCES if each.is_held_out]
DEFAULTS = {"list_directory": {"path": ".", "details": False}}


def templates() -> Iterator[str]:
    """All texts of the modules that training draws from, and the sentences that it may see."""
    for module in ("conversations", "fact", "small_talk", "own_tools", "new_tools", "families"):
        tree = ast.parse((ROOT / "training" / f"{module}.py").read_text("utf-8"))
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        yield from (text for text in texts if isinstance(text, str))
    yield from (each.text for each in SENTENCES if not each.is_held_out)


def shows(text: str) -> list[str]:
    """The held-out sentences that a template gives away."""
    said = plain(text)
    return [each for each in HELD_OUT if each == said or (len(each.split()) > 3 and each in said)]


def test_there_are_200_sentences_that_training_sees_and_100_others() -> None:
    assert sum(not each.is_held_out for each in SENTENCES) == 200
    assert len(HELD_OUT) == len(set(HELD_OUT)) == 100


def test_no_training_template_has_a_held_out_sentence() -> None:
    assert [(text, found) for text in templates() if (found := shows(text))] == []
    assert shows("Hi little Lamb!") == ["hi little lamb"]  # as a template that gives one away is found


def test_no_conversation_of_training_says_a_held_out_sentence() -> None:
    planted = iter([HELD_OUT[0].capitalize() + "!", "Hello"])

    def says_one(draw: Draw) -> Chat:
        made = Chat()
        made.ask(next(planted), says("Hello!"))
        return made

    assert conversations.sample(Draw(1), [(says_one, 1)]).messages[0].text == "Hello"


CREATED = Sentence(
    "create", ("Create a.txt with the text hi",), False, files={"a.txt": "hi"}, any_calls=True, has=("a.txt",)
)
LISTED = Sentence("list", ("ls",), False, calls=((("list_directory", {}),),), has=("notes.txt",), lacks=("secret",))
GOOD = {
    "create": (CREATED, Outcome("I wrote a.txt.", (("write_file", {}),), FOLDER | {"a.txt": "hi\n"})),
    "list": (LISTED, Outcome("Here is notes.txt.", (("list_directory", {"path": "./"}),), FOLDER)),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_right_outcome_has_no_fault(name: str) -> None:
    assert faults(*GOOD[name], FOLDER, DEFAULTS) == []


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("create", {"files": FOLDER}, "a.txt has None in place of 'hi'"),
        ("create", {"files": FOLDER | {"a.txt": "hi", "notes.txt": ""}}, "notes.txt has ''"),
        ("create", {"answer": "Done."}, "'a.txt' is missing"),
        ("list", {"calls": ()}, "calls none in place of list_directory {}"),
        ("list", {"calls": (("list_directory", {"path": "src"}),)}, 'calls list_directory {"path": "src"}'),
        ("list", {"answer": "notes.txt and the secret"}, "'secret' is wrong"),
        ("list", {"answer": ""}, "no answer"),
        ("list", {"answer": "notes.txt" + " found" * 100}, "no end"),
        ("list", {"has_ended": False}, "no end"),
    ],
)
def test_each_fault_is_found(name: str, change: dict[str, object], fault: str) -> None:
    sentence, outcome = GOOD[name]
    found = faults(sentence, replace(outcome, **change), FOLDER, DEFAULTS)  # type: ignore[arg-type] # fields by name
    assert any(each.startswith(fault) for each in found), found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[folder]\n[[group]]\nkind="x"\nseen=[{say="a", reply="rude"}]\nheld_out=[]', "there is no form 'rude'"),
        ('[folder]\n[[group]]\nkind="x"\nseen=[{say="a", hass=["b"]}]\nheld_out=[]', "hass"),
    ],
)
def test_a_sentence_that_is_not_understood_is_named(
    tmp_path_factory: pytest.TempPathFactory, text: str, why: str
) -> None:
    file = tmp_path_factory.mktemp("sentences") / "x.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=why):
        load(file)


def test_the_answers_of_training_have_the_forms_that_the_judge_wants() -> None:
    for sentence in SENTENCES:
        if sentence.calls == ((),) and len(sentence.say) == 1 and not (sentence.has or sentence.any_calls):
            answers = [small_talk.ANSWERS[form] for form in sentence.reply if form in small_talk.ANSWERS]
            for answer in answers:
                assert faults(sentence, Outcome(answer, (), FOLDER), FOLDER, {}) == [], sentence
    assert (ROOT / "training" / "first_hour.toml").is_file()
