"""`shepherd bench`: a real run over the embedded model, another server, servers that are broken, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from tests.command_line import run
from tests.in_time import becomes_true
from tests.own_server import in_thread, serving
from tests.providers_replay import Answer, ReplayServer, Way

from shepherd.cli import measuring
from shepherd.cli.command import bench_server
from shepherd.core import EngineError
from shepherd.measure.metrics import METRICS, THROUGH_HTTP

pytestmark = pytest.mark.model

ALL = {metric.name for metric in METRICS}
JSON = {"content-type": "application/json"}


@contextmanager
def answering(*answers: Answer) -> Iterator[str]:
    """The address of a server that plays these answers."""

    async def play(on_ready: Callable[[int], None]) -> None:
        replay = ReplayServer(answers)
        server = await replay.serve()
        on_ready(replay.port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            await replay.aclose()

    with in_thread(play) as port:
        yield f"http://127.0.0.1:{port}"


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


def test_a_real_run_measures_every_figure_and_touches_nothing(tmp_path: Path) -> None:
    found, picture = tmp_path / "report.json", tmp_path / "picture.svg"
    done = bench(tmp_path, "--budget", "4s", "--json", found, "--svg", picture)
    assert done.returncode == 0, done.stderr
    report = json.loads(found.read_text())
    figures = {row["name"]: row for row in report["figures"]}
    assert figures.keys() == ALL
    for row in figures.values():
        assert row["title"] in done.stdout
        if "samples" in row:  # a short time may be too short for an eviction
            assert row["low"] <= row["median"] <= row["high"]
            assert row["n"] == len(row["samples"]) > 0
    for name in ("prompt", "generation", "generation_deep", "first_cold", "first_warm", "archive", "search"):
        assert figures[name]["median"] > 0
    assert set(figures["computed_again"].get("samples", [0])) == {0}
    assert report["complete"] is True
    assert (report["model"]["name"], report["settings"]["n_threads"]) == ("lamb", 1)
    assert len(report["model"]["digest"]) == 16
    assert report["machine"]["processors"] == os.cpu_count()
    bars = ElementTree.fromstring(picture.read_text()).findall(".//{*}rect")
    assert len(bars) == sum("samples" in row for row in figures.values())
    assert not Path(os.environ["RAG_DB_PATH"]).exists(), "the memory of the user"
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    of_library = {path for path in left if path.startswith("cache/shepherd/") and path.endswith(".json")}
    assert left - of_library == {"shepherd.toml", "report.json", "picture.svg"}
    assert "medians; the true one is in the interval" in done.stderr
    # a regression is planted in the earlier report, far beyond what a busy machine does
    report["machine"] |= {"load": 0.0, "load_after": 0.0, "cpu": "another"}
    figures["archive"] |= {"samples": [1e9 + n for n in range(20)], "median": 1e9}
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(report))
    done = bench(tmp_path, "--budget", "1s", "--compare", earlier, "--svg", picture)
    assert done.returncode == 0, done.stderr
    assert "not the same as in the earlier report: machine cpu: another → " in done.stderr
    (row,) = (line for line in done.stdout.splitlines() if "stored durably" in line)
    assert "×0.00" in row
    assert ("worse" in row) == ("no verdict on changes: the machine was busy" not in done.stderr)
    assert "(earlier)" in picture.read_text()


def test_another_server_is_measured_in_turn(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with serving(tmp_path / "there", "context_size = 2048", api_keys=["sk-there-secret"]) as url:
        refused = bench(tmp_path, "--against", url)
        assert refused.returncode == 1
        assert f"{url} refuses access; give its key with --api-key KEY" in refused.stderr
        found, picture = tmp_path / "report.json", tmp_path / "picture.svg"
        key = ("--api-key", "sk-there-secret")
        done = bench(tmp_path, "--budget", "3s", "--against", url, *key, "--json", found, "--svg", picture)
        assert done.returncode == 0, done.stderr
    report, n_bars = json.loads(found.read_text()), 0
    for side in (report, report["against"]):
        figures = {row["name"]: row for row in side["figures"]}
        assert figures.keys() == set(THROUGH_HTTP)
        assert all(row["workload"]["through"] == "http" for row in figures.values())
        assert all(row["median"] > 0 for row in figures.values() if "missing" not in row)
        n_bars += sum("missing" not in row for row in figures.values())
    assert (report["against"]["url"], report["against"]["model"]) == (url, "lamb")
    assert "sk-there-secret" not in found.read_text() + done.stdout + done.stderr
    assert url.removeprefix("http://") in done.stdout
    assert len(ElementTree.fromstring(picture.read_text()).findall(".//{*}rect")) == n_bars >= 6
    assert not Path(os.environ["RAG_DB_PATH"]).exists()


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
    with answering(*answers) as url:
        done = bench(tmp_path, "--against", url, text="[network]\nidle_s = 0.5\nread_s = 20\n")
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert line.startswith("shepherd: ")
    assert url.removeprefix("http://") in line
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


def started(folder: Path, *options: str | Path) -> subprocess.Popen[bytes]:
    command: tuple[Any, ...] = (sys.executable, "-m", "shepherd", "bench", "--model", "embedded", "--threads", "1")
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen((*command, *options), stdout=PIPE, stderr=PIPE, env=env, cwd=folder)


def test_an_interrupt_shows_and_writes_what_is_known(tmp_path: Path) -> None:
    found = tmp_path / "report.json"
    with started(tmp_path, "--budget", "10s", "--json", found) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"measuring: dialogue" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert b"Traceback" not in err
    assert "generation, empty context" in out.decode()
    report = json.loads(found.read_text())
    assert report["complete"] is False
    assert {"prompt", "generation", "generation_deep"} <= {row["name"] for row in report["figures"]}
    assert "archive" not in {row["name"] for row in report["figures"]}
    assert list((tmp_path / "cache" / "shepherd").glob("bench-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_the_first_figure_writes_nothing(number: signal.Signals, tmp_path: Path) -> None:
    found = tmp_path / "report.json"
    with started(tmp_path, "--budget", "5m", "--json", found) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"measuring: engine" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, b""), err.decode()
    assert b"stopped before anything was measured" in err
    assert b"Traceback" not in err
    assert not found.exists()
    assert list((tmp_path / "cache" / "shepherd").glob("bench-*")) == []


def test_an_interrupt_ends_the_server_that_the_other_one_is_compared_with(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with (
        serving(tmp_path / "there", "context_size = 2048") as url,
        started(tmp_path, "--budget", "5m", "--against", url) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if b"in turn" in line:
                break
        watched = psutil.Process(process.pid)
        assert becomes_true(lambda: any("bench_server" in " ".join(each.cmdline()) for each in watched.children()))
        children = watched.children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err.decode()
        assert b"Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


async def test_a_server_of_this_model_that_cannot_start_says_why(tmp_path: Path) -> None:
    options = {"model": str(tmp_path / "nowhere.gguf")}
    with pytest.raises(EngineError, match=r"the server of this model did not start: .*nowhere\.gguf"):
        async with bench_server.running(options, 512, tmp_path, tmp_path):
            pass
