"""LangChain's standard tests of chat models (`langchain-tests`), against our server with the embedded model.

    all cases ─▶ Shepherd ─────▶ those that fail by the model's words ─▶ a script with the right words ─┐
        └──────▶ llama-server, the control, with the same model ───────────────────────────────────────┴▶ judged

The embedded model has five million weights: it copies no number from a question, and rarely ends a string. A case that
asks for certain words is not applicable if it passes with the right words, which a script says, and if llama-server
does not pass it with this model. Ollama's protocol has no control: llama-server does not have it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.rig.sides import Setup, running
from suites.llama_cpp import llama_server
from suites.report import Report, Row
from suites.venv import python_of, rows_of_cases, version_in
from tests.own_server import in_thread, serving
from tests.scripted_service import ScriptedService
from tests.search.clients.script import Line, Use, performing

from shepherd.core import Request
from shepherd.models.catalog import embedded
from shepherd.server.app import create_app, serve

NEEDS = ("langchain-tests", "langchain-openai", "langchain-anthropic", "langchain-ollama", "pytest-timeout")
CASES = "langchain_cases.py"
MAX_TOKENS = 128
"""A bound, for the model rarely ends."""
SETTINGS = f"""
max_tokens = {MAX_TOKENS}
[memory]
database_path = "memory.db"
[models.lamb]
path = "embedded"
[models.ewe]
path = "embedded"
load = "demand"
"""
"""Two names of one model, for a call may name another than its client does."""
CONTROL = Setup(embedded(), n_ctx=0, llama=("--alias", "lamb,ewe", "-n", str(MAX_TOKENS)))
"""The same for llama-server; 0 = the context of the model."""
NO_CONTROL = "TestOllama"
"""Cases of a protocol that llama-server does not have."""
JOKE = {"setup": "Why is the cat 🐈 asleep?", "punchline": "It is a cat."}
WORDS = {
    r"assert \{'input': -?\d+\} == \{'input': 3\}": "the number in its call is not that of the question",
    r"Unicode characters not found in": "the name in its call is not that of the question",
    r"length limit was reached": "it does not end a string of the object before max_tokens",
    r"1 validation error for Joke": "it does not end a string of the object before max_tokens",
    r"Failed to parse Joke from completion \{": "the object has not the keys that the question asks for",
}
"""Failures that are the model's words, by what their message shows."""
PASSES = "with the right words the case passes"


def run() -> Report:
    """Their tests over OpenAI's chat, OpenAI's responses, Anthropic's messages and Ollama's chat.

    Raises: `RuntimeError` without llama-server or `uv`.
    """
    llama_server()
    python = python_of("langchain", *NEEDS)
    with tempfile.TemporaryDirectory() as name, serving(Path(name), SETTINGS) as url:
        rows = rows_of_cases(python, CASES, SHEPHERD_SUITE_URL=url)
    controlled = [row.case.partition("::")[2] for row in rows if NO_CONTROL not in row.case]
    with running("llama-server", CONTROL) as server:
        theirs = rows_of_cases(python, CASES, *controlled, SHEPHERD_SUITE_URL=f"http://127.0.0.1:{server.port}")
    right = []
    if tests := [row.case.partition("::")[2] for row in rows if _words(row)]:
        with _scripted() as url:
            right = rows_of_cases(python, CASES, *tests, SHEPHERD_SUITE_URL=url)
    title = f"langchain-tests {version_in(python, 'langchain-tests')}"
    return Report("langchain", "theirs", title, judged(rows, _by_case(right), _by_case(theirs)))


def judged(rows: list[Row], right: Mapping[str, Row], theirs: Mapping[str, Row]) -> list[Row]:
    """The rows of Shepherd, where a failure by the model's words may not apply.

    `right`: those that failed so, with the right words. `theirs`: the same cases against llama-server.
    """
    found = []
    for row in rows:
        control = None if NO_CONTROL in row.case else theirs[row.case]
        outcome, why = row.outcome, row.why
        if words := _words(row):
            if (again := right[row.case]).outcome != "passed":
                why = f"with the right words, too: {again.why}"
            elif control is None:
                outcome, why = "not applicable", f"{words}; {PASSES}; llama-server has no such protocol"
            elif control.outcome == "passed":
                why = f"llama-server passes it with the same model: {why}"
            else:
                alike = "too" if _words(control) else f"for another reason: {control.why}"
                outcome = "not applicable"
                why = f"{words}; {PASSES}; llama-server fails {alike}"
        found.append(Row(row.case, outcome, why, control.outcome if control else ""))
    return found


def _by_case(rows: list[Row]) -> dict[str, Row]:
    return {row.case: row for row in rows}


def _words(row: Row) -> str | None:
    """Which words of the model a failure shows, if it is one of those."""
    if row.outcome != "failed":
        return None
    return next((f"the embedded model's words: {why}" for each, why in WORDS.items() if re.search(each, row.why)), None)


@contextmanager
def _scripted() -> Iterator[str]:
    """The address of our server in front of a script that gives every case the words it asks for."""

    async def answer(on_ready: Callable[[int], None]) -> None:
        await serve(create_app(ScriptedService(performing(_right))), host="127.0.0.1", port=0, on_ready=on_ready)

    with in_thread(answer) as port:
        yield f"http://127.0.0.1:{port}"


def _right(request: Request) -> Line:
    """The call, or the object, that the question of a case asks for."""
    question = request.messages[-1].text
    match request.tools:
        case (tool, *_) if tool.name == "magic_function":
            return Use(tool.name, {"input": 3})
        case (tool, *_) if tool.name == "unicode_customer":
            return Use(tool.name, {"customer_name": question.split("'")[1], "description": "A company"})
        case (tool, *_):
            return Use(tool.name, JOKE)
    return json.dumps(JOKE, ensure_ascii=False)
