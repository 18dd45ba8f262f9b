"""The tests of `tests/unit/cli/command/test_launch.py` that take long."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.unit.cli.command.test_launch import (
    Listening,
    Stub,
    service,
    stub,  # noqa: F401 - fixtures
)

from shepherd.cli.command.launch_settings import (
    CLIENTS,
)


@pytest.mark.parametrize("name", CLIENTS)
def test_printed_settings_do_what_launching_does(name: str, stub: Stub, listening: Listening) -> None:
    with listening(service(), api_keys=("s3cret",)) as port:
        ask = [name, "--url", f"127.0.0.1:{port}/v1/", "--api-key", "s3cret"]
        ran = stub.run(*ask, "--", "-p", "it's")
        assert ran.returncode == 0, ran.stderr
        launched = stub.told()
        printed = stub.run(*ask, "--print", "--", "-p", "it's")
        assert printed.returncode == 0, printed.stderr
        assert "s3cret" not in printed.stdout
        shown = stub.run(*ask, "--print", "--show-key", "--", "-p", "it's")
        assert "s3cret" in shown.stdout
        for script, key in ((printed.stdout, "s3cret"), (shown.stdout, "")):
            env = {**stub.env, **({"SHEPHERD_API_KEY": key} if key else {})}
            subprocess.run(["sh", "-e", "-c", script], env=env, check=True)
            pasted = stub.told()
            for told in (launched, pasted):
                told["arguments"] = [re.sub(r'[^"=]*/shepherd-launch[^/]*/', "", word) for word in told["arguments"]]
                for variable in ("SHLVL", "OLDPWD", "_", "PWD", "SHEPHERD_API_KEY", "LC_CTYPE"):
                    told["env"].pop(variable, None)
            assert [text.strip() for text in pasted.pop("files")] == [text.strip() for text in launched["files"]]
            assert pasted == {key: value for key, value in launched.items() if key != "files"}
    assert "qwen" in json.dumps(launched)
    assert launched["arguments"][-2:] == ["-p", "it's"]


@pytest.mark.model
def test_a_server_is_not_left_behind_when_we_are_told_to_end(stub: Stub, lamb: Path, tmp_path: Path) -> None:
    stub.then("import time\nprint(os.environ['OPENAI_API_BASE'], flush=True)\ntime.sleep(60)")
    serving = ("--model", str(lamb), "--port", "0", "--context-size", "1k", "--threads", "1")
    with subprocess.Popen(
        [sys.executable, "-m", "shepherd", "launch", "aider", *serving],
        env=stub.env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as launched:
        assert launched.stdout is not None
        url = launched.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/models") as answer:
            assert answer.status == 200
        launched.terminate()
        assert launched.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)
