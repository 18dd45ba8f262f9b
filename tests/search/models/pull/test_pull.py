"""The tests of `tests/unit/models/pull/test_pull.py` that take long."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.hub import Hub, Slow
from tests.unit.models.pull.test_pull import Content

_DEATHS = """
import asyncio, os, random, signal, sys, time
from pathlib import Path
from shepherd.models import pulled
from shepherd.models.pull import pull, staging, transfer
from shepherd.models.pull.source import parse
transfer.CHUNK_BYTES = 2**15  # so that there are many moments
root, spec, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dice = random.Random(seed)
job = lambda: pull.pull(parse(spec), root=root, env={}, memory_bytes=None, show=lambda event: None)
n_killed = n_kept = 0
while n_killed < 30:
    child = os.fork()
    if not child:
        try:
            asyncio.run(job())
        except KeyboardInterrupt:
            os._exit(1)
        os._exit(0)
    time.sleep(dice.uniform(0.0, 0.25))
    os.kill(child, dice.choice([signal.SIGKILL, signal.SIGINT]))
    _, status = os.waitpid(child, 0)
    n_killed += status != 0
    n_kept += any(each.n_bytes for each in staging.unfinished(root))
    for model in pulled.pulled_models(root):
        print(model.files[0].sha256, flush=True)
        pulled.remove(root, model.folder)
model, _ = asyncio.run(job())
print(n_kept, model.path, flush=True)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_pull_that_dies_thirty_times_at_random_moments_is_whole_in_the_end(
    hub: Hub, tmp_path: Path, content: Content, seed: int
) -> None:
    hub.put_ollama("library/tiny/1b", {"model": content(0)})
    hub.fail("blobs", *[Slow(100_000, 0.01)] * 200)
    spec, digest = f"ollama:{hub.host}/library/tiny:1b", hashlib.sha256(content(0)).hexdigest()
    command = [sys.executable, "-c", _DEATHS, str(tmp_path / "models"), spec, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *whole, (n_kept, path) = (line.split(" ", 1) for line in done.stdout.splitlines())
    assert [each for (each,) in whole] == [digest] * len(whole), "what appeared before was whole, too"
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    assert int(n_kept) > 0, "and some deaths left a part"
    starts = [int(text.removeprefix("bytes=").partition("-")[0]) for text in hub.ranges("blobs")]
    assert any(starts), "that the next pull took up"
