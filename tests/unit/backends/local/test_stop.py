"""Stop strings: the same answer for every cutting, nothing held back for longer than it must be, and linear work."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.local.stop import StopFilter

texts = st.text(alphabet="ab#", max_size=14)
stop_lists = st.lists(st.text(alphabet="ab#", min_size=1, max_size=4), min_size=0, max_size=3)
tangled = st.lists(st.text(alphabet="ab", min_size=1, max_size=6), min_size=0, max_size=6)
"""Stop strings that lie within each other, begin alike and overlap themselves."""


class Naive:
    """The same by its definition: every stop string is tried at every place after every character."""

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._text = ""
        self._shown = 0
        self.found: str | None = None

    def feed(self, text: str) -> str:
        told = ""
        for character in text:
            if self.found is None:
                self._text += character
                told += self._tell(self._undecided())
        return told

    def close(self) -> str:
        told = self._tell(len(self._text)) if self.found is None else ""
        self._text, self._shown = "", 0
        return told

    def _tell(self, undecided: int) -> str:
        """What may be shown, where a longer stop string may still begin at `undecided` and behind."""
        at, found = min(self._matches(), default=(undecided, ""))
        if found and at < undecided:
            self.found = found
        stop = min(at, undecided)
        told, self._shown = self._text[self._shown : stop], max(self._shown, stop)
        return told

    def _matches(self) -> list[tuple[int, str]]:
        """Where which stop strings are: of all that begin at one place, the longest alone."""
        places = {at: stop for stop in sorted(self._stops, key=len) for at in self._places(stop)}
        return list(places.items())

    def _places(self, stop: str) -> list[int]:
        return [at for at in range(len(self._text)) if self._text.startswith(stop, at)]

    def _undecided(self) -> int:
        ends = range(len(self._text))
        growing = (at for at in ends if any(self._grows(stop, self._text[at:]) for stop in self._stops))
        return next(growing, len(self._text))

    def _grows(self, stop: str, end: str) -> bool:
        return len(end) < len(stop) and stop.startswith(end)


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    stop = StopFilter(stops)
    shown = "".join(map(stop.feed, pieces)) + stop.close()
    return shown, stop.found


@given(stop_lists, texts)
def test_text_ends_before_the_first_stop_string(stops: list[str], text: str) -> None:
    shown, found = run(stops, [text])
    places = [text.index(stop) for stop in stops if stop in text]
    if places:
        assert shown == text[: min(places)]
        assert found is not None
        assert text.startswith(found, min(places))
    else:
        assert (shown, found) == (text, None)


@given(stop_lists, texts)
def test_every_cutting_gives_the_same(stops: list[str], text: str) -> None:
    whole = run(stops, [text])
    assert run(stops, list(text)) == whole
    for cut in range(len(text) + 1):
        assert run(stops, [text[:cut], text[cut:]]) == whole


@given(tangled, st.lists(st.text(alphabet="abc", max_size=5), max_size=8), st.sets(st.integers(0, 7)))
def test_every_piece_is_shown_when_the_definition_shows_it(
    stops: list[str], pieces: list[str], closed: set[int]
) -> None:
    stop, naive = StopFilter(stops), Naive(stops)
    for at, piece in enumerate(pieces):
        assert (stop.feed(piece), stop.found) == (naive.feed(piece), naive.found)
        if at in closed:
            assert (stop.close(), stop.found) == (naive.close(), naive.found)
    assert (stop.close(), stop.found) == (naive.close(), naive.found)


@given(stop_lists, texts)
def test_at_most_the_longest_stop_string_less_one_is_held_back(stops: list[str], text: str) -> None:
    stop = StopFilter(stops)
    shown = ""
    longest = max(map(len, stops), default=1)
    for n, character in enumerate(text, 1):
        shown += stop.feed(character)
        if stop.found is None:
            assert n - len(shown) <= max(longest - 1, 0)


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert StopFilter(()).feed("anything") == "anything"


@pytest.mark.parametrize("stop", ["a" * 1000, "ab" * 500, "a" * 999 + "b"])
def test_memory_grows_with_the_length_of_a_stop_string_and_not_with_its_square(stop: str) -> None:
    def peak(n: int) -> int:
        tracemalloc.start()
        try:
            held = StopFilter([stop * n])
            held.feed(stop * n)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(8) < 3 * peak(4)


def test_text_that_almost_matches_everywhere_takes_a_few_steps_for_each_character() -> None:
    n = 20_000
    stop = StopFilter(["a" * n + "b", "a" * (n // 2) + "c"])
    assert (
        sum(len(stop.feed("a")) for _ in range(4 * n)) == 3 * n
    )  # one character at a time: n steps each would not end
    assert (stop.feed("b"), stop.found) == ("", "a" * n + "b")
