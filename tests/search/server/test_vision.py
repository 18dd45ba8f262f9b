"""The tests of `tests/unit/server/test_vision.py` that take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.own_server import serving
from tests.unit.engine.adapter_files import write_lora
from tests.unit.engine.tiny_projector import PROJECTORS, png, write_seeing
from tests.unit.server.test_vision import (
    ANSWER,
    N_ANSWER,
    asked,
    computed,
    config,
    image,
    question,
    seeing_llama_server,
    text,
)

from shepherd.models.gguf import read_header

pytestmark = [pytest.mark.model]


def test_images_that_turn_into_notes_cost_a_bounded_share_of_what_is_new(tmp_path: Path) -> None:
    """They leave in blocks of a quarter of `images.max_count`, and what stands behind is computed again then."""
    model, projector = write_seeing("llava", tmp_path)
    most = 16
    limits = f"[images]\nmax_count = {most}\n"
    text_ = config(model, projector).replace("n_ctx = 2048", "n_ctx = 8192") + limits
    with serving(tmp_path, text_) as address:
        messages: list[dict[str, Any]] = []
        n_prompt = n_computed = 0
        for turn in range(60):
            messages.append(question(text(f"{turn}: "), image(png(turn))))
            n_prompt, n_new = computed(address, messages, max_tokens=1)
            n_computed += n_new
            messages.append(ANSWER)
    # A prompt holds all that was ever new. Each turn's share of what a block costs is four turns.
    assert n_computed < 4 * n_prompt
    assert n_computed > 2 * n_prompt, "images have left"


CONVERSATIONS: dict[str, list[list[dict[str, Any]]]] = {
    "an image between texts": [[text("hello, see "), image(png(1)), text(" and say what it is")]],
    "an image first": [[image(png(7)), text("what is it?")]],
    "two images": [[text("compare "), image(png(1)), text(" with "), image(png(6, 100, 30)), text(" now")]],
    "a second turn, with another image": [
        [text("look: "), image(png(4, 33, 90)), text(".")],
        [text("and this: "), image(png(11, 64, 64)), text("?")],
    ],
    "text that spells a marker": [[text("<__media__> [image] "), image(png(1)), text("<image>")]],
}


@pytest.mark.parametrize("kind", PROJECTORS)
def test_greedy_tokens_are_those_of_llama_server(kind: str, tmp_path: Path) -> None:
    model, projector = write_seeing(kind, tmp_path)
    with seeing_llama_server(model, projector) as theirs, serving(tmp_path, config(model, projector)) as ours:
        for name, turns in CONVERSATIONS.items():
            messages: list[dict[str, Any]] = []
            for parts in turns:
                messages.append({"role": "user", "content": parts})
                answer = asked(ours, messages)
                assert answer == asked(theirs, messages), name
                assert len(answer) == N_ANSWER
                messages.append({"role": "assistant", "content": "I see."})


@pytest.mark.parametrize("kind", ["llava", "qwen"])
def test_an_image_belongs_to_the_adapters_that_it_was_computed_with(kind: str, tmp_path: Path) -> None:
    model, projector = write_seeing(kind, tmp_path)
    files = [write_lora(tmp_path / f"lora{n}.gguf", read_header(model), seed=n) for n in range(2)]
    adapters = "".join(f'[[models.eyes.adapters]]\npath = "{file}"\napply = false\n' for file in files)
    options = [word for file in files for word in ("--lora", str(file))]
    question_of = [question(text("look: "), image(png(1)), text(" what is it?"))]
    answers = []
    with (
        seeing_llama_server(model, projector, *options) as theirs,
        serving(tmp_path, config(model, projector) + adapters) as ours,
    ):
        for scales in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, -0.5)):
            lora = [{"id": n, "scale": scale} for n, scale in enumerate(scales)]
            n_prompt, n_new = computed(ours, question_of, lora=lora)
            assert n_new == n_prompt, "nothing of another set is used"
            assert computed(ours, question_of, lora=lora)[1] == 1
            # llama-server may use what it has of another set.
            answers.append(asked(ours, question_of, lora=lora))
            assert answers[-1] == asked(theirs, question_of, lora=lora, cache_prompt=False)
    assert len({*answers}) == len(answers), "each set has an answer of its own"
