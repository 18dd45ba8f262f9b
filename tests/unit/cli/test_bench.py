"""`shepherd bench`: a real run over the embedded model, another server, servers that are broken, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import run
from tests.providers_replay import Answer, Way
from tests.providers_thread import replaying_apart

from shepherd.cli import measuring

pytestmark = pytest.mark.model

JSON = {"content-type": "application/json"}


def chat(body: bytes, status: int = 200, **way: Any) -> Answer:
    return Answer("/v1/chat/completions", body, status, JSON, way=Way(**way))


def models(body: bytes, status: int = 200) -> Answer:
    return Answer("/v1/models", body, status, JSON, "GET")


def bench(folder: Path, *options: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    file = folder / "shepherd.toml"
    file.write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    env |= {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    return run("bench", "--config", file, "--threads", "1", *options, cwd=folder, env=env)


STREAM = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}], "model": "there"}\n\n'
WHOLE = json.dumps(
    {"model": "there", "choices": [{"index": 0, "message": {"content": "1, 2, 3"}, "finish_reason": "length"}],
     "usage": {"prompt_tokens": 9, "completion_tokens": 32, "total_tokens": 41}}
).encode()  # fmt: skip
THERE = models(b'{"data": [{"id": "there"}]}')
NO_MODEL = b'{"error": {"message": "The model `there` does not exist", "code": "model_not_found"}}'
REFUSED = chat(b'{"error": {"message": "unknown field ignore_eos"}}', 400)
STALLED = "it has stalled, or needs a longer limit (idle_s of [network])"
AT_ONCE = "does not stream: an answer of 32 tokens comes in one piece, so there is no first token to measure"
NAME_ONE = "name one with --against-model"


BROKEN: dict[str, tuple[list[Answer], str]] = {
    "401": ([models(b'{"error": "key"}', 401)], "refuses access; give its key with --api-key KEY"),
    "no list": ([models(b"{}", 404)], f"lists no models (/v1/models is not there); {NAME_ONE}"),
    "empty list": ([models(b'{"data": []}')], f"lists no model; {NAME_ONE}"),
    "two models": ([models(b'{"data": [{"id": "a"}, {"id": "b"}]}')], f"lists 2 models (a, b); {NAME_ONE}"),
    "a page": ([models(b"<html>hello</html>")], "the answer is no JSON object"),
    "404": ([THERE, chat(NO_MODEL, 404)], "does not answer for model 'there'"),
    "no JSON": ([THERE, chat(b"hello")], "the answer breaks its protocol"),
    "a page as answer": ([THERE, chat(b"<html>proxy</html>")], "it is a page"),
    "no stream": ([THERE, *[chat(WHOLE)] * 3], AT_ONCE),
    "stalls": ([THERE, chat(STREAM, hang_at=len(STREAM))], STALLED),
    "never begins": ([THERE, chat(STREAM, hang_at=-1)], STALLED),
    "breaks": ([THERE, chat(STREAM, break_at=20)], "has closed the connection in the middle of its answer"),
    "500": ([THERE, chat(b'{"error": {"message": "out of beer"}}', 500)], "out of beer"),
    "ignore_eos is refused": ([THERE, REFUSED, *[chat(WHOLE)] * 3], AT_ONCE),
}


@pytest.mark.grid(0.4)
@pytest.mark.parametrize(("answers", "message"), BROKEN.values(), ids=BROKEN)
def test_a_server_that_cannot_be_measured_gets_one_sentence(
    answers: list[Answer], message: str, tmp_path: Path
) -> None:
    with replaying_apart(*answers) as server:
        done = bench(tmp_path, "--against", server.url, text="[network]\nidle_s = 0.5\nread_s = 20\n")
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert line.startswith("shepherd: ")
    assert server.url.removeprefix("http://") in line
    assert message in line
    assert done.stdout == ""


def test_a_refused_connection_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = bench(tmp_path, "--against", f"127.0.0.1:{closed.getsockname()[1]}")
    assert done.returncode == 1
    assert "no connection to 127.0.0.1:" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--budget", "soon"), 1, "'soon' is no budget; write seconds, or a text such as 90s or 5m"),
        (("--json", "nowhere/report.json"), 1, "nowhere/report.json: cannot be written: its folder does not exist"),
        (("--svg", "nowhere/picture.svg"), 1, "nowhere/picture.svg: cannot be written: its folder does not exist"),
        (("--compare", "nowhere.json"), 1, "nowhere.json: cannot be read: No such file or directory"),
        (("--compare", "shepherd.toml"), 1, "shepherd.toml: is no report"),
        (("--against", "http://a b"), 2, "'http://a b' is no address of a server"),
        (("--compare", "x.json", "--against", "localhost"), 2, "--compare and --against exclude each other"),
        (("--against-model", "m"), 2, "--against-model needs --against URL"),
        (("--model", "openai/gpt-4o"), 1, "there is no model of this machine that answers"),
        (("--model", "nowhere.gguf"), 1, "nowhere.gguf"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    options: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    done = bench(tmp_path, *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert "measuring" not in done.stderr


def test_a_file_that_cannot_be_written_is_found_out_before_the_work(tmp_path: Path) -> None:
    from shepherd.core import ConfigError

    measuring.check_writable(None, tmp_path / "new.json")
    with pytest.raises(ConfigError, match="cannot be written: it is a folder"):
        measuring.check_writable(tmp_path)
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(ConfigError, match="permission denied"):
            measuring.check_writable(tmp_path / "new.json")
