"""Question sets are read as they are written, and recall is counted as it is defined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from bench import memory_quality
from bench.memory import corpus, datasets
from bench.memory.datasets import Case, Question, SourceMessage
from bench.memory_quality import Outcome, Retrieve
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import InvalidRequest
from shepherd.memory.records import Entry


def turn(speaker: str, id: str, text: str, **more: str) -> dict[str, str]:
    return {"speaker": speaker, "dia_id": id, "text": text, **more}


LOCOMO = {
    "sample_id": "talk-1",
    "qa": [
        {"question": "What did Ana plant?", "answer": "a quince", "evidence": ["D1:2"], "category": 4},
        {"question": "Where were both?", "answer": "", "evidence": ["D1:1; D2:1"], "category": 1},
        {"question": "Who was late?", "answer": "", "evidence": ["D:2:02", "D9:9", "D"], "category": 2},
        {"question": "Would Ana sail?", "answer": "no", "evidence": [], "category": 3},
        {"question": "What did Ben plant?", "adversarial_answer": "a quince", "evidence": ["D1:2"], "category": 5},
    ],
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            turn("Ben", "D1:1", "How was the market?"),
            turn("Ana", "D1:2", "I planted a quince.", blip_caption="a photo of a tree"),
        ],
        "session_2_date_time": "soon",
        "session_2": [turn("Ben", "D2:1", "Home at last."), turn("Ana", "D2:2", "You were late.")],
        "session_10_date_time": "12:05 am on 1 June, 2023",
        "session_10": [{"speaker": "Ana", "text": "Good night."}],
        "session_11_date_time": "1:00 pm on 2 June, 2023",
    },
    "event_summary": {},
}

CHAT: list[Any] = [
    {
        "batch_number": 1,
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "The port is 8443. ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Noted."},
            ],
            [{"role": "user", "id": 2, "content": "Always use tabs."}],
        ],
    },
    {
        "batch_number": 2,
        "turns": [
            [
                {"role": "user", "id": 3, "time_anchor": "April-02-2024", "content": "The port is 9000 now. ->-> 2,1"},
                {"role": "assistant", "id": 4, "content": "See ->-> 1,1 above."},
            ]
        ],
    },
]
PROBES = {
    "knowledge_update": [
        {"question": "Which port?", "source_chat_ids": {"original_info": [0], "updated_info": [3]}, "rubric": []}
    ],
    "event_ordering": [{"question": "In which order?", "source_chat_ids": [0, 3, 3]}],
    "abstention": [{"question": "What is my name?", "ideal_response": "unknown"}],
    "instruction_following": [{"question": "Show me code.", "source_chat_ids": ["2"]}],
}

LONG: dict[str, Any] = {
    "question_id": "q7",
    "question_type": "knowledge-update",
    "question": "Which colour do I like?",
    "answer": "teal",
    "question_date": "2023/06/01 (Thu) 10:00",
    "haystack_session_ids": ["s2", "s1"],
    "haystack_dates": ["2023/05/21 (Sun) 08:00", "2023/05/20 (Sat) 02:21"],
    "haystack_sessions": [
        [
            {"role": "user", "content": "I like teal now.", "has_answer": True},
            {"role": "assistant", "content": "Nice.", "has_answer": False},
        ],
        [{"role": "user", "content": "I like red."}],
    ],
    "answer_session_ids": ["s2"],
}


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def texts(case: Case) -> list[list[tuple[str, str, str]]]:
    return [[(said.id, said.entry.role, said.entry.body) for said in session] for session in case.sessions]


def days(case: Case) -> list[list[int | None]]:
    return [[said.entry.created_ms for said in session] for session in case.sessions]


def test_locomo_names_its_speakers_and_its_pictures_and_repairs_its_evidence(tmp_path: Path) -> None:
    (case,) = datasets.load(written(tmp_path / "locomo10.json", [LOCOMO]))
    assert case.name == "talk-1"
    assert texts(case) == [
        [
            ("D1:1", "user", "Ben: How was the market?"),
            ("D1:2", "user", "Ana: I planted a quince. [shares a photo of a tree]"),
        ],
        [("D2:1", "user", "Ben: Home at last."), ("D2:2", "user", "Ana: You were late.")],
        [("D10:1", "user", "Ana: Good night.")],
    ]
    start, night = 1683554160_000, 1685577900_000
    assert days(case) == [[start, start + 1000], [None, None], [night]]
    assert case.questions == (
        Question("What did Ana plant?", ("D1:2",), "single-hop"),
        Question("Where were both?", ("D1:1", "D2:1"), "multi-hop"),
        Question("Who was late?", ("D2:2",), "temporal"),
        Question("Would Ana sail?", (), "open-domain"),
        Question("What did Ben plant?", ("D1:2",), "adversarial", headline=False),
    )


BEAM_QUESTIONS = (
    Question("Which port?", ("0", "3"), "knowledge_update"),
    Question("In which order?", ("0", "3"), "event_ordering"),
    Question("What is my name?", (), "abstention", headline=False),
    Question("Show me code.", ("2",), "instruction_following", headline=False),
)
PLANS = [{"plan-1": CHAT[:1]}, {"plan-2": CHAT[1:]}]
BARE = [[turn for turns in batch["turns"] for turn in turns] for batch in CHAT]


@pytest.mark.parametrize("chat", [CHAT, PLANS, BARE], ids=["as published", "in plans", "as bare lists"])
def test_a_chat_of_beam_is_a_session_for_each_batch_with_its_day(chat: Any, tmp_path: Path) -> None:
    written(tmp_path / "100K" / "1" / "chat.json", chat)
    written(tmp_path / "100K" / "1" / "probing_questions" / "probing_questions.json", PROBES)
    (case,) = datasets.load(tmp_path / "100K")
    assert case.name == "1"
    assert texts(case) == [
        [("0", "user", "The port is 8443."), ("1", "assistant", "Noted."), ("2", "user", "Always use tabs.")],
        [("3", "user", "The port is 9000 now."), ("4", "assistant", "See ->-> 1,1 above.")],
    ]
    march, april = 1710460800_000, 1712016000_000
    assert days(case) == [[march, march + 1000, march + 2000], [april, april + 1000]]
    assert case.questions == BEAM_QUESTIONS


def test_a_folder_of_beam_is_taken_by_number_cut_chats_first_and_chats_without_questions_not_at_all(
    tmp_path: Path,
) -> None:
    for number in ("10", "9", "1"):
        written(tmp_path / "chats" / "100K" / number / "chat.json", CHAT)
    for number in ("10", "9"):
        written(tmp_path / "chats" / "100K" / number / "probing_questions" / "probing_questions.json", PROBES)
    written(tmp_path / "chats" / "100K" / "9" / "chat_trunecated.json", CHAT[:1])
    cases = list(datasets.load(tmp_path))
    assert [case.name for case in cases] == ["chats/100K/9", "chats/100K/10"]
    assert [len(case.sessions) for case in cases] == [1, 2]
    assert cases[0].questions[0].evidence == ("0",)  # what was cut away cannot be found


def test_cases_are_found_wherever_a_file_holds_them(tmp_path: Path) -> None:
    chat = [[{key: value for key, value in turn.items() if key != "id"} for turn in batch] for batch in BARE]
    row = {"chat": chat, "probing_questions": PROBES}  # messages are numbered as they come
    path = written(tmp_path / "all.json", {"split": {"rows": [{"row": row}, {"row": LOCOMO}]}})
    first, second = datasets.load(path)
    assert (first.questions, second.name) == (BEAM_QUESTIONS, "talk-1")


@pytest.mark.parametrize("probes", [PROBES, repr(PROBES)], ids=["as JSON", "as a string"])
def test_rows_of_beam_in_one_file_are_cases(probes: Any, tmp_path: Path) -> None:
    row = {"conversation_id": "7", "chat": BARE, "probing_questions": probes}
    (case,) = datasets.load(written(tmp_path / "rows.json", [row]))
    assert (case.name, case.questions) == ("7", BEAM_QUESTIONS)


@pytest.mark.parametrize(
    ("ability", "counts"),
    [
        ("abstention", False),
        ("contradiction_resolution", True),
        ("event_ordering", True),
        ("information_extraction", True),
        ("instruction_following", False),
        ("knowledge_update", True),
        ("multi_session_reasoning", True),
        ("preference_following", False),
        ("summarization", False),
        ("temporal_reasoning", True),
    ],
)
def test_only_the_factual_abilities_of_beam_count_in_the_headline(ability: str, counts: bool, tmp_path: Path) -> None:
    probes = {ability: [{"question": "Which port?", "source_chat_ids": [0]}]}
    (case,) = datasets.load(written(tmp_path / "rows.json", [{"chat": BARE, "probing_questions": probes}]))
    assert case.questions == (Question("Which port?", ("0",), ability, headline=counts),)


def test_a_chat_of_beam_may_be_named_by_its_file(tmp_path: Path) -> None:
    chat = written(tmp_path / "1" / "chat.json", CHAT)
    written(tmp_path / "1" / "probing_questions.json", PROBES)
    (case,) = datasets.load(chat)
    assert case.name == "1"


def test_longmemeval_is_a_case_for_each_question_in_the_order_of_time(tmp_path: Path) -> None:
    (case,) = datasets.load(written(tmp_path / "longmemeval_s.json", [LONG]))
    assert case.name == "q7"
    assert texts(case) == [
        [("1:0", "user", "I like red.")],
        [("0:0", "user", "I like teal now."), ("0:1", "assistant", "Nice.")],
    ]
    assert days(case) == [[1684549260_000], [1684656000_000, 1684656001_000]]
    assert case.questions == (Question("Which colour do I like?", ("0:0",), "knowledge-update"),)


def test_longmemeval_without_labels_has_the_sessions_of_the_answer_and_an_abstention_has_none(tmp_path: Path) -> None:
    bare = [[{**turn, "has_answer": None} for turn in turns] for turns in LONG["haystack_sessions"]]
    lines = [
        json.dumps({**LONG, "haystack_sessions": bare}),
        json.dumps({**LONG, "question_id": "q8_abs"}),
    ]
    path = tmp_path / "longmemeval.jsonl"
    path.write_text("\n".join(lines) + "\n")
    evidence = [case.questions[0].evidence for case in datasets.load(path)]
    assert evidence == [("0:0", "0:1"), ()]


@settings(deadline=None, max_examples=examples(30))
@given(sizes=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=4), lines=st.booleans())
def test_a_file_is_read_whole_whatever_the_size_of_its_rows(
    sizes: list[int], lines: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.json"
    rows = [{**LONG, "question_id": str(n), "padding": "é[,]{" * (size // 5)} for n, size in enumerate(sizes)]
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=1))
    assert [case.name for case in datasets.load(path)] == [str(n) for n in range(len(sizes))]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("hello", "cannot be read as JSON"),
        ("", "holds no conversation with questions"),
        ("[1, 2]", "an object was expected"),
        ('{"a": ' * 100_000, "cannot be read as JSON"),
        ('{"a": [{"b": 1}]}', "holds no conversation with questions"),
        ('[{"conversation": 3, "qa": []}]', "is not written as locomo is"),
        ('[{"chat": [], "probing_questions": "{"}]', "is not written as beam is"),
        ('[{"haystack_sessions": [["x"]], "question": ""}]', "is not written as longmemeval is"),
        (json.dumps([LOCOMO])[:-40], "cannot be read as JSON"),
        (json.dumps([{**LOCOMO, "qa": []}]), "names a message as its evidence"),
    ],
)
def test_a_file_that_is_none_of_them_is_refused_in_one_sentence(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=says) as error:
        memory_quality.run(path)
    assert error.value.field == "file"
    assert "\n" not in error.value.message


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no file or folder"):
        datasets.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("ranks", "n_evidence", "session_ranks", "n_sessions", "measures"),
    [
        ((1,), 1, (1,), 1, (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
        ((), 1, (), 1, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ((2, 5, 6, 11), 5, (2, 6), 2, (0.0, 0.4, 0.6, 1.0, 0.5, 0.5)),
        ((7,), 2, (5,), 1, (0.0, 0.0, 0.5, 0.0, 1 / 7, 1.0)),
    ],
)
def test_recall_is_the_share_of_the_evidence_and_rank_that_of_the_first(
    ranks: tuple[int, ...],
    n_evidence: int,
    session_ranks: tuple[int, ...],
    n_sessions: int,
    measures: tuple[float, ...],
) -> None:
    assert Outcome("", True, ranks, n_evidence, session_ranks, n_sessions).measures == pytest.approx(measures)


def small_case() -> Case:
    sessions = (
        (SourceMessage("a", Entry("user", "one")), SourceMessage("b", Entry("assistant", "two"))),
        (SourceMessage("c", Entry("user", "one")), SourceMessage("d", Entry("user", "three"))),
    )
    questions = (
        Question("a", ("a",), "plain"),
        Question("cd", ("c", "d"), "plain"),
        Question("", (), "plain"),
        Question("b", ("b",), "odd", headline=False),
    )
    return Case("small", sessions, questions)


def finding(order: str) -> memory_quality.Open:
    """A search that always finds these messages, told by their names, in this order."""

    def opened(connection: apsw.Connection) -> Retrieve:
        ids = [id for (id,) in connection.execute("SELECT id FROM message ORDER BY conversation, seq")]
        return lambda _question, limit: [ids["abcd".index(name)] for name in order][:limit]

    return opened


def test_figures_are_means_over_the_questions_with_evidence_and_kinds_apart_do_not_count() -> None:
    report = memory_quality.score([small_case()], finding("bccad"))
    # without its double: b c a d; the sessions are found in the order 1, 2
    said = report.as_json()
    assert {name: said[name] for name in (*memory_quality.MEASURES, "n")} == {
        "R@1": 0.0, "R@5": 1.0, "R@10": 1.0, "hit@5": 1.0, "MRR": round((1 / 3 + 1 / 2) / 2, 4),
        "session R@5": 1.0, "n": 2,
    }  # fmt: skip
    assert list(said["kinds"]) == ["plain"]
    assert said["apart"]["odd"]["R@1"] == 1.0
    assert (said["conversations"], said["messages"], said["without_evidence"]) == (1, 4, 1)
    assert memory_quality.score([small_case()], finding("bccad"), limit=2)["R@10"] == 0.25


def test_the_four_figures_are_the_first_keys() -> None:
    keys = list(memory_quality.score([], finding("")).as_json())
    assert [key for key in keys if "@" in key or key == "MRR"][:3] == ["R@1", "R@5", "R@10"]
    assert "MRR" in keys


class Moods:
    """An embedder that knows what is pleasant and what is not, and nothing else."""

    name = "moods"
    dim = 64

    def embed(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        rows = np.ones((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[::2] = -1 if any(word in text for word in ("hate", "loathe", "dislike")) else 1
        rows /= np.sqrt(self.dim)
        return rows


def test_an_embedder_makes_the_search_hybrid() -> None:
    texts = ("I went to town.", "I loathe coriander.", "The train was late.")
    said = tuple(SourceMessage(str(n), Entry("user", text)) for n, text in enumerate(texts))
    case = Case("moods", (said,), (Question("Which herbs do you dislike?", ("1",), "reworded"),))
    assert memory_quality.score([case], memory_quality.ranked())["R@1"] == 0.0
    assert memory_quality.score([case], memory_quality.ranked(Moods()))["R@1"] == 1.0


def test_the_generated_evaluation_follows_from_its_seed_and_names_what_is_there() -> None:
    case, again, other = (corpus.cases(1, seed=seed, sessions=10, turns=5)[0] for seed in (3, 3, 4))
    assert case == again
    assert case.sessions != other.sessions
    known = [said.id for session in case.sessions for said in session]
    assert len(known) == len(set(known))
    assert all(name in known for question in case.questions for name in question.evidence)


def plain(connection: apsw.Connection) -> Retrieve:
    """FTS5 as it comes: every word must be there."""

    def retrieve(question: str, limit: int) -> list[int]:
        words = " ".join(f'"{word}"' for word in question.replace('"', " ").split())
        rows = connection.execute("SELECT rowid FROM fts_user(?) ORDER BY rank LIMIT ?", (words, limit))
        return [id for (id,) in rows]

    return retrieve


def test_facts_given_once_among_hundreds_of_turns_are_found() -> None:
    cases = corpus.cases(2, seed=20)
    assert memory_quality.score(cases, plain)["R@5"] < 0.2
    report = memory_quality.score(cases, memory_quality.ranked())
    assert report["R@5"] >= 0.95, report.as_json()


# -- the script --------------------------------------------------------------------------------------------------------
