"""A text brought to size: never too much, never half a character, never more work than what is kept is worth."""

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.results import MOST_CHARS_PER_TOKEN, char_boundary, fits, shorten

NOTICE = re.compile(r"\[Cut here: ([\d,]+) of ([\d,]+) characters are left out\.\]")
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAGS = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"
CLUSTERS = ["e\u0301", "\r\n", FAMILY, "\U0001f44d\U0001f3fd", "\u1100\u1161\u11a8", "a\u200d", "n\u0303\u0302"]


def words(text: str) -> int:
    """Tokens as vocabularies roughly have them: a word, a sign, or a byte of what is not ASCII."""
    return len(re.findall(r"[a-z]+|[ -~\n]", text, re.IGNORECASE)) + sum(
        len(c.encode("utf-8", "surrogatepass")) for c in text if ord(c) > 126
    )


texts = st.lists(
    st.sampled_from([*CLUSTERS, FLAGS, "word ", "\n", "x" * 40, "日本", "\ud800", "\x00", " " * 30])
    | st.text(max_size=9),
    max_size=200,
).map("".join)


@settings(deadline=None, max_examples=examples(150))
@given(text=texts, budget=st.integers(40, 400))
@example(text="x" * 100_000, budget=40)
@example(text="\n" * 100_000, budget=40)
def test_what_comes_back_fits_and_is_a_head_and_a_tail_of_what_was_given(text: str, budget: int) -> None:
    short = shorten(text, budget, words)
    assert words(short) <= budget
    if short == text:
        return
    assert not (len(text) <= budget * MOST_CHARS_PER_TOKEN and words(text) <= budget)
    (notice,) = NOTICE.finditer(short)
    head, tail = short[: notice.start()], short[notice.end() :].removeprefix("\n")
    assert text.endswith(tail)
    n_out = int(notice[1].replace(",", ""))
    heads = {head, head.removesuffix("\n")}  # a line that is not at its end is ended before the notice
    assert any(text.startswith(each) and n_out == len(text) - len(each) - len(tail) for each in heads)
    assert int(notice[2].replace(",", "")) == len(text)


@pytest.mark.parametrize("budget", [100, 1_000, 10_000])
def test_most_of_the_room_is_used(budget: int) -> None:
    text = "".join(f"line {n} of a log\n" for n in range(100_000))
    assert budget * 0.8 <= words(shorten(text, budget, words)) <= budget


def test_cuts_are_made_at_the_ends_of_lines() -> None:
    text = "".join(f"line {n}\n" for n in range(1_000))
    head, tail = NOTICE.split(shorten(text, 500, words))[0::3]
    assert re.fullmatch(r"(line \d+\n)+", head)
    assert re.fullmatch(r"\n(line \d+\n)+", tail)
    assert len(head) > len(tail) > len(head) / 4


def test_how_to_read_on_is_asked_for_with_the_head() -> None:
    text = "".join(f"line {n}\n" for n in range(1_000))
    short = shorten(text, 300, words, lambda head: f"{head.count(chr(10))} lines are here.")
    n_lines = int(re.search(r"left out\. (\d+) lines are here\.\]", short)[1])  # type: ignore[index]
    assert f"line {n_lines - 1}\n[" in short


def test_without_room_only_the_notice_is_left() -> None:
    assert NOTICE.fullmatch(shorten("word " * 1_000, 5, words))


class Gigabyte(str):
    """A text that says it is a gigabyte long; only its slices are real."""

    __slots__ = ("looked_at",)
    looked_at: int

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, place: object) -> str:
        if isinstance(place, slice):
            start, stop, _ = place.indices(10**9)
            self.looked_at += stop - start
            return "word " * ((stop - start) // 5)
        return "w"

    def find(self, *given: object) -> int:
        return -1

    rfind = find


def test_of_a_gigabyte_only_what_is_kept_is_copied_and_counted() -> None:
    text, counted = Gigabyte(), 0
    text.looked_at = 0

    def count(piece: str) -> int:
        nonlocal counted
        counted += len(piece)
        return words(piece)

    short = shorten(text, 2_000, count)
    assert "1,000,000,000 characters" in short
    assert max(text.looked_at, counted) < 10 * 2_000 * MOST_CHARS_PER_TOKEN


@pytest.mark.parametrize(
    ("text", "budget", "n_counted"),
    [("short", 100, 0), ("x" * 20, 20, 1), ("x" * 1_000, 20, 0)],
)
def test_only_what_might_fit_is_counted(text: str, budget: int, n_counted: int) -> None:
    counted = []
    assert fits(text, budget, lambda piece: counted.append(piece) or 1) == (len(text) < 1_000)  # type: ignore[func-returns-value]
    assert len(counted) == n_counted


@pytest.mark.parametrize("cluster", [*CLUSTERS, FLAGS[:2]])
def test_no_cut_goes_through_a_character_as_people_see_it(cluster: str) -> None:
    text = f"ab{cluster}cd{cluster}"
    first = text.index(cluster)
    for at in range(len(text) + 1):
        inside = [start for start in (first, text.rindex(cluster)) if start < at < start + len(cluster)]
        assert char_boundary(text, at) == (inside[0] if inside else at)


@pytest.mark.parametrize("cluster", [FAMILY, "e\u0301", "\U0001f44d\U0001f3fd", "\u1100\u1161\u11a8"])
@pytest.mark.parametrize("budget", range(200, 230))
def test_head_and_tail_hold_whole_characters(cluster: str, budget: int) -> None:
    head, _, _, tail = NOTICE.split(shorten(cluster * 2_000, budget, words))
    assert set(head.removesuffix("\n").split(cluster)) == {""}
    assert set(tail.removeprefix("\n").split(cluster)) == {""}


def test_flags_are_cut_between_and_not_within() -> None:
    text = "x" + FLAGS * 5
    assert [char_boundary(text, at) for at in range(1, 7)] == [1, 1, 3, 3, 5, 5]


def test_marks_without_end_are_cut_after_a_while() -> None:
    text = "a" + "\u0301" * 10_000
    assert unicodedata.combining("\u0301")
    assert char_boundary(text, 5_000) == 5_000
    assert words(shorten(text, 100, words)) <= 100
