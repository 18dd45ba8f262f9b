"""Stop strings: the same answer for every cutting, and nothing held back for longer than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.stop import StopFilter

texts = st.text(alphabet="ab#", max_size=14)
stop_lists = st.lists(st.text(alphabet="ab#", min_size=1, max_size=4), min_size=0, max_size=3)


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
