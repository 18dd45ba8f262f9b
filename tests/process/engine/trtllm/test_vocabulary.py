"""The tests of `tests/unit/engine/trtllm/test_vocabulary.py` that start programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.engine.trtllm.small_tokenizers import trained
from tests.unit.engine.trtllm.test_vocabulary import model


def test_the_library_is_imported_for_a_vocabulary_only_and_its_absence_is_one_sentence(tmp_path: Path) -> None:
    path = model(tmp_path, trained("bytes", 300)).path
    program = f"""
import sys
from pathlib import Path
from shepherd.engine.trtllm.vocabulary import CheckpointVocabulary
from shepherd.models.checkpoint import Checkpoint
assert "tokenizers" not in sys.modules
sys.modules["tokenizers"] = None
CheckpointVocabulary(Checkpoint(Path({str(path)!r}), "checkpoint", "X", "x", 9, 0, (), 0, None))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("is not installed; get it with: pip install shepherd[tensorrt]")
