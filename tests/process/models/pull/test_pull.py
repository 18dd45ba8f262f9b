"""The tests of `tests/unit/models/pull/test_pull.py` that start programs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.hub import Hub, Stall
from tests.unit.models.pull.conftest import Puller
from tests.unit.models.pull.test_pull import (
    Content,
    nothing_is_there,
    repo,  # noqa: F401 - fixtures
)

from shepherd.models import pulled
from shepherd.models.pull.index import indexes
from shepherd.models.pull.transfer import CHUNK_BYTES

_PULL = """
import asyncio, sys
from pathlib import Path
from shepherd.models.pull import pull
from shepherd.models.pull.source import parse
def show(event):
    if isinstance(event, pull.Fetched) and event.n_bytes:
        print(event.n_bytes, flush=True)
root, endpoint, spec = sys.argv[1:]
asyncio.run(pull.pull(parse(spec), root=Path(root), env={"HF_ENDPOINT": endpoint}, memory_bytes=None, show=show))
"""


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_pull_goes_on_and_is_whole(
    hub: Hub, pull: Puller, repo: str, content: Content, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", _PULL, str(pull.root), hub.url, f"{repo}:Q4_K_M"]
    hub.fail("cdn", Stall(CHUNK_BYTES + 100_000))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        n_written = int(process.stdout.readline())
        assert n_written >= CHUNK_BYTES
        process.send_signal(number)
        process.wait(60)
    assert nothing_is_there(pull)
    hub.seen.clear()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    (model,) = pulled.pulled_models(pull.root)
    assert model.path.read_bytes() == content(0)
    n_kept = int(hub.ranges("cdn")[0].removeprefix("bytes=").partition("-")[0])
    # What a killed process had not yet handed to the system is lost; a stopped one closes its file.
    assert n_kept == n_written if number == signal.SIGINT else n_kept > 0


async def test_offline_mode_asks_nobody(hub: Hub, repo: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PULL, str(tmp_path), hub.url, repo]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.url}
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, timeout=120, check=False)
    assert b"HF_HUB_OFFLINE is set" in done.stderr
    assert hub.seen == []


_FULL = """
import asyncio, os, sys
from pathlib import Path
from shepherd.core import ShepherdError
from shepherd.models.pull import pull, staging
from shepherd.models.pull.source import parse
root, spec = Path(sys.argv[1]), sys.argv[2]
staging.SPARE_BYTES = 0
ballast = root / "ballast"
def show(event):
    if isinstance(event, pull.Planned):
        free = os.statvfs(root)
        ballast.write_bytes(b"")
    if isinstance(event, pull.Fetched) and not ballast.stat().st_size:
        free = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
        ballast.write_bytes(bytes(max(1, free - 2**20)))  # another program is faster
job = lambda: pull.pull(parse(spec), root=root, env={}, memory_bytes=None, show=show)
try:
    asyncio.run(job())
except ShepherdError as error:
    print(error.status, error.message, flush=True)
print(sum(each.n_bytes for each in staging.unfinished(root)), flush=True)
show = lambda event: None
ballast.unlink()
model, _ = asyncio.run(job())
print(model.files[0].sha256, flush=True)
"""


def _tmpfs(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    script = 'mount -t tmpfs -o size=5m none "$0" && exec "$@"'
    words = ["unshare", "-rm", "sh", "-c", script, str(folder), *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_a_disk_that_fills_up_is_one_sentence_and_the_next_pull_goes_on(
    hub: Hub, tmp_path: Path, content: Content
) -> None:
    if sys.platform != "linux" or _tmpfs(tmp_path, ["true"]).returncode:
        pytest.skip("no small file system can be mounted here")
    hub.put_ollama("library/tiny/1b", {"model": content(0)})
    spec = f"ollama:{hub.host}/library/tiny:1b"
    done = _tmpfs(tmp_path, [sys.executable, "-c", _FULL, str(tmp_path), spec])
    assert done.returncode == 0, done.stderr
    sentence, n_kept, digest = done.stdout.splitlines()
    assert re.match(r"507 .*: the disk is full; free some room, or name a folder", sentence)
    assert 0 < int(n_kept) <= 2**20
    assert digest == hashlib.sha256(content(0)).hexdigest()
    assert [text.partition("-")[0] for text in hub.ranges("blobs")] == ["bytes=0", f"bytes={n_kept}"]


@pytest.mark.parametrize(
    ("name", "help_text"),
    [
        (
            "uv",
            "      --default-index <U>\n          The default package index (by default: <http://{}/simple/>) [env: X]",
        ),
        (
            "pip",
            "  -i, --index-url <url>  Base URL of the index (default\n                  http://{}/simple). This should",
        ),
    ],
)
def test_the_default_index_is_the_one_that_the_installed_tool_names_in_its_help(
    tmp_path: Path, name: str, help_text: str
) -> None:
    (tmp_path / "help").write_text(help_text.format("index.test"), encoding="utf-8")
    tool = tmp_path / "bin" / name
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$COLUMNS" -ge 200 ] && exec /bin/cat "{tmp_path}/help"\n', encoding="utf-8")
    tool.chmod(0o755)
    env = {"PATH": str(tool.parent), "UV_NO_CONFIG": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "0"}
    assert [each.url for each in indexes(env, tmp_path)] == ["http://index.test/simple"]
