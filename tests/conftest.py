"""What many tests need: the embedded model, and the shared data that a clone may lack."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.engine.llamacpp import Weights

ROOT = Path(__file__).parent.parent
LAMB = ROOT / "src" / "shepherd" / "models" / "lamb.gguf"


@pytest.fixture(scope="session")
def lamb() -> Path:
    """The embedded model's file."""
    return LAMB


@pytest.fixture(scope="session")
def weights(lamb: Path) -> Iterator[Weights]:
    """The embedded model, loaded once."""
    loaded = Weights.load(lamb)
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of real templates and outputs; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("CONFORMANCE_DIR", ROOT.parent / "shared" / "conformance"))
    if not folder.is_dir():
        pytest.skip(f"no conformance data at {folder} (set CONFORMANCE_DIR)")
    return folder
