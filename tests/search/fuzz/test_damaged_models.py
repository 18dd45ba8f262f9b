"""Two thousand damaged models: each is refused in one sentence, or loads, or ends a child at the most; none takes long.

    uv run --no-sync pytest tests/search/fuzz/test_damaged_models.py                      2,000 files, always the same
    SHEPHERD_SEARCH=1 uv run --no-sync pytest tests/search/fuzz/test_damaged_models.py  more of other seeds

The reader sees them in this process, and the library what the reader accepts, in children that load many in a row.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cases import amount
from tests.search.fuzz import models
from tests.search.fuzz.models import Damaged, Sound

from shepherd.core import ConfigError
from shepherd.models import gguf, soundness
from shepherd.models.sizing import Cells, context_size

SEEDS = range(1, amount(2, 6))
N_FILES = amount(250, 2000)
MOST_S = 2.0
"""Of processor time, for one header; a hundred times what any takes here."""
CRASHES = 2
"""Of 2,000 files, how many may be accepted by the reader and end the child: none in the first, one in 8,000 others."""


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> list[Sound]:
    made = models.write_sound(tmp_path_factory.mktemp("sound"))
    return [models.take_apart(name, path) for name, path in made.items()]


def read(path: Path) -> gguf.Header:
    """What is done with a header before the library sees the file. Raises: `ConfigError`."""
    header = gguf.read_header(path)
    soundness.check(header)
    for types in (("f16", "f16"), ("q8_0", "q4_0")):
        context_size(header, cache="main", cells=Cells(0, types), is_loaded=False, room=1 << 40)
    return header


@dataclass
class Loader:
    """Children that load models, one after the other; a new one after each crash."""

    crashes: list[str] = field(default_factory=list)
    _child: subprocess.Popen[str] | None = None

    def load(self, damaged: Damaged, path: Path) -> str | None:
        """What the library says of it; empty when it loads; None when it ended the child."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.search.fuzz.load_models"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"path": str(path), "makes_vectors": False}) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if line:
            return str(json.loads(line))
        self.crashes.append(f"{damaged.what}: status {child.wait()}")
        self.close()
        return None

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


@pytest.fixture
def loader() -> Iterator[Loader]:
    made = Loader()
    yield made
    made.close()


@pytest.mark.parametrize("name", ["plain", "hybrid-swa", "mixture", "vocab-llama", "vocab-bert", "embedded"])
def test_the_models_load_before_they_are_damaged(
    name: str, sounds: list[Sound], tmp_path: Path, loader: Loader
) -> None:
    sound = next(sound for sound in sounds if sound.name == name)
    path = Damaged(name, sound.header, sound.size).write(tmp_path / "sound.gguf")
    read(path)
    assert loader.load(Damaged(name, b"", 0), path) == ""


@pytest.mark.model
@pytest.mark.parametrize("seed", SEEDS)
def test_no_damaged_model_ends_this_process_nor_takes_long(
    seed: int, sounds: list[Sound], tmp_path: Path, loader: Loader
) -> None:
    n_refused = n_loaded = 0
    for damaged in models.damaged(sounds, N_FILES, seed):
        path = damaged.write(tmp_path / "damaged.gguf")
        began_s = time.process_time()
        refused = None
        try:
            read(path)
        except ConfigError as error:
            refused = error
        if refused:
            assert "\n" not in refused.message, damaged.what
            assert refused.file == str(path) or "memory" in refused.message, damaged.what
            n_refused += 1
        else:
            said = loader.load(damaged, path)
            n_loaded += said == ""
        assert time.process_time() - began_s < MOST_S, damaged.what
    assert n_refused > N_FILES // 3, "most damage is seen"
    assert n_loaded > N_FILES // 10, "what does no harm is not refused"
    assert len(loader.crashes) <= CRASHES, loader.crashes


def test_the_loader_notices_a_model_that_ends_its_child(sounds: list[Sound], tmp_path: Path, loader: Loader) -> None:
    """The judge is judged: two tokens that are one, which the reader would have refused."""
    sound = next(sound for sound in sounds if sound.name == "vocab-gpt2")
    header = sound.header.replace(models.token("!"), models.token('"'), 1)
    path = Damaged("twice", header, sound.size).write(tmp_path / "damaged.gguf")
    with pytest.raises(ConfigError, match="has the token '\"' twice"):
        read(path)
    assert loader.load(Damaged("twice", b"", 0), path) is None
    assert loader.crashes
