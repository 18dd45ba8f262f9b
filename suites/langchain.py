"""LangChain's standard tests of chat models (`langchain-tests`), against our server with the embedded model.

    all cases ─▶ embedded model ─▶ those that fail, by its words ─▶ a script with the right words ─▶ passed, failed
                                   those that fail otherwise ─▶ failed

The embedded model has five million weights: it copies no number from a question, and rarely ends a string. A case that
asks for certain words is sent again to the same server in front of a script that says them. A case that passes then is
not applicable to the embedded model; the server carries it well.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from suites.report import Report, Row
from suites.venv import python_of, rows_of_cases, version_in
from tests.own_server import in_thread, serving
from tests.scripted_service import ScriptedService
from tests.search.clients.script import Line, Use, performing

from shepherd.core import Request
from shepherd.server.app import create_app, serve

NEEDS = ("langchain-tests", "langchain-openai", "langchain-anthropic", "langchain-ollama", "pytest-timeout")
CASES = "langchain_cases.py"
SETTINGS = """
max_tokens = 128
[memory]
database_path = "memory.db"
[models.lamb]
path = "embedded"
[models.ewe]
path = "embedded"
load = "demand"
"""
"""A bound, for the model rarely ends; and two names of it, for a call may name another model than its client does."""
JOKE = {"setup": "Why is the cat 🐈 asleep?", "punchline": "It is a cat."}
WORDS = {
    r"assert \{'input': -?\d+\} == \{'input': 3\}": "the number in its call is not that of the question",
    r"Unicode characters not found in": "the name in its call is not that of the question",
    r"length limit was reached": "it does not end a string of the object before max_tokens",
    r"1 validation error for Joke": "it does not end a string of the object before max_tokens",
    r"Failed to parse Joke from completion \{": "the object has not the keys that the question asks for",
}
"""Failures that are the model's words, by what their message shows."""


def run() -> Report:
    """Their tests over OpenAI's chat, OpenAI's responses, Anthropic's messages and Ollama's chat."""
    python = python_of("langchain", *NEEDS)
    with tempfile.TemporaryDirectory() as name, serving(Path(name), SETTINGS) as url:
        rows = rows_of_cases(python, CASES, SHEPHERD_SUITE_URL=url)
    if tests := [row.case.partition("::")[2] for row in rows if _words(row)]:
        with _scripted() as url:
            rows = judged(rows, rows_of_cases(python, CASES, *tests, SHEPHERD_SUITE_URL=url))
    return Report("langchain", "theirs", f"langchain-tests {version_in(python, 'langchain-tests')}", rows)


def judged(rows: list[Row], right: list[Row]) -> list[Row]:
    """The rows, where a failure by the model's words does not apply; `right`: the same cases, with right words."""
    with_right = {row.case: row for row in right}
    found = []
    for row in rows:
        if words := _words(row):
            if (again := with_right[row.case]).outcome == "passed":
                row = Row(row.case, "not applicable", f"{words}; with the right words the case passes")
            else:
                row = Row(row.case, "failed", f"with the right words, too: {again.why}")
        found.append(row)
    return found


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
