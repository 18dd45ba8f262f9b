"""Simon Willison's `llm`, with its models of OpenAI's shape, over chat and responses. Run by `python_clients.py`."""

# llm is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import llm
import openai
import pytest
from click.testing import CliRunner
from llm.cli import cli
from llm.default_plugins.openai_models import OpenAIEmbeddingModel
from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart
from suites.python_cases import ENDLESS, KEY, LONG, MANY, QUESTION, SHEEP, Cancelled, address, is_sheep

surfaces = pytest.mark.parametrize("surface", ["chat", "responses"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder whose `extra-openai-models.yaml` names our models, as its documentation describes."""
    models = [
        {
            "model_id": f"{surface}-{name}",
            "model_name": name,
            "api_base": f"{address(script=name == 'fake')}/v1",
            "api_key_name": "shepherd",
            "supports_tools": True,
            "supports_schema": True,
            "responses": surface == "responses",
        }
        for surface in ("chat", "responses")
        for name in ("lamb", "wolf", "fake", ENDLESS)
    ]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
    (tmp_path / "keys.json").write_text(json.dumps({"shepherd": KEY}))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))


def model(surface: str, name: str = "lamb") -> Any:
    return llm.get_model(f"{surface}-{name}")


def settings(surface: str, n: int = 40) -> dict[str, Any]:
    return {"temperature": 0, "max_tokens": n}


@surfaces
def test_chat(surface: str) -> None:
    """By the library, and by its command line."""
    answer = model(surface).prompt(QUESTION, stream=False, **settings(surface)).text()
    assert answer
    done = CliRunner().invoke(cli, ["-m", f"{surface}-lamb", "-o", "temperature", "0", "--no-stream", QUESTION])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == answer.strip()


@surfaces
def test_stream(surface: str) -> None:
    pieces = list(model(surface).prompt(QUESTION, **settings(surface)))
    assert len(pieces) > 3
    assert "".join(pieces) == model(surface).prompt(QUESTION, stream=False, **settings(surface)).text()


def test_forced_tool() -> None:
    pytest.skip("llm has no setting that forces a tool")


@surfaces
def test_tool_result(surface: str) -> None:
    history = [
        Message("user", [TextPart(text=QUESTION)]),
        Message("assistant", [ToolCallPart(name="look", arguments={"at": "hill"}, tool_call_id="call_1")]),
        Message("tool", [ToolResultPart(name="look", output="a sheep", tool_call_id="call_1")]),
    ]
    answer = model(surface).prompt(messages=history, tools=[llm.Tool.function(look)], **settings(surface))
    assert answer.text() or answer.tool_calls()


def look(at: str) -> str:
    """Look at a place."""
    return f"a sheep at {at}"


@surfaces
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls(surface: str, stream: bool) -> None:
    """A chain: two calls at once, their results, the last words."""
    chain = model(surface, "fake").chain(QUESTION, tools=[look], stream=stream)
    assert chain.text() == "Two sheep."
    first, _ = chain._responses
    assert [call.arguments["at"] for call in first.tool_calls()] == ["größe", "🐑"]


@surfaces
@pytest.mark.parametrize("stream", [False, True])
def test_schema(surface: str, stream: bool) -> None:
    answer = model(surface).prompt(QUESTION, schema=SHEEP, stream=stream, **settings(surface, 300))
    assert is_sheep(json.loads(answer.text()))


@surfaces
def test_usage(surface: str) -> None:
    answer = model(surface).prompt(QUESTION, stream=False, **settings(surface, 16))
    answer.text()
    usage = answer.usage()
    assert 0 < usage.output <= 16
    assert usage.input > 5


@surfaces
def test_usage_of_a_stream(surface: str) -> None:
    found = []
    for stream in (False, True):
        answer = model(surface).prompt(QUESTION, stream=stream, **settings(surface, 16))
        answer.text()
        found.append((answer.usage().input, answer.usage().output))
    assert found[0] == found[1]


@surfaces
def test_unknown_model(surface: str) -> None:
    """The library lets the SDK's typed error through; its command line shows the message."""
    with pytest.raises(openai.NotFoundError, match="wolf"):
        model(surface, "wolf").prompt(QUESTION).text()
    done = CliRunner().invoke(cli, ["-m", f"{surface}-wolf", QUESTION])
    assert done.exit_code == 1
    assert "wolf" in done.output


@surfaces
def test_wrong_key(surface: str) -> None:
    with pytest.raises(openai.AuthenticationError, match=r"(?i)key"):
        model(surface).prompt(QUESTION, key="wrong").text()


@surfaces
def test_overflow(surface: str) -> None:
    with pytest.raises(openai.BadRequestError, match="1024") as caught:
        model(surface).prompt(LONG, stream=False).text()
    assert caught.value.code == "context_length_exceeded"


@surfaces
def test_overflow_of_a_stream(surface: str) -> None:
    with pytest.raises(openai.BadRequestError, match="1024") as caught:
        model(surface).prompt(LONG).text()
    assert caught.value.code == "context_length_exceeded"


def test_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{address()}/v1")  # no setting of the library names an address for these
    one, two = OpenAIEmbeddingModel("sheep", "lamb").embed_batch(["a sheep", "a wolf"], key=KEY)
    assert len(one) == len(two) > 16
    assert one != two


@surfaces
async def test_async(surface: str) -> None:
    asked = llm.get_async_model(f"{surface}-lamb")
    whole = await asked.prompt(QUESTION, stream=False, **settings(surface)).text()
    assert "".join([piece async for piece in asked.prompt(QUESTION, **settings(surface))]) == whole


@surfaces
def test_cancelling(surface: str) -> None:
    """Ctrl-C in its command line."""
    program = [sys.executable, "-m", "llm", "-m", f"{surface}-{ENDLESS}", "-o", "max_tokens", str(MANY), QUESTION]
    with Cancelled(), subprocess.Popen(program, stdout=subprocess.PIPE) as running:
        assert running.stdout.read(10)
        running.send_signal(signal.SIGINT)
