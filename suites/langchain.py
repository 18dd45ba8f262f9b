"""LangChain's standard tests of chat models (`langchain-tests`), against our server with the embedded model."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from suites.report import FOLDER, Report, Row
from suites.venv import python_of, version_in
from tests.own_server import serving

NEEDS = ("langchain-tests", "langchain-openai", "langchain-anthropic", "langchain-ollama", "pytest-timeout")
CASES = str(FOLDER / "langchain_cases.py")
SHORT = """
max_tokens = 128
[memory]
database_path = "memory.db"
"""
"""The embedded model rarely ends a long answer by itself."""


def run() -> Report:
    """Their tests over OpenAI's chat, OpenAI's responses, Anthropic's messages and Ollama's chat."""
    python = python_of("langchain", *NEEDS)
    with tempfile.TemporaryDirectory() as name, serving(Path(name), SHORT) as url:
        rows = Path(name) / "rows.json"
        environment = {
            **os.environ,
            "SHEPHERD_SUITE_URL": url,
            "SHEPHERD_SUITE_ROWS": str(rows),
            "PYTHONPATH": str(FOLDER),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        options = ["-q", "-p", "rows_plugin", "-p", "no:cacheprovider", "--timeout=30", "--asyncio-mode=auto"]
        command = [python, "-m", "pytest", *options, "-c", os.devnull, "--rootdir", str(FOLDER), CASES]
        subprocess.run(command, cwd=name, env=environment, check=False)
        found = json.loads(rows.read_text(encoding="utf-8"))
    return Report("langchain", f"langchain-tests {version_in(python, 'langchain-tests')}", [Row(*row) for row in found])
