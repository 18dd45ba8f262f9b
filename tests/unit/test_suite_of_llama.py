"""What a case of another project's suite comes to, where llama-server is the control, and what the page says of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from suites import langchain
from suites.llama_cpp import judge
from suites.llama_launcher import configuration, with_some_model
from suites.report import PAGE, Outcome, Report, Row, page, stored

ANTHROPIC, CORS = "unit/test_compat_anthropic.py", "unit/test_security.py::test_cors_origins_localhost"
Pair = tuple[Outcome, str]
"""With the reason."""
PASSED: Pair = ("passed", "")
OTHER_WORDS: Pair = ("passed", "the words are not those of the test")
FAILED: Pair = ("failed", "assert 1")


@pytest.mark.parametrize(
    ("case", "theirs", "ours", "outcome", "why"),
    [
        ("unit/test_a.py::test_a", PASSED, PASSED, "passed", ""),
        ("unit/test_a.py::test_a", OTHER_WORDS, OTHER_WORDS, "passed", ""),
        ("unit/test_a.py::test_a", OTHER_WORDS, PASSED, "passed", ""),
        ("unit/test_a.py::test_a", PASSED, OTHER_WORDS, "failed", "words"),
        ("unit/test_a.py::test_a", PASSED, FAILED, "failed", "assert 1"),
        ("unit/test_a.py::test_a", PASSED, None, "failed", "not run"),
        ("unit/test_a.py::test_a", FAILED, None, "not applicable", "llama-server does not pass it with these models"),
        ("unit/test_a.py::test_a", ("not applicable", "it skips itself"), None, "not applicable", "it skips itself"),
        ("unit/test_router.py::test_a", PASSED, FAILED, "not applicable", "router"),
        ("unit/test_router.py::test_a", PASSED, PASSED, "passed", ""),
        ("unit/test_speculative.py::test_a", PASSED, FAILED, "failed", "there are no draft models: assert 1"),
        (f"{ANTHROPIC}::test_anthropic_vision_format_accepted", PASSED, FAILED, "failed", "the client's mistake"),
        (f"{ANTHROPIC}::test_anthropic_tool_result_with_image", PASSED, FAILED, "failed", "a note in place of"),
        (f"{CORS}_rejects[http://evil.com]", PASSED, FAILED, "failed", "a page of another machine gets status 400"),
        (f"{CORS}_reflects[http://localhost]", PASSED, FAILED, "failed", "in capitals only"),
        (f"{CORS}_reflects[http://localhost]", PASSED, PASSED, "passed", ""),
        ("unit/test_slot_save.py::test_a", PASSED, FAILED, "failed", "not over HTTP: assert 1"),
    ],
)
def test_a_case_counts_if_llama_server_passes_it(
    case: str, theirs: Pair, ours: Pair | None, outcome: str, why: str
) -> None:
    row = judge(case, theirs, ours)
    assert (row.outcome, row.reference) == (outcome, theirs[0])
    assert why in row.why if why else not row.why


def test_where_a_test_starts_a_router_ours_starts_with_a_model(tmp_path: Path) -> None:
    def started(flags: dict[str, str]) -> str:
        written = configuration(with_some_model({"--port": "1", **flags}, Path("/models")), tmp_path)
        (model,) = tomllib.loads(written)["models"].values()
        return str(model["path"])

    assert started({"--cors-origins": "localhost"}) == "/models/chat.gguf"
    assert started({"--model": "/models/rank.gguf"}) == "/models/rank.gguf"


WORDS: Pair = ("failed", "AssertionError: assert {'input': 0} == {'input': 3}")
"""A failure by the model's words."""
OTHER: Pair = ("failed", "openai.InternalServerError: no")
SKIPPED: Pair = ("not applicable", "no audio")


@pytest.mark.parametrize(
    ("name", "ours", "right", "theirs", "outcome"),
    [
        ("TestOpenAI", PASSED, None, OTHER, PASSED),
        ("TestOpenAI", OTHER, None, OTHER, OTHER),
        ("TestOpenAI", WORDS, PASSED, WORDS, ("not applicable", "llama-server fails too")),
        ("TestOpenAI", WORDS, PASSED, OTHER, ("not applicable", f"for another reason: {OTHER[1]}")),
        ("TestOpenAI", WORDS, PASSED, PASSED, ("failed", "llama-server passes it with the same model")),
        ("TestOpenAI", WORDS, OTHER, WORDS, ("failed", "with the right words, too")),
        ("TestOllama", WORDS, PASSED, None, ("not applicable", "llama-server has no such protocol")),
        ("TestOllama", OTHER, None, None, OTHER),
        ("TestOpenAI", SKIPPED, None, SKIPPED, SKIPPED),
    ],
)
def test_a_case_that_fails_by_the_models_words_does_not_apply_if_llama_server_does_not_pass_it_with_the_same_model(
    name: str, ours: Pair, right: Pair | None, theirs: Pair | None, outcome: Pair
) -> None:
    case = f"langchain_cases.py::{name}::test_a"
    rows = [{case: Row(case, *pair)} if pair else {} for pair in (ours, right, theirs)]
    (row,) = langchain.judged([*rows[0].values()], rows[1], rows[2])
    assert (row.outcome, row.reference) == (outcome[0], theirs[0] if theirs else "")
    assert outcome[1] in row.why if outcome[1] else not row.why


def test_the_page_has_a_table_for_others_tests_and_one_for_our_cases_over_their_libraries() -> None:
    whys = {"d": "no", "e": "no", "f": "skipped: by day", "g": "skipped: by night", "h": "alone: so"}
    rows = [Row("a", "passed", "", "passed"), Row("b", "failed", "one day", "passed"), Row("c", "failed", "x|y")]
    reports = [
        Report("theirs", "theirs", "1.0", rows, "2026-01-02"),
        Report("more", "theirs", "2.0", [Row(case, "not applicable", why) for case, why in whys.items()], "2026-01-03"),
        Report("ours", "ours", "3.0", [Row("e", "passed")], "2026-01-04"),
    ]
    head, first, second, reasons = re.split(
        "^## (?:Tests|Cases|theirs: what fails).*$", page(reports), flags=re.MULTILINE
    )
    assert head.startswith("# Conformance\n")
    assert [line for line in first.splitlines() if line.startswith("|")] == [
        "| suite | version | run on | llama-server | passed | failed | not applicable |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
        "| theirs | 1.0 | 2026-01-02 | 2 | 1 | 2 | 0 |",
        "| more | 2.0 | 2026-01-03 |  | 0 | 0 | 5 |",
        "| **together** |  |  |  | 1 | 2 | 5 |",
    ]
    assert [line for line in second.splitlines() if line.startswith("|")] == [
        "| suite | version | run on | passed | failed | not applicable |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| ours | 3.0 | 2026-01-04 | 1 | 0 | 0 |",
        "| **together** |  |  | 1 | 0 | 0 |",
    ]
    assert "* one day\n  * `b`" in reasons
    assert "* x/y\n  * `c`" in reasons
    assert "## more: what does not apply\n\n* no (2)\n* skipped (2)\n* alone: so (1)\n" in reasons


def test_the_stored_results_say_whose_they_are_and_why_a_case_is_not_passed() -> None:
    assert {report.name for report in stored() if report.whose == "ours"} == {
        "ai_sdk", "js_sdks", "python_clients", "vllm",
    }  # fmt: skip
    rows = [row for report in stored() for row in report.rows]
    assert {row.outcome for row in rows} <= {"passed", "failed", "not applicable"}
    assert not [row.case for row in rows if row.outcome != "passed" and not row.why]


def test_the_page_is_that_of_the_stored_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(stored())
