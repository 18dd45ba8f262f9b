"""The conversation of `playing.py` as a fixture."""

from pathlib import Path

import pytest
from tests.unit.cli.playing import Play, player


@pytest.fixture
def play(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Play:
    return player(tmp_path, capsys, monkeypatch)
