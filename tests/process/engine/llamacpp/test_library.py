"""The bindings are imported without the rest of their package, which a program may want as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
BOTH = """
import sys
import shepherd.engine.llamacpp.library as library

log = library.start_library()
assert "numpy" not in sys.modules and "diskcache" not in sys.modules, "Shepherd needs only the bindings"
import llama_cpp
from llama_cpp import Llama

assert Llama.__module__ == "llama_cpp.llama" and llama_cpp.__version__ and llama_cpp.llama_cpp is library.C
try:
    llama_cpp.nothing
except AttributeError as error:
    print(error)
try:
    Llama(sys.argv[1], verbose=False)
except ValueError:
    print("\\n".join(log.errors))
"""


def test_a_program_has_the_whole_package_beside_shepherd_whose_log_stays(tmp_path: Path) -> None:
    file = tmp_path / "no-model.gguf"
    file.write_bytes(b"GGUF but no model")
    ran = subprocess.run([sys.executable, "-c", BOTH, str(file)], capture_output=True, text=True, check=True)
    first, *log = ran.stdout.splitlines()
    assert first == "module 'llama_cpp' has no attribute 'nothing'"
    assert any("gguf" in line for line in log), ran.stdout
