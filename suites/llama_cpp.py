"""llama.cpp's own tests of llama-server (`tools/server/tests`), against `shepherd serve`.

    sdist of llama-cpp-python ─ copy ─▶ cache folder ─ pytest, llama_plugin ─▶ rows
                                            │ starts LLAMA_SERVER_BIN_PATH
                                            ▼
                                        llama_launcher ─▶ shepherd serve, with models of random weights

Their pytest runs in a virtual environment of its own. It takes about a quarter of an hour on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import platformdirs
from suites.llama_launcher import TEMPLATES
from suites.random_models import write_chat_model, write_embedding_model
from suites.report import FOLDER, Report, Row
from suites.venv import CACHE, python_of

NEEDS = (
    "pytest~=8.3.3",
    "pytest-timeout",
    "openai~=2.14",
    "requests",
    "filelock",
    "wget",
    "prometheus-client",
    "numpy",
)
TESTS = Path("tools/server/tests")
NOT_COMPARED = "weights are random, so the words of a trained model are not compared"


def run(*selection: str) -> Report:
    """All their tests, or those of `selection`. Raises: `RuntimeError` without their source or `uv`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = _source()
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        models, work, temporary = folder / "gguf", folder / "llama.cpp", folder / "tmp"
        for made in (models, work / TESTS.parent, temporary):
            made.mkdir(parents=True)
        (work / "models").symlink_to(source / "models")
        shutil.copytree(source / TESTS, work / TESTS)
        _write_models(source / "models", models)
        rows = folder / "rows.json"
        environment = {
            **os.environ,
            "LLAMA_SERVER_BIN_PATH": str(_launcher(folder)),
            "PORT": str(_free_port()),
            "SHEPHERD_SUITE_MODELS": str(models),
            "SHEPHERD_SUITE_ROWS": str(rows),
            "SHEPHERD_SUITE_TMP": str(temporary),
            "PYTHONPATH": f"{FOLDER}:{work / TESTS}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        options = ["-q", "-p", "rows_plugin", "-p", "llama_plugin", "-p", "no:cacheprovider", "--timeout=60"]
        command = [python_of("llama", *NEEDS), "-m", "pytest", *options, *(selection or ("unit",))]
        subprocess.run(command, cwd=work / TESTS, env=environment, check=False)
        found = json.loads(rows.read_text(encoding="utf-8"))
    return Report(
        "llama_cpp", f"llama-cpp-python {version('llama-cpp-python')}; {NOT_COMPARED}", [Row(*row) for row in found]
    )


def _source() -> Path:
    """llama.cpp's source, as benchmarks fetch it, or as uv unpacked it to build the library."""
    benchmarks = Path(platformdirs.user_cache_dir("shepherd-bench")) / "src"
    unpacked = Path(platformdirs.user_cache_dir("uv")).glob("sdists-v*/pypi/llama-cpp-python/*/*/src/vendor/llama.cpp")
    for path in (benchmarks, *unpacked):
        if (path / TESTS / "conftest.py").exists():
            return path
    raise RuntimeError("the source of llama.cpp is not here; python bench/llama_tools.py fetches it")


def _write_models(vocabularies: Path, target: Path) -> None:
    llama = vocabularies / "ggml-vocab-llama-spm.gguf"
    write_chat_model(llama, target / "chat.gguf", template=TEMPLATES["chatml"])
    write_chat_model(llama, target / "infill.gguf", template=TEMPLATES["chatml"], fim=True)
    write_embedding_model(vocabularies / "ggml-vocab-bert-bge.gguf", target / "bert.gguf")


def _launcher(folder: Path) -> Path:
    """A program that runs `llama_launcher` with this Python and our source."""
    path, source = folder / "llama-server", FOLDER.parent / "src"
    launcher = FOLDER / "llama_launcher.py"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{source}" exec "{sys.executable}" "{launcher}" "$@"\n')
    path.chmod(0o755)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
