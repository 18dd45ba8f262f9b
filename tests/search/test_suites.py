"""What the suites of other projects make of their results (`suites`), on planted ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvicorn
from schemathesis import GenerationMode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from suites import mcp, openapi, openresponses
from suites.report import FOLDER, all_suites, main
from suites.venv import rows_of
from tests.own_server import in_thread


def test_every_suite_is_found_and_no_file_that_only_a_foreign_environment_can_import() -> None:
    assert {"langchain", "llama_cpp", "mcp", "openapi", "python_clients"} <= set(all_suites())
    for name in ("langchain_cases", "llama_plugin", "report"):
        assert (FOLDER / f"{name}.py").exists()
        assert name not in all_suites()


def test_a_suite_that_cannot_be_run_ends_the_command_with_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="earlier run: no_such_suite"):
        main(["no_such_suite"], tmp_path / "page.md")
    assert "no_such_suite: cannot be run here" in capsys.readouterr().err
    assert (tmp_path / "page.md").read_text().startswith("# Conformance")


def test_an_answer_that_the_document_does_not_declare_is_found() -> None:
    answers: dict[str, Callable[[], object]] = {"/right": lambda: 1, "/wrong": lambda: "one", "/broken": lambda: 1 // 0}
    ok = {"description": "", "content": {"application/json": {"schema": {"type": "integer"}}}}
    document = {
        "openapi": "3.1.0", "info": {"title": "", "version": ""},
        "paths": {path: {"get": {"responses": {"200": ok}}} for path in answers},
    }  # fmt: skip

    async def answer(request: Request) -> Response:
        path = request.url.path
        return JSONResponse(document if path == "/openapi.json" else answers[path]())

    app = Starlette(routes=[Route(path, answer) for path in (*answers, "/openapi.json")])
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")

    async def run(on_ready: Callable[[int], None]) -> None:
        listener = config.bind_socket()
        listener.listen()  # from now on connections wait; before, they are refused
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        on_ready(listener.getsockname()[1])
        try:
            await serving
        finally:
            listener.close()

    with in_thread(run) as port:
        rows = openapi.sent(f"http://127.0.0.1:{port}", GenerationMode.POSITIVE)
    assert {row.case: row.outcome for row in rows} == {
        "valid: GET /right": "passed", "valid: GET /wrong": "failed", "valid: GET /broken": "failed",
    }  # fmt: skip


def test_a_check_of_the_mcp_suite_that_fails_or_is_not_there_is_a_failure(tmp_path: Path) -> None:
    for name, first, second in (
        ("good", "SUCCESS", "SUCCESS"),
        ("bad", "SUCCESS", "FAILURE"),
        ("server-sse-polling", "INFO", "WARNING"),
    ):
        (tmp_path / name).mkdir()
        checks = [{"id": "a", "status": first}, {"id": "b", "status": second, "description": "d"}]
        (tmp_path / name / "checks.json").write_text(json.dumps(checks))
    nothing = "the suite wrote no check that succeeded"
    names = ("good", "bad", "nothing", "tasks-get", "resources-subscribe", "server-sse-polling")
    found = [mcp.judged("server", "2025-11-25", name, tmp_path) for name in names]
    assert [(row.outcome, row.why) for row in found] == [
        ("passed", ""), ("failed", "b: d"), ("failed", nothing), ("not applicable", mcp.NO_TASKS),
        ("failed", f"{mcp.NO_SUBSCRIPTIONS}: {nothing}"),
        ("failed", f"{mcp.WHY['server-sse-polling']}: b: d"),
    ]  # fmt: skip


def test_a_result_of_open_responses_that_failed_or_is_not_there_is_a_failure() -> None:
    bad = {"status": "failed", "errors": ["no id", "no type"]}
    found = [openresponses.judged("a", each) for each in ({"status": "passed", "errors": []}, bad, None)]
    assert [(row.outcome, row.why) for row in found] == [
        ("passed", ""), ("failed", "no id; no type"), ("failed", "the runner has no result"),
    ]  # fmt: skip


PLANTED = """
import pytest

def test_good():
    pass

def test_bad():
    assert {'input': 0} == {'input': 3}

def test_aside():
    pytest.skip("no such thing")
"""


def test_the_outcome_of_each_foreign_test_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    rows = rows_of(sys.executable, "-p", "no:xdist", "test_planted.py", cwd=tmp_path, environment={})
    assert {row.case.partition("::")[2]: row.outcome for row in rows} == {
        "test_good": "passed", "test_bad": "failed", "test_aside": "not applicable",
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="ran no test"):
        rows_of(sys.executable, "--no-such-option", cwd=tmp_path, environment={})
