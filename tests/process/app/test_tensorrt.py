"""The tests of `tests/unit/app/test_tensorrt.py` that start programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line
from tests.fakes import model_directory
from tests.own_server import serving
from tests.unit.app.test_tensorrt import (
    SAYS,
    all_ended,
    fake,  # noqa: F401 - fixtures
    needs_mpirun,
    ranks,
)

TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\\nTools: <tools>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '</tools> Write <tool_call>{\"name\": NAME, \"arguments\": OBJECT}</tool_call><|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}"
    "{{ call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)  # fmt: skip


@pytest.fixture(scope="session")
def mpi() -> None:
    """Open MPI's library can be loaded: the library's import needs it, also of a single rank."""
    if subprocess.run((sys.executable, "-c", "import mpi4py.MPI"), capture_output=True, check=False).returncode:
        pytest.skip("the library of Open MPI cannot be loaded (apt install libopenmpi3)")


@pytest.mark.parametrize("kind", ["checkpoint", pytest.param("engine", marks=needs_mpirun)])
@pytest.mark.usefixtures("fake", "mpi")
def test_30_the_command_line_chats_with_a_directory(tmp_path: Path, kind: Any) -> None:
    folder = model_directory.make(tmp_path / "two", kind, pp=2 if kind == "engine" else 1, say=SAYS)
    with all_ended():
        done = command_line.run(
            "--backend", "tensorrt", "--model", folder, "--gpu-layers", "48", "--no-recall", cwd=tmp_path,
            stdin="Where is the cup?\nAnd now?\n",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Backend: TensorRT-LLM" in done.stdout
    assert "> Place a cup on the table.\n> Hello to you.\n" in done.stdout
    assert "gpu_layers" in done.stderr
    assert "TensorRT-LLM version" not in done.stdout, "the library's banner is not on our standard output"


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.usefixtures("fake", "mpi")
def test_the_surfaces_serve_it_with_tools_and_forms(tmp_path: Path) -> None:
    folder = model_directory.make(tmp_path / "hf", n_ctx=4096, say=[["weather", CALL], *SAYS])
    (folder / "chat_template.jinja").write_text(TOOLS)
    with all_ended(), serving(tmp_path, f'[models.m]\npath = "{folder}"\n') as url, httpx2.Client(timeout=60) as client:

        def post(path: str, **body: Any) -> Any:
            answer = client.post(f"{url}{path}", json={"model": "m", **body})
            assert answer.status_code == 200, answer.text
            return answer.json()

        asked = [{"role": "user", "content": "What is the weather?"}]
        function = {"name": "weather", "description": "It.", "parameters": PARAMETERS}
        chat = post("/v1/chat/completions", messages=asked, tools=[{"type": "function", "function": function}])
        (call,) = chat["choices"][0]["message"]["tool_calls"]
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("weather", {"city": "Oslo"})
        response = post("/v1/responses", input=asked, tools=[{"type": "function", **function}])
        assert [item["name"] for item in response["output"] if item["type"] == "function_call"] == ["weather"]
        message = post(
            "/v1/messages", messages=asked, max_tokens=200,
            tools=[{"name": "weather", "description": "It.", "input_schema": PARAMETERS}],
        )  # fmt: skip
        assert [part["input"] for part in message["content"] if part["type"] == "tool_use"] == [{"city": "Oslo"}]

        plain = [{"role": "user", "content": "Where is the cup?"}]
        first = post("/v1/chat/completions", messages=plain)
        assert first["choices"][0]["message"]["content"] == "Place a cup on the table."
        assert first["usage"]["prompt_tokens"] > 0
        more = [*plain, first["choices"][0]["message"], {"role": "user", "content": "And again, the cup?"}]
        usage = post("/v1/chat/completions", messages=more)["usage"]
        assert usage["prompt_tokens"] > first["usage"]["total_tokens"], "the whole conversation is sent each time"
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 32
        shape = {
            "type": "object",
            "properties": {"n": {"enum": [1, 2]}},
            "required": ["n"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": shape, "strict": True}}
        made = post("/v1/chat/completions", messages=plain, response_format=form, max_tokens=60)
        assert json.loads(made["choices"][0]["message"]["content"])["n"] in (1, 2)
        with client.stream("POST", f"{url}/v1/chat/completions", json={"messages": plain, "stream": True}) as stream:
            lines = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {")]
        pieces = [each["choices"][0]["delta"].get("content") or "" for each in lines if each["choices"]]
        assert "".join(pieces) == "Place a cup on the table."
        long = [{"role": "user", "content": "cup " * 5000}]
        refused = client.post(f"{url}/v1/chat/completions", json={"messages": long, "stream": True})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert client.get(f"{url}/health").json()["backend"] == "tensorrt"
        vectors = client.post(f"{url}/v1/embeddings", json={"model": "m", "input": "cup"})
        assert (vectors.status_code, vectors.json()["error"]["param"]) == (400, "model")
        ranks()[0].kill()
        answers = [client.post(f"{url}/v1/chat/completions", json={"messages": plain}).status_code for _ in range(2)]
        assert answers[-1] == 200, "the model is loaded again"
