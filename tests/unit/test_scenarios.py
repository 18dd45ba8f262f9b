"""What a user meets, in order, on the embedded model and a really started server: the acceptance scenarios.

The number in a test's name is the scenario's in the project's requirements. The terminal itself is in tests/unit/cli.
"""

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import command_line
from tests.in_time import becomes_true
from tests.own_server import serving

pytestmark = pytest.mark.model

HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
CHAT = "/v1/chat/completions"


def shepherd(
    *arguments: str, stdin: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return command_line.run("--threads", "1", *arguments, stdin=stdin, cwd=cwd, env={**os.environ, **variables})


def post(server: str, body: bytes | str | dict[str, Any], **headers: str) -> httpx2.Response:
    data = json.dumps(body) if isinstance(body, dict) else body
    return httpx2.post(
        server + CHAT, content=data, headers={"content-type": "application/json", **headers}, timeout=120
    )


# 1. Install and start without anything optional


FLAGS = [
    "--server", "--host", "--port", "--backend", "--model", "--config", "--context-size", "--enable-eviction",
    "--gpu-layers", "--verbose", "--log-level", "--enable-tools", "--disable-tools", "--list-tools", "--notools",
    "--nothink", "--system", "--prompt", "--json", "--version",
]  # fmt: skip


def test_1_help_lists_every_flag() -> None:
    done = shepherd("--help")
    assert done.returncode == 0
    assert [flag for flag in FLAGS if not re.search(rf"{flag}\b", done.stdout)] == []


def test_1_tools_can_be_listed() -> None:
    done = shepherd("--list-tools")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert re.search(r"\d\d tools available", done.stdout)
    assert {"read_file", "search_memory", "http_get", "json_path", "execute_command"} <= set(done.stdout.split())


# 2. First chat in the terminal


def test_2_the_banner_has_its_five_lines_and_the_end_of_input_leaves_with_status_0(lamb: Path) -> None:
    done = shepherd(str(lamb), stdin="Hello\n")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"Shepherd LLM System v\d+\.\d+(\.\d+)?", lines[0])
    assert re.fullmatch(r"Backend: llama\.cpp \(.+\)", lines[1])
    assert lines[2:4] == ["Model: lamb", "Context: 4096 tokens"]
    assert re.fullmatch(r"Tools: [1-9]\d* available", lines[4])
    assert any(line.startswith("> ") for line in lines)
    assert "Hello! How can I help you?" in done.stdout


# 3. The agent uses a tool; 4. dangerous tools stay off; 27. switching at run time


def test_3_the_embedded_model_looks_into_the_folder_and_reads_a_file(tmp_path: Path) -> None:
    for name in ("main.cpp", "README.md", "CMakeLists.txt"):
        (tmp_path / name).write_text("Hello, world.\n")
    asked = "List the files in .\nRead the file README.md\n"
    done = shepherd("--max-tokens", "200", "--temperature", "0", stdin=asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    calls = [line.removeprefix("> ") for line in lines if "[Tool Call: " in line]
    assert calls[0].startswith("[Tool Call: list_directory(")
    assert calls.count(calls[0]) == 1, "the same call is not repeated"
    assert "[Tool Result: CMakeLists.txt, main.cpp, README.md]" in lines
    assert '[Tool Call: read_file(path="README.md")]' in calls
    assert "[Tool Result: Hello, world.]" in lines
    assert "The file README.md says: Hello, world." in lines, "the answer is made of the result"


MINE = """
from shepherd.tools import Tool, tool

@tool
def ring(times: int) -> str:
    \"\"\"Ring the bell.\"\"\"
    return "ding " * times

class Shout(Tool):
    name, description = "shout", "Say it louder."
    parameters = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
    def execute(self, args):
        return {"said": args["text"].upper()}
"""


def test_3_tools_of_the_users_own_work_with_good_and_bad_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "shepherd.toml").write_text('[tools]\nfiles = ["mine.py"]\n')

    def run(name: str, arguments: str) -> tuple[int, str]:
        done = shepherd("tools", "run", name, arguments, cwd=tmp_path)
        return done.returncode, (done.stdout + done.stderr).strip()

    assert run("ring", '{"times": "2"}') == (0, "ding ding")
    assert run("shout", '{"text": "lamb"}') == (0, '{"said": "LAMB"}')
    status, said = run("ring", '{"times": "many"}')
    assert status == 1
    assert "'times'" in said
    assert "Traceback" not in said


