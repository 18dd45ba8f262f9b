"""The tests of `tests/unit/app/test_tensorrt.py` that start programs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests import command_line
from tests.fakes import model_directory
from tests.own_app import app_of, loaded
from tests.own_server import serving
from tests.unit.app.test_tensorrt import (
    FAKES,
    SAYS,
    all_ended,
    fake,  # noqa: F401 - fixtures  # noqa: F401 - fixtures
    needs_mpirun,
    ranks,
)

from shepherd.agent.session import Session
from shepherd.app import tensorrt
from shepherd.app.app import App
from shepherd.core import ConfigError, EngineError, Evicted, TextDelta
from shepherd.memory.users import LOCAL

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
    assert done.stderr.splitlines().count("Loading provider: two") == 1, "each rank loads it, and one line says so"
    assert "TensorRT-LLM version" not in done.stdout, "the library's banner is not on our standard output"


@pytest.mark.usefixtures("fake")
def test_the_first_load_says_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLLM_DISABLE_MPI", "1")  # one rank, where Open MPI is not installed
    folder = model_directory.make(tmp_path / "two", say=SAYS)
    with all_ended():
        done = command_line.run("--model", folder, "--no-recall", cwd=tmp_path, stdin="Where is the cup?\n")
    assert done.stderr.splitlines() == ["Loading provider: two"], done.stderr
    assert "> Place a cup on the table.\n" in done.stdout


@needs_mpirun
@pytest.mark.parametrize(("launch", "gpus"), [("auto", ""), ("spawn", ""), ("auto", "gpus = 4\n")])
@pytest.mark.usefixtures("fake", "mpi")
async def test_a_checkpoint_runs_in_stages(tmp_path: Path, launch: str, gpus: str) -> None:
    folder = model_directory.make(tmp_path / "hf", say=SAYS)
    text = f'[models.hf]\npath = "{folder}"\n[tensorrt]\nlaunch = "{launch}"\nstages = 2\n{gpus}'
    with all_ended():
        async with running(tmp_path, text) as app:
            assert (await say(app.conversations.session(), "Where is the cup?"))[0] == "Place a cup on the table."
            if launch == "auto":
                assert len(ranks()) == (4 if gpus else 2)


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


@asynccontextmanager
async def running(folder: Path, text: str) -> AsyncIterator[App]:
    with all_ended():
        async with loaded(app_of(folder, text)) as app:
            yield app


async def say(session: Session, text: str) -> tuple[str, list[Evicted]]:
    said, evicted = "", []
    async with aclosing(session.chat(text)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                said += event.text
            elif isinstance(event, Evicted):
                evicted.append(event)
    return said, evicted


def environment(folder: Path, version: str = "1.2.1") -> Path:
    """The interpreter of a new environment that has the fake library and what it needs, but not Shepherd."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    used = folder / "used"
    used.mkdir()
    for name in ("numpy", "numpy.libs", "tokenizers", "mpi4py", "llguidance", "huggingface_hub"):
        for path in (Path(entry) / name for entry in sys.path):
            if path.is_dir() and not (used / name).exists():
                (used / name).symlink_to(path)
    (site / "used.pth").write_text(f"{used}\n{FAKES}\n")
    facts = site / f"tensorrt_llm-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
    return folder / "bin" / "python"


@needs_mpirun
async def test_the_library_may_be_in_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It demands versions of packages that Shepherd cannot use: its processes get Shepherd's code, and no more."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("TLLM_DISABLE_MPI", raising=False)
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    python = environment(tmp_path / "trtllm")
    assert (tensorrt.installed(None), tensorrt.installed(str(python))) == (None, "1.2.1")
    folder = model_directory.make(tmp_path / "two", "engine", pp=2, say=SAYS)
    text = f'[models.m]\npath = "{folder}"\n[tensorrt]\npython = "{python}"\n'
    async with running(tmp_path, text) as app:
        session = app.conversations.session(user=LOCAL)
        assert (await say(session, "Where is the cup?"))[0] == "Place a cup on the table."
        assert {each.cmdline()[0] for each in ranks()} == {str(python)}
    with pytest.raises(ConfigError, match=r"none/python is no Python that runs \(No such file"):
        tensorrt.installed(str(tmp_path / "none" / "python"))
    with pytest.raises(ConfigError, match=r"is no Python that runs \(it ends with an error"):
        tensorrt.installed("/bin/false")


