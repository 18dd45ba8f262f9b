"""The tests of `tests/unit/server/test_vision.py` that take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.own_server import serving
from tests.unit.engine.tiny_projector import png, write_seeing
from tests.unit.server.test_vision import ANSWER, computed, config, image, question, text

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
