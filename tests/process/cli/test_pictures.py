"""The pictures of the documentation show what the program shows (`bench/terminal/picture.py`)."""

import re
import shutil

import pytest
from bench.terminal import picture

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]


@pytest.mark.grid(0)
@pytest.mark.parametrize("name", [name for name, scene in picture.SCENES.items() if not scene.model])
def test_a_picture_has_the_words_that_the_program_shows_today(name: str) -> None:
    kept = (picture.FOLDER / f"{name}.svg").read_text("utf-8")
    assert picture.words_of(kept) == picture.words(picture.played(picture.SCENES[name])), "run: make pictures"


def test_a_drawing_has_the_words_that_were_drawn_and_loads_nothing() -> None:
    shown = "\x1b[1m$ shepherd\x1b[0m\n11 tokens · 436 tokens/s · first 0.23 s\n  a < b & c"
    drawing = picture.drawn(shown, 40)
    assert picture.words_of(drawing) == picture.words(shown) == "$shepherd11tokens··a<b&c"
    assert picture.words(shown.replace("436", "9.5")) == picture.words(shown)
    assert picture.words_of(drawing.replace("shepherd</text>", "dog</text>")) != picture.words(shown)


def test_no_picture_loads_anything_from_elsewhere() -> None:
    for file in picture.FOLDER.glob("*.svg"):
        assert not re.search(r"url\((?!#)|(?:href|src)=|@import|<script", file.read_text("utf-8")), file.name
    assert {file.stem for file in picture.FOLDER.glob("*.svg")} == set(picture.SCENES)
