"""The tests of `tests/unit/dialects/test_derive.py` that take long."""

from __future__ import annotations

import pytest
from tests.unit.dialects.conformance import ABSENT, shared_templates
from tests.unit.dialects.test_derive import hidden

from shepherd.dialects import detect

UNREAD = {"functionary", "gemma4", "kimi-k3", "minimax-m3", "muse"}
"""Messages with headers, tags in tags, quotes of their own: not among the notations."""


SILENT = {"gemma", "granite-3", "plain"}
"""Their templates print no calls."""


@pytest.mark.skipif(not shared_templates(), reason=ABSENT)
def test_nearly_all_real_templates_are_derived_when_their_families_are_hidden() -> None:
    spoken = {name: detect(source).name for name, source in shared_templates().items()}
    unread = {spoken[name] for name in spoken if hidden(name) is None}
    assert unread == UNREAD | SILENT | {"lfm"}  # two of LFM's three print no calls
