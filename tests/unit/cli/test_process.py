"""The program as its users run it, on the embedded model, in pipes: in this process, and in one of its own where it is
the process that matters."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.rpc_worker import answering, devices, greeting, memory
from tests.own_server import serving

from shepherd.engine.llamacpp import rpc

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

    from shepherd.app.app import App

pytestmark = pytest.mark.model

EMBEDDED = "A tiny model, for trying things out; better: shepherd models suggest, shepherd pull, shepherd MODEL.gguf\n"


# -- one answer -------------------------------------------------------------------------------------------------------


def test_log_records_go_to_standard_error_with_their_level(home: Home) -> None:
    done = home.run("-p", "Hello", "--verbose")
    assert re.search(r"^\[INFO \] cache 'main': lamb\.gguf", done.stderr, re.MULTILINE)
    assert "DEBUG" not in done.stderr
    done = home.run("-p", "Hello", "--log-level", "debug")
    assert re.search(r"^\[DEBUG\] ", done.stderr, re.MULTILINE)
    assert "[" not in done.stdout


def test_no_prompt_at_all_is_a_usage_error(home: Home) -> None:
    done = home.run("chat", text=" \n")
    assert done.returncode == 2
    assert "There is no prompt" in done.stderr


def test_json_prints_one_event_per_line(home: Home) -> None:
    done = home.run("chat", "-p", "Hello", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert events[0]["event"] == "started"
    assert events[-1]["event"] == "finished"
    assert events[-1]["reason"] == "end"
    text = "".join(event["text"] for event in events if event["event"] == "text")
    assert text + "\n" == home.run("chat", "-p", "Hello").stdout
    assert events[-1]["usage"]["output"] > 1


def test_json_tells_an_error_as_its_last_event(home: Home) -> None:
    done = home.run("chat", "-p", "word " * 2000, "--json", "-c", "512")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["code"] == "context_length_exceeded"
    assert len(done.stderr.splitlines()) == 1


# -- a conversation in a pipe -----------------------------------------------------------------------------------------


def test_a_pipe_plays_one_turn_per_line_with_banner_and_prompts(home: Home) -> None:
    done = home.run(text="My name is Bob.\n\nWhat is my name?\n")
    assert (done.returncode, done.stderr) == (0, "")
    match = re.fullmatch(f"{home.banner}{EMBEDDED}> .+\n> > .*Bob.*\n> \n", done.stdout)
    assert match, done.stdout


def test_a_named_model_opens_with_exactly_five_lines(home: Home, lamb: Path) -> None:
    done = home.run(lamb, text="")
    assert re.fullmatch(f"{home.banner}> \n", done.stdout), done.stdout


# -- bad input --------------------------------------------------------------------------------------------------------


# -- server -----------------------------------------------------------------------------------------------------------


def test_the_banner_names_the_endpoints(home: Home, lamb: Path) -> None:
    def visit(lines: list[str]) -> None:
        shown = "\n".join(lines)
        assert re.match(home.banner + r"Endpoints at http://127\.0\.0\.1:\d+:\n  OpenAI ", shown)
        paths = dict(line.split(maxsplit=1) for line in lines if line.startswith("  "))
        assert list(paths) == ["OpenAI", "llama.cpp", "Anthropic", "Ollama", "others"]
        assert paths["OpenAI"].startswith("/v1/chat/completions, ")
        assert paths["Anthropic"] == "/v1/messages"
        assert "/docs" in paths["others"]
        assert len(lines) <= 14, "no wall before the address"
        assert max(map(len, lines)) <= 80

    assert home.serve("serve", lamb, "--port", "0", visit=visit).returncode == 0


@pytest.mark.parametrize(
    ("flags", "shown"), [((), "0"), (("--use-tools",), r"[1-9]\d*"), (("--use-tools", "--notools"), "0")]
)
def test_the_banner_counts_the_tools_that_callers_get(home: Home, flags: tuple[str, ...], shown: str) -> None:
    def visit(lines: list[str]) -> None:
        assert any(re.fullmatch(f"Tools: {shown} available", line) for line in lines)

    assert home.serve("serve", "--port", "0", *flags, visit=visit).returncode == 0


def test_a_configuration_can_start_the_server_without_flags(home: Home) -> None:
    (home.folder / "shepherd.json").write_text('{"isolate": false, "server_mode": {"enabled": true, "port": 0}}')
    banners: list[list[str]] = []
    assert home.serve(visit=banners.append).returncode == 0
    assert len(banners) == 1


def test_a_port_in_use_is_one_sentence_and_status_1(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = home.run("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "already in use" in done.stderr


@pytest.mark.parametrize("flags", [(), ("--api-key", "secret")])
def test_who_serves_other_machines_asks_for_a_key_and_makes_one_where_there_is_none(
    home: Home, flags: Sequence[str]
) -> None:
    keys: list[str] = []

    def visit(lines: list[str]) -> None:
        address = lines[-1].removeprefix("Listening on: ").replace("0.0.0.0", "127.0.0.1")
        made = [line.removeprefix("API key: ") for line in lines if line.startswith("API key: ")]
        assert len(made) == (0 if flags else 1)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/v1/models", timeout=home.timeout_s)
        key = made[0] if made else "secret"
        keys.append(key)
        asking = urllib.request.Request(f"{address}/v1/models", headers={"authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asking, timeout=home.timeout_s) as answer:
            assert answer.status == 200

    done = home.serve("serve", "--host", "0.0.0.0", "--port", "0", *flags, visit=visit)
    assert keys[0] not in done.stderr


def post(address: str, path: str, body: object, timeout_s: float) -> dict[str, Any]:
    request = urllib.request.Request(
        address + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", "anthropic-version": "2023-06-01"},
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        found = json.load(answer)
        assert isinstance(found, dict)
        return found


HELLO = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 30}


def test_several_models_are_in_the_banner_and_come_on_demand(home: Home) -> None:
    (home.folder / "shepherd.toml").write_text(
        "isolate = false\n[models.main]\npath = 'embedded'\n[models.side]\npath = 'embedded'\n"
        "[models.vec]\npath = 'embedded'\npooling = 'mean'\n[caches.main]\nmodel = 'main'\nn_ctx = 1024\n"
    )

    def visit(lines: list[str]) -> None:
        address = lines[-1].removeprefix("Listening on: ")
        models = [
            line.split()[:4]
            for line in lines[
                lines.index("Models:") + 1 : next(n for n, line in enumerate(lines) if line.startswith("Endpoints"))
            ]
        ]
        assert models == [
            ["main", "chat,", "1024", "tokens,"], ["side", "chat,", "4096", "tokens,"],
            ["vec", "embedding,", "4096", "tokens,"],
        ]  # fmt: skip
        assert post(address, "/v1/chat/completions", {"model": "side", **HELLO}, home.timeout_s)["model"] == "side"
        assert post(address, "/v1/messages", {"model": "claude-local-side", **HELLO}, home.timeout_s)["content"]
        made = post(address, "/v1/embeddings", {"model": "text-embedding-3-small", "input": "a"}, home.timeout_s)
        assert len(made["data"]) == 1
        with urllib.request.urlopen(f"{address}/v1/caches", timeout=home.timeout_s) as answer:
            assert set(json.load(answer)["caches"]) == {"main", "side"}

    done = home.serve("serve", "--port", "0", visit=visit)
    assert done.returncode == 0
    assert "loading model 'side'" in done.stderr
    assert "cache=side" in done.stderr


def test_debug_files_and_recordings_are_written_where_it_is_said(home: Home) -> None:
    (home.folder / "shepherd.toml").write_text("[server]\ndebug_dir = 'stages'\n")

    def visit(lines: list[str]) -> None:
        address = lines[-1].removeprefix("Listening on: ")
        post(address, "/v1/chat/completions", {"model": "x", **HELLO}, home.timeout_s)

    done = home.serve("serve", "--port", "0", "--debug", "--record", "taken", visit=visit)
    assert done.returncode == 0
    assert "recorded in" in done.stderr
    (folder,) = (home.folder / "stages").iterdir()
    assert len(list(folder.iterdir())) == 4
    assert [file.name for file in (home.folder / "taken").glob("*.json")] == ["001.json"]


def test_a_route_that_no_request_comes_by_is_warned_of(home: Home) -> None:
    (home.folder / "shepherd.toml").write_text(
        "[caches.main]\n[[routes]]\nendpoint = '/v1/mesages'\ncache = 'main'\n[[routes]]\nmatch = '*'\ncache = 'main'\n"
    )
    done = home.serve("serve", "--port", "0", visit=len)
    assert "routes[0] can never be reached: no endpoint is called '/v1/mesages'" in done.stderr


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_finds_this_machine_healthy(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        (home.folder / "shepherd.toml").write_text(f"[server]\nport = {free.getsockname()[1]}\n")
    done = home.run("doctor")
    assert done.returncode == 0, done.stdout
    for word in ("self-test: quantised models decode properly", "CPU features", "threads", "memory", "port", "models"):
        assert word in done.stdout
    told = json.loads(home.run("doctor", "--json").stdout)
    assert {finding["state"] for finding in told} <= {"ok", "note"}


def test_doctor_finds_what_is_broken(home: Home) -> None:
    done = home.run("doctor", "--model", "missing.gguf")
    assert done.returncode == 1
    assert re.search(r"^✗ model .*does not exist", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(("fault", "status"), [("", 0), ("the engine of cache 'main' has died", 1)])
def test_doctor_says_how_the_server_on_the_configured_port_is(
    fault: str, status: int, home: Home, tmp_path: Path
) -> None:
    def around(app: App) -> App:
        if fault:
            app._failure = fault  # as a load that failed leaves it
        return app

    with serving(tmp_path, "isolate = false", around=around) as url:
        (home.folder / "shepherd.toml").write_text(f"[server]\nport = {url.rpartition(':')[2]}\n")
        done = home.run("doctor")
    assert done.returncode == status
    said = f"server: {url} is error: {fault}" if fault else f"server: {url} is ok"
    assert said in done.stdout
    assert "is not free" not in done.stdout


def test_doctor_knows_that_another_program_has_the_port(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (home.folder / "shepherd.toml").write_text(f"[server]\nport = {taken.getsockname()[1]}\n")
        assert "is not free" in home.run("doctor").stdout


def test_doctor_asks_the_workers_of_a_model(home: Home) -> None:
    ours = rpc.protocol() or (0, 0, 0)
    good = (greeting(*ours), devices(2), memory(2**31, 2**32), memory(2**31, 2**32))
    with answering(*good) as one, answering(greeting(1, 2, 3)) as other:
        done = home.run("doctor", "--rpc-servers", f"{one},{other}")
    assert done.returncode == 1
    assert f"worker {one}: answers; devices: 2, memory: 4.0 GiB" in done.stdout
    assert f"worker {other}: the worker {other} speaks version 1.2.3 of the protocol" in done.stdout


def test_a_worker_of_another_version_is_one_sentence(home: Home) -> None:
    with answering(greeting(1, 2, 3)) as server:
        done = home.run("-p", "Hello", "--rpc-servers", server)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"rpc_servers: the worker {server} speaks version 1.2.3 of the protocol, and this machine" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "0.0.0.0"], "--host: 0.0.0.0 is every network of this machine"),
        (["--host", "10.0.0.5"], "--allow: name the machines that may connect to 10.0.0.5"),
        (["--memory", "80%"], "--memory: got '80%', expected a number of bytes, or a text such as 24GiB"),
        (["--cache", "much"], "--cache: got 'much', expected a number of bytes"),
        (["--port", "65536"], "'65536' is not a whole number from 0 to 65535"),
    ],
)
def test_a_worker_that_cannot_be_started_so_is_one_sentence(words: list[str], says: str, home: Home) -> None:
    done = home.run("rpc-worker", *words)
    assert done.returncode in {1, 2}
    assert says in done.stderr
    assert "Listening" not in done.stdout


def test_build_tells_the_verdict_on_the_library(home: Home) -> None:
    done = home.run("build")
    assert done.returncode == 0
    assert "quantised models decode properly" in done.stdout


def test_without_a_place_for_a_memory_the_chat_goes_on_without(home: Home) -> None:
    home.env.pop("RAG_DB_PATH")
    home.env["XDG_DATA_HOME"] = "/proc/nowhere"
    done = home.run("chat", "-p", "Hello")
    assert done.returncode == 0
    assert done.stdout.strip()
    assert "goes without memory" in done.stderr
    assert "/proc/nowhere" in done.stderr


def test_a_memory_whose_disk_fails_at_the_start_is_left_out_unless_it_was_chosen(home: Home) -> None:
    """The disk is full, or fails: here, a folder stands where the log of the database is written."""
    data = home.folder / "data"
    (data / "shepherd" / "memory.db-wal").mkdir(parents=True)
    home.env.pop("RAG_DB_PATH")
    home.env["XDG_DATA_HOME"] = str(data)
    done = home.run("chat", "-p", "Hello")
    assert done.returncode == 0
    assert "this conversation goes without memory: the memory " in done.stderr
    home.env["RAG_DB_PATH"] = str(data / "shepherd" / "memory.db")
    done = home.run("chat", "-p", "Hello")
    assert done.returncode == 1
    assert "memory.db failed: its disk failed" in done.stderr


def test_a_memory_that_was_chosen_and_cannot_be_opened_is_one_sentence(home: Home) -> None:
    (home.folder / "notes.txt").write_text("no database at all")
    home.env["RAG_DB_PATH"] = str(home.folder / "notes.txt")
    done = home.run("chat", "-p", "Hello")
    assert done.returncode == 1
    assert done.stderr.startswith("shepherd: memory.database_path: ")
    assert "is not a memory of Shepherd" in done.stderr
    assert (home.folder / "notes.txt").read_text() == "no database at all"
