"""Client libraries of Python, each driven through one list of checks, against our server with the embedded model.

    litellm_cases.py ─ pydantic_ai_cases.py ─ inspect_ai_cases.py ─ llm_cases.py     a test for each of CHECKS
      langchain_client_cases.py │     those that LangChain's own tests (`langchain.py`) leave out
                                ▼
    SHEPHERD_SUITE_URL       the embedded model: a key, a small context, and routes that know one model only
    SHEPHERD_SUITE_SCRIPT    our server in front of a script that calls two tools at once

No words are compared: a check looks at what the library makes of an answer. Each runs in an environment of its own.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from suites.langchain import NEEDS as LANGCHAIN
from suites.python_cases import BEYOND_LANGCHAIN, CHECKS, KEY, THINK
from suites.report import Report, Row
from suites.venv import python_of, rows_of_cases, version_in
from tests.own_server import in_thread, serving
from tests.scripted_service import ScriptedService

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)
from shepherd.server.app import create_app, serve


@dataclass(frozen=True, slots=True)
class Client:
    """One library."""

    needs: tuple[str, ...]
    """What is installed for it; the version of the first package is reported."""
    cases: str
    checks: tuple[str, ...] = CHECKS


CLIENTS = {
    "litellm": Client(("litellm==1.83.0",), "litellm_cases.py"),
    "pydantic_ai": Client(("pydantic-ai-slim[openai,anthropic]",), "pydantic_ai_cases.py"),
    "inspect_ai": Client(("inspect-ai", "openai", "anthropic"), "inspect_ai_cases.py", (*CHECKS, "compaction")),
    "llm": Client(("llm",), "llm_cases.py"),
    "langchain": Client(("langchain-openai", *LANGCHAIN), "langchain_client_cases.py", checks=BEYOND_LANGCHAIN),
}
"""By the name of the environment."""
SETTINGS = """
max_tokens = 64
[memory]
database_path = "memory.db"
[models.lamb]
path = "embedded"
[models.endless]
path = "embedded"
[models.endless.sampling]
ignore_eos = true
[caches.main]
model = "lamb"
n_ctx = 1024
[caches.endless]
model = "endless"
n_ctx = 4096
[caches.windowed]
model = "lamb"
n_ctx = 4096
window = "32x"
[[routes]]
match = "windowed"
cache = "windowed"
[[routes]]
match = "lamb*"
cache = "main"
[[routes]]
match = "endless"
cache = "endless"
"""
"""`endless` is the embedded model that never ends an answer by itself; `windowed` has a window of 131,072 tokens."""


def run() -> Report:
    """All checks of all libraries, in every protocol that a library knows us by."""
    rows, versions = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), SETTINGS, api_keys=(KEY,)) as url,
        _two_calls() as two,
    ):
        for name, client in CLIENTS.items():
            python = python_of(name, *client.needs, "pytest", "pytest-asyncio", "pytest-timeout")
            package = re.split(r"[\[=]", client.needs[0])[0]
            versions.append(f"{package} {version_in(python, package)}")
            found = rows_of_cases(python, client.cases, SHEPHERD_SUITE_URL=url, SHEPHERD_SUITE_SCRIPT=two)
            rows += [Row(_title(name, row.case), row.outcome, row.why) for row in found]
            made = {row.case.rpartition("::test_")[2].partition("[")[0] for row in found}
            rows += [
                Row(f"{name}: {check}", "failed", "the suite has no such test")
                for check in client.checks
                if check not in made
            ]
    return Report("python_clients", "ours", ", ".join(versions), rows)


def _title(client: str, case: str) -> str:
    """Such as `litellm: chat [anthropic]`."""
    test, _, surface = case.rpartition("::test_")[2].partition("[")
    return f"{client}: {test}{f' [{surface}' if surface else ''}"


@contextmanager
def _two_calls() -> Iterator[str]:
    """The address of our server in front of a script that calls `look` twice at once, and after the results talks."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        usage = Usage(input=10, output=5)
        yield Started("script", "script", usage)
        if request.messages[-1].text == THINK:
            yield ReasoningDelta("One sheep, and another.")
        if request.messages[-1].role == "tool" or not request.tools:
            yield TextDelta("Two sheep.")
            yield Finished("end", usage)
            return
        for id, arguments in (("call_one", '{"at":"größe"}'), ("call_two", '{"at":"🐑"}')):
            yield CallStarted(id, "look")
            yield CallDelta(arguments)
            yield CallEnded(ToolCall(id, "look", arguments))
        yield Finished("tool_calls", usage)

    async def answer(on_ready: Callable[[int], None]) -> None:
        await serve(create_app(ScriptedService(script)), host="127.0.0.1", port=0, on_ready=on_ready)

    with in_thread(answer) as port:
        yield f"http://127.0.0.1:{port}"