@needs_mpirun
@pytest.mark.usefixtures("fake")
async def test_30_a_long_conversation_leaves_turns_out_and_keeps_them_in_the_archive(tmp_path: Path) -> None:
    folder = model_directory.make(tmp_path / "two", "engine", n_ctx=256, pp=2, say=SAYS)
    async with running(tmp_path, f'[models.m]\npath = "{folder}"\n') as app:
        session = app.conversations.session(user=LOCAL)
        left: list[Evicted] = []
        for number in range(12):
            said, evicted = await say(session, f"Where is cup number {number}?")
            assert said == "Place a cup on the table."
            left += evicted
        assert left, "turns have left"
        assert session.usage.cache_read > 0, "what stays is found in the library's cache"
        store = app.memory(LOCAL)
        assert store is not None
        assert any("cup number 0" in hit.user_message for hit in store.search("cup number 0"))


@needs_mpirun
@pytest.mark.usefixtures("fake")
async def test_27_the_old_model_has_ended_before_the_next_one_starts_and_a_failed_load_leaves_a_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shepherd")
    folders = {
        "one": model_directory.make(tmp_path / "one", "engine", pp=2, say=SAYS),
        "hf": model_directory.make(tmp_path / "hf", say=[["", "I am the other one."]]),
        "bad": model_directory.make(tmp_path / "bad", fail_load="CUDA out of memory"),
    }
    text = "".join(f'[models.{name}]\npath = "{folder}"\n' for name, folder in folders.items())
    async with running(tmp_path, text + '[models.lamb]\npath = "embedded"\n') as app:
        conversations = app.conversations
        session = conversations.session(user=LOCAL)
        await say(session, "Where is the cup?")
        old = ranks()
        assert len(old) == 2
        caplog.clear()
        facts = await conversations.switch(session, "next")
        assert (facts.model, facts.backend) == ("hf", "TensorRT-LLM")
        assert not any(process.is_running() for process in old)
        lines = [record.getMessage() for record in caplog.records]
        order = [next(n for n, line in enumerate(lines) if line.startswith(start))
                 for start in ("unloading model 'one'", "Loading provider: hf", "loading model 'hf'")]  # fmt: skip
        assert order == sorted(order)
        assert lines.count("Loading provider: hf") == 1
        assert (await say(session, "And you?"))[0] == "I am the other one."
        with pytest.raises(EngineError, match="CUDA out of memory"):
            await conversations.switch(session, "bad")
        assert (await say(session, "Still there?"))[0] == "I am the other one."
        facts = await conversations.switch(session, str(model_directory.make(tmp_path / "fresh", say=[["", "New."]])))
        assert (facts.model, (await say(session, "And you?"))[0]) == ("fresh", "New.")
        facts = await conversations.switch(session, "lamb")
        assert facts.backend.startswith("llama.cpp")
        assert not ranks()


@needs_mpirun
@pytest.mark.usefixtures("fake")
async def test_30_a_rank_that_is_killed_is_a_clear_error_and_the_prompt_stays(tmp_path: Path) -> None:
    folder = model_directory.make(tmp_path / "two", "engine", pp=2, say=SAYS)
    async with running(tmp_path, f'[models.m]\npath = "{folder}"\n[models.lamb]\npath = "embedded"\n') as app:
        session = app.conversations.session(user=LOCAL)
        await say(session, "Where is the cup?")
        victim = ranks()[1]
        victim.kill()
        psutil.wait_procs([victim], timeout=30)
        with pytest.raises(EngineError) as caught:
            await say(session, "And now?")
        assert "exit" in caught.value.message or "signal" in caught.value.message, caught.value.message
        assert "\n" not in caught.value.message
        assert app.health().status == "error"
        facts = await app.conversations.switch(session, "m")
        assert facts.model == "two"
        assert (await say(session, "Where is the cup?"))[0] == "Place a cup on the table."
        assert app.health().status == "ok"
        ranks()[0].kill()
        with pytest.raises(EngineError):
            await say(session, "And now?")
        await app.conversations.switch(session, "lamb")
        assert (await say(session, "Hello"))[0]
