"""The tests of `tests/unit/cli/test_process.py` that take long."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

pytestmark = pytest.mark.model


def test_bytes_that_are_no_text_are_no_trouble(home: Home) -> None:
    apart = home.run_apart("--max-tokens", "8", "-p", b"Hello \xff")
    assert (apart.returncode, apart.stderr) == (0, b"")
    assert apart.stdout
    for arguments, raw in ((["chat"], b"Hello \xf0\x9f"), ([], b"Hello \xff\r\n")):
        done = home.run(*arguments, text=raw)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_replay_on_its_own_model_with_a_sentence(home: Home, number: int, status: int) -> None:
    home.never_ending()
    for name, n_tokens in (("1", 1), ("2", 30_000)):
        body = {"model": "lamb", "max_tokens": n_tokens, "messages": [{"role": "user", "content": "Hello"}]}
        (home.folder / f"{name}.json").write_text(json.dumps({"path": "/v1/chat/completions", "body": body}))
    with home.start("replay", "1.json", "2.json", "--json", "-c", "32k") as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(home.timeout_s) == status
        told = [line for line in process.stderr.read().splitlines() if not line.startswith("[")]
        assert told == ["shepherd: the replay was stopped before its last request had an answer"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_test_of_servers_and_the_servers(home: Home, number: int, status: int) -> None:
    os.mkfifo(home.folder / "started")
    command = f"echo $$ > {home.folder / 'started'}; exec sleep 1000"
    (home.folder / "shepherd.toml").write_text(
        f'[[mcp_servers]]\nname = "slow"\ncommand = "sh"\nargs = ["-c", {json.dumps(command)}]\n'
    )
    with home.start("mcp", "test") as process:
        server = psutil.Process(int((home.folder / "started").read_text()))
        process.send_signal(number)
        assert process.wait(home.timeout_s) == status
        assert process.stderr.read() == "shepherd: the test was stopped before every server was ready\n"
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("flags", [("--debug",), ("--log-level", "debug")])
def test_only_debug_shows_the_content_of_the_cache_and_what_differs(home: Home, flags: tuple[str, ...]) -> None:
    # In a process of its own, where the engine is imported after the log level is set.
    said = b"/system You answer the guests of a shepherd in the mountains, in a short and friendly way.\n"
    said += b"What is two?\n/edit What is blue?\n"
    done = home.run_apart("--temperature", "0", "--max-tokens", "5", "--notools", *flags, raw=said)
    told = done.stderr.decode()
    assert "miss: token" in told
    shown = [
        re.search(each, told) is not None for each in (r"\] \[system\] .*mountains", r"token \d+, '.*' != '.*blue")
    ]
    assert shown == [flags == ("--debug",)] * 2
