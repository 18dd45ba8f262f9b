"""The tests of `tests/unit/cli/command/test_launch.py` that start programs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.own_server import serving
from tests.unit.cli.command.test_launch import (
    Listening,
    Stub,
    service,
    stub,  # noqa: F401 - fixtures
)

from shepherd.cli.command.launch_settings import (
    CLIENTS,
    FOLDER,
    KEY,
    Settings,
    as_shell,
)

WORDS = st.text(st.characters(exclude_characters=f"\0{KEY}{FOLDER}", exclude_categories=["Cs"]), max_size=20)


@given(WORDS, WORDS, WORDS)
def test_a_shell_reads_what_was_meant(value: str, text: str, word: str) -> None:
    settings = Settings({"V": value + KEY + value}, (f"{FOLDER}/f", word), {"f": text + KEY})
    client = replace(CLIENTS["aider"], program="show")
    show = 'show() { printf "%s\\0" "$V" "$2" "$3"; printf %s "$(cat "$1"; echo .)"; }'
    lines = [show, *as_shell(client, settings, [text])]
    env = {"PATH": os.environ["PATH"], "SHEPHERD_API_KEY": "se'c\"r$t", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    done = subprocess.run(["sh", "-c", "\n".join(lines)], env=env, capture_output=True, check=True)
    shown = done.stdout.decode().split("\0")
    assert shown[:3] == [f"{value}se'c\"r$t{value}", word, text]
    assert shown[3] == f"{text}se'c\"r$t\n."


def test_what_the_client_was_told_lies_in_private_files_that_go_away(stub: Stub, listening: Listening) -> None:
    stub.then("print([oct(os.stat(word).st_mode) for word in sys.argv if word.endswith('settings.json')], sys.argv[2])")
    with listening(service()) as port:
        ran = stub.run("claude", "--url", f"http://127.0.0.1:{port}")
    mode, file = ran.stdout.split()
    assert mode == "['0o100600']"
    assert not Path(file).parent.exists()


def test_the_clients_exit_status_is_ours(stub: Stub, listening: Listening) -> None:
    with listening(service()) as port:
        stub.then("sys.exit(7)")
        assert stub.run("codex", "--url", f"http://127.0.0.1:{port}").returncode == 7
        stub.then(f"os.kill(os.getpid(), {signal.SIGKILL:d})")
        assert stub.run("codex", "--url", f"http://127.0.0.1:{port}").returncode == 128 + signal.SIGKILL


def test_a_signal_to_end_goes_to_the_client(stub: Stub, listening: Listening) -> None:
    stub.then(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"  # Ctrl-C is the client's own business
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(60)"
    )
    with listening(service()) as port:
        words = [sys.executable, "-m", "shepherd", "launch", "codex", "--url", f"http://127.0.0.1:{port}"]
        assert subprocess.run(words, env=stub.env, timeout=60, check=False).returncode == 9


def test_the_client_has_the_terminal(stub: Stub, listening: Listening) -> None:
    stub.then("pathlib.Path(os.environ['TOLD']).write_text(str([os.isatty(n) for n in range(3)]))")
    ours, theirs = pty.openpty()
    try:
        with listening(service()) as port:
            words = [sys.executable, "-m", "shepherd", "launch", "codex", "--url", f"http://127.0.0.1:{port}"]
            subprocess.run(words, env=stub.env, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60, check=True)
    finally:
        os.close(ours)
        os.close(theirs)
    assert stub.told_file.read_text() == "[True, True, True]"


def test_the_model_to_use_can_be_named(stub: Stub, listening: Listening) -> None:
    with listening(service()) as port:
        ran = stub.run("aider", "--url", f"http://127.0.0.1:{port}", "--model", "small")
        assert "openai/small" in stub.told()["arguments"]
        assert "small has a context of 2,048 tokens, and the first prompt of aider has about 3,000" in ran.stderr
        assert "it cannot answer; start with --context-size 8k" in ran.stderr
        ran = stub.run("aider", "--url", f"http://127.0.0.1:{port}", "--model", "claude-x")
        assert "openai/claude-x" in stub.told()["arguments"]
        assert "lists no model 'claude-x' (it has: qwen, small); its routes decide" in ran.stderr


@pytest.mark.model
def test_an_alias_of_the_servers_configuration_can_be_named(stub: Stub, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    text = (
        '[models.m]\npath = "embedded"\n[caches.main]\nmodel = "m"\nn_ctx = 3000\n[aliases]\nquick = "m"\n'
        "[server]\nport = 1\n"
    )
    with serving(folder, text) as url:
        ran = stub.run("aider", "--url", url, "--model", "quick")
        assert "openai/quick" in stub.told()["arguments"], ran.stderr
        assert "lists no model" not in ran.stderr
    config = tmp_path / "c.toml"
    config.write_text(text)
    ran = stub.run("claude", "--print", "--config", str(config), "--model", "quick")
    assert "export ANTHROPIC_MODEL=m" in ran.stdout.splitlines(), "without a server: the model that it stands for"


def test_options_that_come_too_late_for_a_server_are_told_so(stub: Stub, listening: Listening) -> None:
    with listening(service()) as port:
        ran = stub.run("aider", "--port", str(port), "--context-size", "32k", "--reserve", "1k", "-v")
    assert ran.returncode == 0
    assert f"127.0.0.1:{port}, and --context-size 32768 does not change it" in ran.stderr
    assert stub.told()["files"] != []


@pytest.mark.model
def test_a_server_is_started_for_as_long_as_the_client_runs(stub: Stub, lamb: Path) -> None:
    stub.then(
        "import urllib.request\n"
        "url = os.environ['OPENAI_API_BASE']\n"
        "key = {'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        "ask = urllib.request.Request(url + '/models', headers=key)\n"
        "print(url)\n"
        "print(json.load(urllib.request.urlopen(ask))['data'][0]['max_model_len'])"
    )
    serving = ("--model", str(lamb), "--port", "0", "--host", "0.0.0.0", "--context-size", "1k", "--threads", "1")
    ran = stub.run("aider", *serving)
    assert ran.returncode == 0, ran.stderr
    assert "its conversations may have 8192 tokens" in ran.stderr
    assert "lamb has a context of 1,024 tokens" in ran.stderr, "what must stay has to fit into the context"
    url, n_ctx = ran.stdout.split()
    assert int(n_ctx) == 8192
    assert url.startswith("http://127.0.0.1:")
    # Others could reach it: a key was made for the occasion.
    told = stub.told()
    assert len(told["env"]["OPENAI_API_KEY"]) > 20
    assert told["arguments"][:2] == ["--model", "openai/lamb"]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)
    ran = stub.run("aider", *serving, "--no-window")
    assert ran.stdout.split()[1] == "1024"
    assert "its conversations" not in ran.stderr


@pytest.mark.model
def test_the_next_start_knows_how_long_the_first_prompt_was(stub: Stub, lamb: Path, listening: Listening) -> None:
    """Also of a prompt that did not fit, which is the one to warn of."""
    package = stub.folder.parent / "package.json"
    package.write_text('{"name": "aider", "version": "9.8.7"}')
    stub.then(
        "import urllib.request, urllib.error\n"
        "url, key = os.environ['OPENAI_API_BASE'], os.environ['OPENAI_API_KEY']\n"
        "messages = [{'role': 'system', 'content': 'sheep ' * 20000}, {'role': 'user', 'content': 'Hi'}]\n"
        "body = json.dumps({'model': 'lamb', 'messages': messages}).encode()\n"
        "ask = urllib.request.Request(url + '/chat/completions', body, {'authorization': 'Bearer ' + key})\n"
        "try: urllib.request.urlopen(ask)\n"
        "except urllib.error.HTTPError as error: print(json.load(error)['error']['message'])\n"
    )
    serving = ("--model", str(lamb), "--port", "0", "--context-size", "8k", "--threads", "1")
    first = stub.run("aider", *serving)
    assert "the system prompt alone has " in first.stdout
    (n_tokens,) = re.findall(r"alone has ([\d,]+) tokens", first.stdout)
    stub.then("")
    with listening(service()) as port:
        second = stub.run("aider", "--url", f"http://127.0.0.1:{port}", "--model", "small")
    assert f"the first prompt of aider has about {n_tokens} (9.8.7, 2" in second.stderr


def test_a_node_that_is_too_old_is_told_before_the_client_starts(stub: Stub, listening: Listening) -> None:
    (stub.folder.parent / "package.json").write_text('{"version": "1.6.0", "engines": {"node": ">=22.4 <30"}}')
    node = stub.folder / "node"
    node.write_text("#!/bin/sh\necho v20.19.4\n")
    node.chmod(0o755)
    with listening(service()) as port:
        ran = stub.run("pi", "--url", f"http://127.0.0.1:{port}")
        assert "pi needs Node.js 22.4 or newer, and 'node' is v20.19.4 here" in ran.stderr
        assert stub.told()["arguments"], "it is started all the same"
        node.write_text("#!/bin/sh\necho v22.4.0\n")
        assert "Node.js" not in stub.run("pi", "--url", f"http://127.0.0.1:{port}").stderr


@pytest.mark.model
def test_without_a_home_the_log_of_the_server_lies_elsewhere(stub: Stub, lamb: Path, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    nowhere = {"HOME": "/proc/nowhere", "XDG_STATE_HOME": "/proc/nowhere", "TMPDIR": str(tmp_path / "temporary")}
    ran = stub.run("aider", "--model", str(lamb), "--port", "0", "--threads", "1", **nowhere)
    assert ran.returncode == 0, ran.stderr
    (log,) = re.findall(r"its log: (.*)\)", ran.stderr)
    assert "Listening on: " in Path(log).read_text()
    assert Path(log).parent.stat().st_mode & 0o777 == 0o700


def test_a_server_that_does_not_start_says_why(stub: Stub, tmp_path: Path) -> None:
    ran = stub.run("aider", "--port", "0", "--model", str(tmp_path / "none.gguf"))
    assert ran.returncode == 1
    assert "the server did not start: " in ran.stderr
    assert "none.gguf" in ran.stderr
    assert not stub.told_file.exists()
