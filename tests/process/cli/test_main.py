"""The tests of `tests/unit/cli/test_main.py` that start programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
from tests.unit.cli.conftest import shepherd
from tests.unit.dialects.test_derive import CALLS, template

HEAVY = (
    "asyncio", "rich", "prompt_toolkit", "fastapi", "starlette", "uvicorn", "llama_cpp", "jinja2", "markdown_it",
    "psutil", "platformdirs", "httpx2", "prometheus_client", "shepherd.config", "shepherd.app", "shepherd.core",
)  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from shepherd.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: shepherd" in done.stdout
    assert sorted(set(HEAVY) & set(done.stderr.split())) == []


def test_models_info_says_that_the_markup_of_calls_is_derived(empty_home: Path) -> None:
    writer = gguf.GGUFWriter(empty_home / "own.gguf", "llama")
    writer.add_chat_template(template(CALLS["json"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "Chat template:   yes, derived dialect" in shepherd("models", "info", "own.gguf").stdout
    assert json.loads(shepherd("models", "info", "own.gguf", "--json").stdout)["dialect"] == "derived"
