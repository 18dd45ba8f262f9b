"""The tests of `tests/unit/test_docs.py` that start programs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.unit.test_docs import blocks, folder, matches, server, sources  # noqa: F401 - fixtures

PRINTS = re.compile(r"\s*```text prints\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Behind a Python block: what it prints. `...` stands for anything. One line may be a comment on its last line."""


RUNNER = """
import contextlib, io, json, sys, traceback
told = {}
for name, source in json.load(sys.stdin).items():
    output = io.StringIO()
    error = ""
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(source, name, "exec"), {"__name__": "__main__"})
        except BaseException:
            error = traceback.format_exc()
    told[name] = output.getvalue(), error
json.dump(told, sys.stdout)
"""
"""Runs the programs that it is given one after the other, since imports are what costs time; tells what each has
printed, and its traceback."""


@pytest.fixture(scope="session")
def ran(server: str, folder: Path) -> dict[str, tuple[str, str]]:
    """What each Python block has printed, and its error."""
    programs = {name: text.replace("http://localhost:8000", server) for name, text in sources("python").items()}
    command, text = [sys.executable, "-c", RUNNER], json.dumps(programs)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {name: (output, error) for name, (output, error) in json.loads(done.stdout).items()}


@pytest.mark.model
@pytest.mark.parametrize("name", sources("python"))
def test_python_blocks_print_what_the_page_says(name: str, ran: dict[str, tuple[str, str]]) -> None:
    output, error = ran[name]
    assert error == ""
    block, behind = blocks("python")[name]
    shown = PRINTS.match(behind) or re.search(r"  # (.*)\n$", block.group(2))
    assert shown is not None, "neither a ```text prints block nor a comment on the last line says what it prints"
    assert matches(shown.group(1).strip(), output.strip()), output


@pytest.mark.model
@pytest.mark.parametrize("source", sources("bash").values(), ids=sources("bash"))
def test_curl_blocks_get_a_valid_completion(source: str, server: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = source.replace("http://localhost:8000", server).replace("curl ", "curl -sS --fail-with-body ", 1)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"chat.completion"' in done.stdout


def test_no_file_names_a_package_registry() -> None:
    # Written apart, so that this file does not name one either.
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "registry.npmjs" + ".org"]
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for file in filter(None, files):
        path = ROOT / file
        if path.suffix not in {".gguf", ".png"} and path.is_file():
            text = path.read_text("utf-8", errors="replace")
            assert not [host for host in hosts if host in text], f"{file} names a package host"
