"""llama.cpp's own tests of llama-server (`tools/server/tests`): against llama-server, then against `shepherd serve`.

    llama.cpp's source ─ copy ─▶ cache folder ─ pytest, llama_plugin ─▶ rows of llama-server ─┐
                                     │ starts LLAMA_SERVER_BIN_PATH          └ what it passes  ├─ judge ─▶ Report
                                     ▼                                            ▼            │
                                 llama_launcher                           rows of Shepherd ────┘

Both get the same models: stories260K, which most tests name, and stand-ins with its weights for models of several GB.
A case applies if llama-server passes it here, unless Shepherd leaves its subject out on purpose; the others are not run
against Shepherd. Tests that their authors mark as slow run too. The real program is what `bench/rig/llama_tools.py`
builds from the same source as our library. It takes about half an hour on two cores.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import platformdirs
from suites.llama_launcher import ADAPTER, SPLIT
from suites.random_models import write_chat_model, write_embedding_model
from suites.report import FOLDER, Report, Row
from suites.stories_model import has_stories, write_stories_model
from suites.venv import CACHE, python_of, rows_of
from tests.unit.engine.adapter_files import write_lora

from shepherd.models.gguf import read_header

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
BENCHMARKS = Path(platformdirs.user_cache_dir("shepherd-bench"))
STORIES = CACHE / "stories"
NOT_PASSED = "llama-server does not pass it with these models: "
LEFT_OUT = (
    (r"test_router|unit/test_stream", "its router mode; here a configuration file names the models"),
    (r"test_mcp_servers|test_tools_builtin|test_proxy|test_cors_proxy", "what its web page needs; MCP here is /mcp"),
    (r"test_no_ui|test_access_static_assets", "its web page"),
)
"""By a pattern in the id of a case, what Shepherd leaves out on purpose."""
WHY = (
    (r"test_cors_options", "no web page is let in that the operator does not name; llama-server lets in all"),
    (
        r"test_cors_origins_localhost_reflects|test_cors_origins_defaults",
        "names of headers are in small letters here, as HTTP allows; the test finds them in capitals only",
    ),
    (
        r"test_cors_origins_localhost_rejects",
        "a page of another machine gets status 400, unless `[server] origins` names it; the test wants 200, "
        "without the header that lets it in",
    ),
    (
        r"tool_result_with_image",
        "a model that sees no images gets a note in place of a tool's image; the test wants status 500",
    ),
    (
        r"vision_format",
        "an image for a model that sees none is the client's mistake, status 400; the test wants status 500",
    ),
    (r"test_speculative", "there are no draft models"),
    (r"test_anthropic_empty_messages", "a request without messages is refused, as by Anthropic"),
    (r"stream_with_llama_telemetry", "an answer cut off by its limit ends with response.incomplete, as OpenAI's"),
    (r"test_kv_keep_only_active", "it reads llama-server's log"),
    (r"test_slot_save", "conversations are kept and restored by themselves, not over HTTP"),
    (r"test_gcp_predict", "Vertex AI's form of a request (/predict), for servers in Google's cloud"),
    (r"test_server_model_aliases_and_tags", "other names of a model are routes here, each listed as a model; no tags"),
    (
        r"test_server_sleep_read_only",
        "two scrapes are never equal: /metrics also tells the time and memory of the process",
    ),
    (r"test_chat_template_assistant_prefill\[prefill1", "nothing is put between the texts of one answer"),
    (r"n_probs_post_backend", "two tokens of equal probability (to five digits) change places in the second answer"),
)
"""What a case wants that is not here, if it fails; it counts as failed all the same."""

Rows = dict[str, tuple[str, str]]
"""Outcome and reason of each case."""


def run(*selection: str) -> Report:
    """All their tests, or those of `selection`. Raises: `RuntimeError` without their source, llama-server or `uv`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source, program = _source(), llama_server()
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        bench = _Bench(Path(name), source)
        theirs = bench.run(str(program), selection or ("unit",))
        ours = bench.run("shepherd", [case for case, (outcome, _) in theirs.items() if outcome == "passed"])
    weights = "stories260K" if has_stories(STORIES) else "random weights"
    title = f"llama-cpp-python {version('llama-cpp-python')}, models with {weights}"
    return Report("llama_cpp", "theirs", title, [judge(case, row, ours.get(case)) for case, row in theirs.items()])


def llama_server() -> Path:
    """The program. Raises: `RuntimeError` where it is not built."""
    program = BENCHMARKS / "build" / "bin" / "llama-server"
    if not program.exists():
        raise RuntimeError("llama-server is not here; python -m bench.rig.llama_tools builds it")
    return program


