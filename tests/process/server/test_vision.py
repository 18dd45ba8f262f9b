"""The tests of `tests/unit/server/test_vision.py` that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.own_server import serving
from tests.unit.engine.tiny_projector import png, write_projector, write_seeing
from tests.unit.server.test_vision import (
    ANSWER,
    computed,
    config,
    image,
    question,
    seeing,  # noqa: F401 - fixtures
    text,
)

from shepherd.app.app import App
from shepherd.core import EngineError
from shepherd.models.projector import read_projector

pytestmark = [pytest.mark.model]


@pytest.mark.grid(0.2)
def test_an_image_is_computed_once_and_belongs_to_its_pixels(seeing: str) -> None:
    words = text("a longer text before the image, which every conversation has: ")
    first = [question(words, image(png(1)), text(" tell me"))]
    n_first, n_new = computed(seeing, first)
    assert n_new == n_first
    second = [*first, ANSWER, question(text("and then?"))]
    n_second, n_new = computed(seeing, second)
    assert n_new <= n_second - n_first + 8, "only what stands behind the first question"
    again = [question(words, image(png(1)), text(" something else"))]
    _, n_new = computed(seeing, again)
    assert n_new < 60, "the same image is the same tokens"
    other = [question(words, image(png(2)), text(" tell me"))]
    n_other, n_new = computed(seeing, other)
    assert n_other == n_first
    assert n_new >= n_other - 90, "nothing behind the place of another image is shared"
    assert n_new < n_other, "the text before it is"


def test_a_projector_of_another_model_refuses_the_model(tmp_path: Path) -> None:
    model, projector = write_seeing("llava", tmp_path)
    write_projector("llava", projector, n_embd=96)
    with (
        pytest.raises(EngineError, match="cannot be used as the projector of"),
        serving(tmp_path, config(model, projector)),
    ):
        pass


@pytest.mark.parametrize("kind", ["llava", "qwen"])
def test_the_memory_of_a_model_has_its_projector_and_what_that_computes_with(kind: str, tmp_path: Path) -> None:
    model, projector = write_seeing(kind, tmp_path)
    found = read_projector(projector)
    assert found.buffer_bytes > 0
    n_bytes: list[int] = []

    def around(app: App) -> App:
        n_bytes.append(app.catalogue.models()[0].memory_bytes)
        return app

    for mmproj in (str(projector), "none"):
        with serving(tmp_path, config(model, projector).replace(str(projector), mmproj), around=around):
            pass
    assert n_bytes[0] - n_bytes[1] == found.size_bytes + found.buffer_bytes