def test_4_what_is_disabled_is_neither_listed_nor_carried_out(tmp_path: Path) -> None:
    text = '{"tools": {"enabled": ["filesystem", "http", "memory", "command"], "disabled": ["command_execution"]}}'
    (tmp_path / "shepherd.json").write_text(text)
    listed = shepherd("--list-tools", cwd=tmp_path).stdout
    on, _, off = listed.partition("tools off:")
    assert "read_file" in on
    assert "execute_command" not in on
    assert re.search(r"execute_command +disabled", off)
    done = shepherd("tools", "run", "execute_command", '{"command": "touch done"}', cwd=tmp_path)
    assert done.returncode == 1
    assert "disabled" in done.stdout + done.stderr
    chat = shepherd("--max-tokens", "120", stdin="Run the command touch done\n", cwd=tmp_path)
    assert chat.returncode == 0
    assert not (tmp_path / "done").exists()


def test_27_the_conversation_goes_on_with_another_model(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(
        'isolate = false\n[models.ann]\npath = "embedded"\n[models.bob]\npath = "embedded"\nload = "demand"\n'
    )
    lines = ["My name is Carl.", "/provider nope", "/provider next", "What is my name?", "/provider ann", "/model"]
    done = shepherd(stdin="\n".join(lines), cwd=tmp_path)
    assert done.stderr.count("Loading provider: bob") == 1
    assert done.stderr.count("Loading provider: ann") == 1
    assert "nope" in done.stdout + done.stderr
    assert "ann, bob" in done.stdout + done.stderr, "those that there are"
    assert re.search(r"> .*Carl", done.stdout.partition("What is my name")[2] or done.stdout)


# 5. Server starts and can be checked


CONFIGURED = {
    "toml": ("shepherd.toml", 'model = "{model}"\n[server]\nport = {port}\n', {}),
    "json": ("shepherd.json", '{{"model_path": "{model}", "server_mode": {{"enabled": true, "port": {port}}}}}', {}),
    "environment": (None, "", {"MODEL_PATH": "{model}", "SHEPHERD_PORT": "{port}"}),
}


@pytest.mark.parametrize("way", CONFIGURED)
def test_5_the_server_is_configured_by_files_and_environment(way: str, lamb: Path, tmp_path: Path) -> None:
    file, text, variables = CONFIGURED[way]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    facts = {"model": str(lamb), "port": port}
    if file is not None:
        (tmp_path / file).write_text(text.format(**facts))
    banner: list[str] = []
    environment = {**os.environ, **{name: value.format(**facts) for name, value in variables.items()}}
    command = ("--threads", "1", *([] if way == "json" else ["serve"]))
    done = command_line.serve(*command, visit=banner.extend, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert banner[-1] == f"Listening on: http://127.0.0.1:{port}", "loopback, and the configured port"


def test_5_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("context_size = 1024\n")
    show = ["config", "show", "--config", str(tmp_path / "c.toml")]
    assert "n_ctx = 1024" in shepherd(*show).stdout
    assert "n_ctx = 2048" in shepherd(*show, SHEPHERD_CONTEXT_SIZE="2048").stdout
    assert "n_ctx = 3072" in shepherd(*show, "--context-size", "3072", SHEPHERD_CONTEXT_SIZE="2048").stdout


# 6. The README's calls are run in tests/unit/test_docs.py


# 7. Streaming with the stock OpenAI client


# 16. Too long prompt


# 17. Broken requests


# 19 (in part). Background requests do not disturb


def test_19_background_requests_have_a_cache_of_their_own(tmp_path: Path, two_caches: str) -> None:
    with serving(tmp_path, two_caches) as address:

        def cached(model: str, text: str) -> int:
            body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4}
            answer = post(address, body).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        def main() -> dict[str, int]:
            seen: dict[str, int] = httpx2.get(f"{address}/v1/caches").json()["caches"]["main"]
            return seen

        cached("claude-sonnet", "A long conversation.")
        assert becomes_true(lambda: (seen := main())["used"] > 0 and not seen["live"])  # the figures follow the answer
        held = main()["used"]
        cached("Claude-3-5-HAIKU", "Name this conversation.")
        assert main()["used"] == held
        assert cached("claude-sonnet", "A long conversation.") > 10, "the main cache is as it was"
        refused = post(address, {"model": "gpt-4", "messages": HELLO})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert len(httpx2.get(f"{address}/v1/models").json()["data"]) == 1, "the weights are loaded once"


# 20 (in part). Parallel clients


# 21. Client goes away


# Keys (C33, O1), on a server of its own


def test_a_configured_key_is_required_and_health_is_public() -> None:
    def visit(banner: list[str]) -> None:
        address = banner[-1].removeprefix("Listening on: ")
        body = {"model": "lamb", "messages": HELLO}
        assert httpx2.get(f"{address}/health").status_code == 200
        refused = post(address, body)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert post(address, body, authorization="Bearer secret").status_code == 200
        assert post(address, body, **{"x-api-key": "secret"}).status_code == 200

    environment = {**os.environ, "SHEPHERD_API_KEY": "secret"}
    assert command_line.serve("serve", "--port", "0", "--threads", "1", visit=visit, env=environment).returncode == 0
