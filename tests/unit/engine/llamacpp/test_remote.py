"""How long the child of a model may be silent. What follows from it: `tests/process/engine/test_restart.py`."""

from __future__ import annotations

import pytest

from shepherd.engine.llamacpp.model import ModelOptions
from shepherd.engine.llamacpp.remote import timeouts_of
from shepherd.engine.worker.messages import BEAT_S
from shepherd.models import catalog


@pytest.mark.parametrize(
    ("stall_s", "frozen_s"), [(0.01, 3 * BEAT_S), (0.2, 3 * BEAT_S), (10.0, 10.0), (60.0, 30.0), (600.0, 30.0)]
)
def test_a_child_that_sends_once_a_second_is_never_silent_however_short_a_stall_is(
    stall_s: float, frozen_s: float
) -> None:
    timeouts = timeouts_of(ModelOptions(catalog.embedded(), "chat", ()), stall_s)
    assert (timeouts.frozen_s, timeouts.hung_s, timeouts.mute_s) == (frozen_s, stall_s, frozen_s + stall_s)