def judge(case: str, theirs: tuple[str, str], ours: tuple[str, str] | None) -> Row:
    """What a case came to, by the rows of llama-server and of Shepherd; None = not run."""
    outcome, why = theirs
    if outcome != "passed":
        return Row(case, "not applicable", why if outcome == "not applicable" else NOT_PASSED + why, outcome)
    if ours is None:
        return Row(case, "failed", "it was not run", outcome)
    # Where llama-server's words are those of the test, so must be ours.
    if ours[0] == "passed" and (not ours[1] or why):
        return Row(case, "passed", "", outcome)
    for pattern, reason in LEFT_OUT:
        if re.search(pattern, case):
            return Row(case, "not applicable", reason, outcome)
    found = next((reason for pattern, reason in WHY if re.search(pattern, case)), None)
    return Row(case, "failed", f"{found}: {ours[1]}" if found else ours[1], outcome)


class _Bench:
    """A copy of their tests, with models, that runs against one program after the other."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder = folder
        self._models, self._work, self._tmp = (folder / name for name in ("gguf", "llama.cpp", "tmp"))
        for made in (self._models, self._work / TESTS.parent, self._tmp):
            made.mkdir(parents=True)
        (self._work / "models").symlink_to(source / "models")
        shutil.copytree(source / TESTS, self._work / TESTS)
        _write_models(source / "models", self._models)

    def run(self, program: str, selection: Sequence[str]) -> Rows:
        """The rows of these tests, or cases, against a program: "shepherd", or the path of llama-server."""
        cases, launcher = (self._folder / f"{Path(program).name}-{name}" for name in ("cases", "run"))
        environment = {
            "LLAMA_SERVER_BIN_PATH": str(launcher),
            "LLAMA_CACHE": str(self._tmp),
            "PORT": str(_free_port()),
            "SLOW_TESTS": "1",
            "SHEPHERD_SUITE_MODELS": str(self._models),
            "SHEPHERD_SUITE_TEMPLATES": str(self._work / "models" / "templates"),
            "SHEPHERD_SUITE_TMP": str(self._tmp),
        }
        if any("::" in chosen for chosen in selection):
            cases.write_text("\n".join(selection), encoding="utf-8")
            environment["SHEPHERD_SUITE_CASES"] = str(cases)
        files = dict.fromkeys(chosen.partition("::")[0] for chosen in selection)
        words = ["-p", "suites.llama_plugin", "--timeout=60", "--tb=no", "--show-capture=no", *files]
        tests = self._work / TESTS
        with self._started(program, launcher, environment):
            rows = rows_of(python_of("llama", *NEEDS), *words, cwd=tests, environment=environment, paths=[tests])
        return {row.case: (row.outcome, row.why) for row in rows}

    @contextmanager
    def _started(self, program: str, launcher: Path, environment: Mapping[str, str]) -> Iterator[None]:
        """The program that the tests start is in its place during the block."""
        start = [sys.executable, str(FOLDER / "llama_launcher.py"), program]
        ours = {**os.environ, **environment, "PYTHONPATH": f"{FOLDER.parent / 'src'}:{FOLDER.parent}"}
        if program != "shepherd":
            _write_script(launcher, start, ours)
            yield
            return
        socket_path = self._folder / "fork"
        _write_script(launcher, [sys.executable, "-S", str(FOLDER / "fork_server.py"), str(socket_path)], ours)
        with open(self._folder / "shepherd.log", "w", encoding="utf-8") as log:
            # In the folder of the tests, which name files from there.
            here = self._work / TESTS
            server = subprocess.Popen([*start, str(socket_path)], cwd=here, env=ours, stdout=log, stderr=log)
        try:
            while not socket_path.exists() and server.poll() is None:
                time.sleep(0.1)
            yield
        finally:
            server.kill()
            server.wait()


def _write_script(path: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    words = " ".join(f'"{word}"' for word in command)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{environment["PYTHONPATH"]}" exec {words} "$@"\n')
    path.chmod(0o755)


def _source() -> Path:
    """llama.cpp's source, as benchmarks fetch it, or as uv unpacked it to build the library."""
    unpacked = Path(platformdirs.user_cache_dir("uv")).glob("sdists-v*/pypi/llama-cpp-python/*/*/src/vendor/llama.cpp")
    for path in (BENCHMARKS / "src", *unpacked):
        if (path / TESTS / "conftest.py").exists():
            return path
    raise RuntimeError("the source of llama.cpp is not here; python -m bench.rig.llama_tools fetches it")


def _write_models(vocabularies: Path, target: Path) -> None:
    llama, is_trained = vocabularies / "ggml-vocab-llama-spm.gguf", has_stories(STORIES)
    for name, fim, n_ctx in (("chat", False, 2048), ("infill", True, 2048), ("large", False, 32768)):
        if is_trained:
            write_stories_model(STORIES, target / f"{name}.gguf", fim=fim, n_ctx=n_ctx)
        else:
            write_chat_model(llama, target / f"{name}.gguf", fim=fim, n_ctx=n_ctx)
    if is_trained:
        write_stories_model(STORIES, target / f"{SPLIT.partition('-0000')[0]}.gguf", parts=3)
    write_lora(target / ADAPTER, read_header(target / "chat.gguf"), seed=1)
    for name, ranks in (("bert", False), ("rank", True)):
        write_embedding_model(vocabularies / "ggml-vocab-bert-bge.gguf", target / f"{name}.gguf", ranks=ranks)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
