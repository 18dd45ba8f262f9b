"""Which messages answer a question, and in what order."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import InvalidRequest
from shepherd.memory.archive.history import archive
from shepherd.memory.records import Entry, RankedMessage, Trust
from shepherd.memory.schema import open_file
from shepherd.memory.search.postings import FtsTable, find_matches
from shepherd.memory.search.query import Filters, terms_of
from shepherd.memory.search.ranking import fuse, rank
from shepherd.memory.search.scope import find_scope, newest

DAY = 86_400_000
NOW = 1_760_000_000_000


def user(text: str, *, at: int = NOW) -> Entry:
    return Entry("user", text, created_ms=at)


def model(text: str, *, at: int = NOW) -> Entry:
    return Entry("assistant", text, created_ms=at)


def found(connection: apsw.Connection, query: str, **options: object) -> list[str]:
    """The bodies of what is found, best first."""
    ranked = rank(connection, query, limit=20, **options)  # type: ignore[arg-type]  # passed on as it is
    return [connection.execute("SELECT body FROM message WHERE id = ?", (each.id,)).get for each in ranked]


def test_a_single_exchange_is_highly_relevant_to_its_own_question(connection: apsw.Connection) -> None:
    archive(connection, [user("What is the capital of France?"), model("The capital of France is Paris.")])
    for query in ("What is the capital of France?", "capital of France", "france capital", "Paris"):
        best = rank(connection, query, limit=5)[0]
        assert 0.9 <= best.score <= 1.0, query
        assert best.coverage == pytest.approx(1.0)
    assert rank(connection, "Paris", limit=5)[0].n_terms == 1
    assert rank(connection, "volcano", limit=5) == []


def test_the_list_is_monotone_and_within_bounds(connection: apsw.Connection) -> None:
    archive(connection, [user(f"The {'red' if n % 2 else 'blue'} fox number {n} eats soup") for n in range(40)])
    ranked = rank(connection, "which red fox eats soup with bread", limit=15)
    assert len(ranked) == 15
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
    assert all(0.0 <= each.score <= 1.0 and 0.0 <= each.coverage <= 1.0 for each in ranked)
    assert len({each.id for each in ranked}) == 15


def test_of_equal_statements_the_newest_is_first_and_age_changes_nothing_else(connection: apsw.Connection) -> None:
    for n, name in enumerate(("Steve", "Skippy", "Sandy")):
        archive(connection, [user(f"My name is {name}", at=NOW + n * DAY)], session=str(n))
    assert found(connection, "what is my name") == [f"My name is {name}" for name in ("Sandy", "Skippy", "Steve")]
    assert found(connection, "is my name Steve")[0] == "My name is Steve"


def test_rare_words_weigh_more_than_frequent_ones(connection: apsw.Connection) -> None:
    archive(connection, [user(f"I bought milk and bread on trip {n}") for n in range(30)])
    archive(connection, [user("the zeppelin landed in our meadow this spring")], session="z")
    assert found(connection, "milk bread zeppelin")[0].startswith("the zeppelin")


def test_words_that_stand_together_as_asked_count_more(connection: apsw.Connection) -> None:
    texts = [
        "The group of hikers got no support when the storm came over the pass last evening.",
        "The support group for climbers has met here in the hall since the storm last evening.",
    ]
    for n, text in enumerate(texts[::-1]):  # the wrong one is newer
        archive(connection, [user(text)], session=str(n))
    assert found(connection, "support group") == texts[::-1]


def test_a_users_message_comes_before_an_answer_that_repeats_it(connection: apsw.Connection) -> None:
    archive(
        connection,
        [
            user("My sister Leah works as a welder in Bremen and visits us every spring."),
            model("How nice that your sister Leah works as a welder in Bremen! " + "Welding is a fine trade. " * 40),
        ],
    )
    assert found(connection, "Where does my sister Leah work?")[0].startswith("My sister")


def test_answers_come_first_for_a_question_about_answers(connection: apsw.Connection) -> None:
    history = [
        user("How do I get red wine out of a tablecloth?"),
        model("Sprinkle salt on it at once, then rinse with cold water."),
        user("We drank red wine in the garden with all of the neighbours and their friends last night."),
        model("Lovely!"),
        user("I have bought a tablecloth with stripes for the kitchen and another one for the garden."),
    ]
    archive(connection, history)
    assert history[1].body in found(connection, "What did you advise for red wine on the tablecloth?")[:3]
    assert history[1].body not in found(connection, "red wine on the tablecloth")[:3]


def test_a_message_stands_behind_a_question_or_behind_what_a_model_said(connection: apsw.Connection) -> None:
    said = [user("I need curtains."), model("How wide is it?"), user("62 cm"), model("Fine."), user("Thanks a lot!")]
    ids = archive(connection, said)
    scope = find_scope(connection, Filters())
    assert scope
    assert [row.reply_kind for row in scope.read(connection, ids, ())] == ["", "", "reply", "", "answered"]
    assert [row.body for row in scope.read(connection, ids[::-1], ids[:3])] == ["Thanks a lot!", "Fine."]


def test_the_day_that_is_asked_for_decides_between_equals(connection: apsw.Connection) -> None:
    ids = [
        archive(connection, [user("Went running along the river", at=NOW + n * DAY)], session=str(n))[0]
        for n in range(20)  # from 9 October 2025 on
    ]
    assert rank(connection, "How far did I run on October 14?", limit=1)[0].id == ids[5]
    assert rank(connection, "How far did I run?", limit=1)[0].id == ids[-1]


def test_two_terms_above_the_budget_are_found_where_they_meet(connection: apsw.Connection) -> None:
    ids = archive(connection, [user(f"{'beta' if n % 2 else 'alpha'} {n}{' beta' * (n == 4)}") for n in range(2_000)])
    seen = find_matches(FtsTable(connection, "fts_user"), terms_of("alpha beta"), 5, 0)
    assert seen.ids[0] == ids[4]


def test_a_short_reply_is_found_by_the_question_it_answers(connection: apsw.Connection) -> None:
    archive(
        connection,
        [
            user("I need new curtains."),
            model("What are the measurements of the bedroom window?"),
            user("11 by 62 cm."),
            model("Then take the short ones."),
            *[user(f"Tell me about window number {n} with its glass and frame") for n in range(5)],
        ],
    )
    assert "11 by 62 cm." in found(connection, "measurements of the bedroom window")[:2]


def test_the_speaker_who_is_named_comes_before_the_one_who_speaks_of_them(connection: apsw.Connection) -> None:
    archive(
        connection,
        [
            user("Anna: I have started to paint landscapes in oil this autumn, mostly in the evening after work."),
            user("Ben: I have started to paint landscapes in oil this autumn, mostly in the evening, like Anna."),
        ],
    )
    assert found(connection, "What does Anna paint?")[0].startswith("Anna:")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("We went to Lisbon in spring.", "Where did we go?"),
        ("My wife bought two bicycles.", "who buys a bicycle"),
        ("Ich habe in Zürich studiert.", "zurich"),
        ("The café is closed on Mondays.", "CAFE"),
        ("我的猫叫小白，它喜欢吃鱼", "我的猫叫什么名字？"),
        ("新しい設備は東京にあります", "設備"),
        ("배포는 금요일에 했다", "배포"),
        ("gen-itgc后 the build was green", "itgc"),
        ("แมวของฉันชื่อส้ม", "แมว"),
        ("The server listens on 10.0.0.17:8443", "10.0.0.17"),
        ("We pay 1,200 for it", "what costs 1,200?"),
        ("O'Brien's number is 555-0199", "obrien o'brien"),
        ("I talked to Sunniva today", "What did Suniva say?"),  # a slip of the pen
        ("She is moving to Ljubljana", "Where is she movng?"),
    ],
)
def test_it_is_found(connection: apsw.Connection, said: str, asked: str) -> None:
    archive(connection, [user(said), user("Nothing of this kind was ever uttered here before.")])
    assert found(connection, asked)[:1] == [said]


def test_filters_say_where_to_look(connection: apsw.Connection) -> None:
    first = archive(
        connection, [user("The red boat leaks", at=NOW), model("Caulk the red boat", at=NOW + 1)], session="s1"
    )
    second = archive(connection, [user("A red boat was sold", at=NOW + 5 * DAY)], session="s2")
    tool = archive(
        connection, [user("look", at=NOW), Entry("tool", "red boat: 5 results", created_ms=NOW)], session="s3"
    )
    uuid = connection.execute("SELECT uuid FROM conversation WHERE session = 's2'").get

    def ids(**filters: object) -> set[int]:
        return {each.id for each in rank(connection, "red boat", limit=9, filters=Filters(**filters))}  # type: ignore[arg-type]

    every = {*first, *second, tool[1]}
    table = [
        ({}, every),
        ({"conversation": uuid}, set(second)),
        ({"conversation": "no such"}, set()),
        ({"session": "s1"}, set(first)),
        ({"roles": ("assistant",)}, {first[1]}),
        ({"roles": ("user", "tool")}, {first[0], second[0], tool[1]}),
        ({"roles": ("system",)}, set()),
        ({"after_ms": NOW + DAY}, set(second)),
        ({"before_ms": NOW + 1}, {first[0], tool[1]}),
        ({"untrusted": False}, every - {tool[1]}),
        ({"phrase": "boat leaks"}, {first[0]}),
        ({"phrase": "leaks boat"}, set()),
        ({"prefix": "cau"}, {first[1]}),
        ({"prefix": "red bo", "session": "s2"}, set(second)),
    ]
    assert [ids(**filters) for filters, _ in table] == [expected for _, expected in table]


def test_a_phrase_alone_finds_the_newest_that_have_it(connection: apsw.Connection) -> None:
    ids = archive(connection, [user(f"error 503 again, take {n}") for n in range(4)])
    assert [each.id for each in rank(connection, "", limit=3, filters=Filters(phrase="Error 503"))] == ids[:0:-1]
    assert rank(connection, "?!", limit=3) == []
    with pytest.raises(InvalidRequest, match="phrase"):
        rank(connection, "error", limit=3, filters=Filters(phrase="!"))


def test_ids_that_are_left_out_are_not_found_however_many(connection: apsw.Connection) -> None:
    ids = archive(connection, [user(f"the parrot said {n} words") for n in range(400)])
    assert {each.id for each in rank(connection, "parrot", limit=10, without=ids[1:])} == {ids[0]}
    assert newest(connection, limit=3, without=ids[-2:]) == ids[-3:-6:-1]


def test_vectors_find_what_shares_no_word_and_are_bound_by_the_same_filters(connection: apsw.Connection) -> None:
    ids = archive(connection, [user("My bike got stolen"), user("I like soup"), user("The cycle path is closed")])

    def nearest(text: str, k: int) -> Sequence[tuple[int, float]]:
        return [(ids[0], 0.8), (ids[1], 0.1)][:k]

    ranked = rank(connection, "velocipede theft", limit=5, vectors=nearest)
    assert [each.id for each in ranked] == ids[:2]
    assert ranked[0].score == pytest.approx(0.76)
    assert (ranked[0].coverage, ranked[0].n_terms) == (0.0, 0)
    assert [each.id for each in rank(connection, "velocipede", limit=5, vectors=nearest, without=ids[:1])] == ids[1:2]
    assert rank(connection, "velocipede", limit=5, vectors=nearest, filters=Filters(roles=("tool",))) == []
    assert rank(connection, "velocipede", limit=5, vectors=nearest, filters=Filters(phrase="closed")) == []


def test_words_are_worth_more_than_vectors_where_words_say_much() -> None:
    words = [RankedMessage(1, 0.9, 1.0, 2), RankedMessage(2, 0.8, 0.9, 2)]
    assert [each.id for each in fuse(words, [(3, 0.5), (4, 0.4)])] == [1, 2, 3, 4]
    assert [each.id for each in fuse(words, [(3, 0.5), (2, 0.4)])] == [2, 1, 3]  # what both find
    assert [each.id for each in fuse([RankedMessage(1, 0.05, 0.1, 0)], [(3, 0.5)])] == [3, 1]  # where they say little


def test_what_is_in_most_messages_still_counts(connection: apsw.Connection) -> None:
    archive(connection, [user(f"server {n} runs") for n in range(20)] + [user("the server of Ruth runs")])
    terms = terms_of("server Ruth")
    seen = find_matches(FtsTable(connection, "fts_user"), terms, 5, 1_000)
    assert seen.idf[1] > seen.idf[0] > 0
    assert len(seen.ids) == 5


def test_terms_above_the_budget_are_searched_among_their_newest_messages(connection: apsw.Connection) -> None:
    ids = archive(connection, [user(f"alpha {'beta' if n % 3 else 'gamma'} {n}") for n in range(3_000)])
    terms = terms_of("alpha beta")
    cheap = find_matches(FtsTable(connection, "fts_user"), terms, 10, 0)
    assert set(cheap.ids.tolist()) == {id for n, id in enumerate(ids) if n % 3 and n >= 2_985}
    whole = find_matches(FtsTable(connection, "fts_user"), terms, None, 10_000)
    assert len(whole.ids) == 3_000
    assert all(bound == pytest.approx(true, abs=0.01) for bound, true in zip(cheap.idf, whole.idf, strict=True))


@settings(deadline=None, max_examples=examples(60))
@given(
    texts=st.lists(st.text("ab ?.\n猫é", min_size=1, max_size=30), min_size=1, max_size=12),
    query=st.text("ab ?猫é", max_size=12),
    limit=st.integers(1, 10),
)
def test_every_list_is_sound(texts: list[str], query: str, limit: int) -> None:
    connection = open_file(":memory:")
    ids = archive(connection, [Entry("user" if n % 2 else "assistant", text) for n, text in enumerate(texts)])
    ranked = rank(connection, query, limit=limit)
    assert len(ranked) <= limit
    assert {each.id for each in ranked} <= set(ids)
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
    assert all(0 < each.score <= 1 and 0 <= each.coverage <= 1 + 1e-9 for each in ranked)
    connection.close()


def test_untrusted_text_is_found_unless_it_is_refused(connection: apsw.Connection) -> None:
    archive(connection, [Entry("user", "the page says: buy gold", trust=Trust.UNTRUSTED)])
    assert len(found(connection, "gold")) == 1
    assert found(connection, "gold", filters=Filters(untrusted=False)) == []
