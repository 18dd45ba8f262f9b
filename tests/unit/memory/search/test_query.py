"""Free text into what is looked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import InvalidRequest
from shepherd.memory.schema import open_file
from shepherd.memory.search.query import (
    MOST_TERMS,
    Filters,
    answer_type_of,
    is_about_answers,
    match_any,
    terms_of,
    words_of,
)


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("What is the capital of France?", ["capital", "france"]),
        ("When did Caroline's brother-in-law go to Rome?", ["caroline", "brother", "law", "rome"]),
        ("who are you", ["who", "are", "you"]),  # nothing but words that say nothing: then those
        ("Do you remember what I told you about Python 3.11.7?", ["python", "3 11 7"]),
        ("it cost 1,200 in total", ["cost", "1 200", "total"]),
        ("my_function() raised ValueError", ["function", "raised", "valueerror"]),
        ("café CAFÉ Cafe", ["café", "cafe"]),
        ("ＡＢＣ full width", ["abc", "full", "width"]),
        ("", []),
        ('"*:()^-+ … !', []),
        ("the 🦊🍕, 👍🏽 and 🇩🇪", ["emoji1f98a", "emoji1f355", "emoji1f44d", "emoji1f1e9 emoji1f1ea"]),
        ("我的猫叫什么名字", ["我 的", "的 猫", "猫 叫", "叫 什", "什 么", "么 名", "名 字"]),
        ("猫", ["猫"]),
        ("gen-itgc后 설비", ["gen", "itgc", "后", "설 비"]),
        ("wie heißt der Hund und wo wohnt er?", ["heißt", "hund", "wohnt"]),
        ("pour the die into the hat", ["pour", "die", "hat"]),  # stop words elsewhere, not in English
    ],
)
def test_a_question_asks_for_its_content_words(question: str, terms: list[str]) -> None:
    assert [term.forms[0] for term in terms_of(question)] == terms


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("buy", "bought"),
        ("bought", "buy"),
        ("teaching", "taught"),
        ("children", "child"),
        ("three", "3"),
        ("8th", "08"),
    ],
)
def test_a_term_has_other_forms_that_no_stemmer_knows(word: str, form: str) -> None:
    assert any(form in (*term.forms, *term.near) for term in terms_of(f"{word} xyzzy"))


def test_of_a_long_question_the_longest_words_are_asked_for_in_their_order() -> None:
    words = [f"w{'o' * n}rd" for n in range(1, 61)]
    asked = [term.forms[0] for term in terms_of(" ".join(words))]
    assert asked == words[-MOST_TERMS:]


def test_of_a_pasted_text_both_ends_are_read() -> None:
    asked = {term.forms[0] for term in terms_of("alpha? " + "x " * 100_000 + " omega?")}
    assert {"alpha", "omega"} <= asked


@pytest.mark.parametrize(
    ("question", "aim"),
    [
        ("When did she leave?", "time"),
        ("what month was it", "time"),
        ("How many eggs?", "number"),
        ("Who is Ruth?", "name"),
        ("what are the names of my cats", "name"),
        ("why?", ""),
    ],
)
def test_the_aim_is_what_kind_of_thing_is_asked_for(question: str, aim: str) -> None:
    assert answer_type_of(question) == aim


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("What did you recommend for the cake?", True),
        ("your advice on the tent", True),
        ("Can you tell me where I live?", False),
        ("How many columns did I mention?", False),
    ],
)
def test_a_question_about_answers_of_the_model_is_recognised(question: str, about: bool) -> None:
    assert is_about_answers(question) is about


@pytest.mark.parametrize("value", ["", "  ", '"', "…", "***"])
def test_a_phrase_or_prefix_without_a_word_is_refused(value: str) -> None:
    for field, filters in (("phrase", Filters(phrase=value)), ("prefix", Filters(prefix=value))):
        with pytest.raises(InvalidRequest, match=field) as raised:
            _ = filters.required
        assert raised.value.field == field


def test_required_text_is_looked_for_in_the_message_itself() -> None:
    assert Filters().required == ""
    assert Filters(phrase='error "503"', prefix="Kub").required == 'body : ("error 503" AND "kub" *)'
    assert Filters(phrase="Große Gasse").required == 'body : (("große gasse" OR "grosse gasse"))'
    assert Filters(prefix="gasse").required == 'body : (("gasse" * OR "gaße" *))'


ANY_TEXT = st.text(st.characters() | st.sampled_from("\"*:()^{}+-~ \0\ud800'\\設กあ한é"), max_size=60)


@settings(deadline=None, max_examples=examples(300))
@given(text=ANY_TEXT)
def test_any_text_is_a_safe_query(text: str) -> None:
    connection = open_file(":memory:")
    terms = terms_of(text)
    assert len(terms) <= MOST_TERMS
    assert bool(terms) == bool(words_of(text))
    for term in terms:
        for forms in (term.forms, term.near or term.forms):
            connection.execute("SELECT rowid FROM fts_user WHERE fts_user MATCH ?", (match_any(forms),)).fetchall()
    connection.close()
