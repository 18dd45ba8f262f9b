"""How long the child of a model may be silent. What follows from it: `tests/process/engine/test_restart.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.engine.llamacpp.model import CacheOptions, DraftOptions, ModelOptions
from shepherd.engine.llamacpp.remote import timeouts_of
from shepherd.engine.llamacpp.runtime import ContextOptions
from shepherd.engine.llamacpp.trial import SLOWEST_BYTES_PER_S
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.worker.messages import BEAT_S
from shepherd.models import catalog


@pytest.mark.parametrize(
    ("stall_s", "frozen_s"), [(0.01, 3 * BEAT_S), (0.2, 3 * BEAT_S), (10.0, 10.0), (60.0, 30.0), (600.0, 30.0)]
)
def test_a_child_that_sends_once_a_second_is_never_silent_however_short_a_stall_is(
    stall_s: float, frozen_s: float
) -> None:
    timeouts = timeouts_of(ModelOptions(catalog.embedded(), "chat", (), stall_s=stall_s))
    assert (timeouts.frozen_s, timeouts.hung_s, timeouts.mute_s) == (frozen_s, stall_s, frozen_s + stall_s)


def test_the_time_to_load_counts_the_files_of_draft_models_and_of_a_projector_too(tmp_path: Path) -> None:
    (tmp_path / "draft.gguf").write_bytes(bytes(1 << 24))

    def build_s(*drafts: Path, projector: Path | None = None) -> float:
        caches = tuple(
            CacheOptions(path.name, ContextOptions(512), EngineOptions(), 4, DraftOptions(path, ContextOptions(512)))
            for path in drafts
        )
        return timeouts_of(ModelOptions(catalog.embedded(), "chat", caches, projector=projector)).build_s

    draft = tmp_path / "draft.gguf"
    assert build_s(draft) - build_s() == pytest.approx((1 << 24) / SLOWEST_BYTES_PER_S)
    assert build_s(projector=draft) == build_s(draft)
    assert build_s(draft, draft, catalog.embedded()) == build_s(draft), "each file is read once"
