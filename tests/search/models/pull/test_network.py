"""The tests of `tests/unit/models/pull/test_network.py` that take long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.hub import Hub
from tests.fakes.proxy import Proxy
from tests.unit.models.pull.test_network import REPO, anew, proxy  # noqa: F401 - fixtures


async def test_the_proxy_of_the_configuration_file_is_that_of_pulls_searches_and_costs(
    hub: Hub, proxy: Proxy, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(f'[network]\nproxy = "{proxy.url}"\n')
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
    env = {**kept, "HOME": str(tmp_path), "HF_ENDPOINT": "http://hub.invalid", "SHEPHERD_MODELS": str(tmp_path / "m")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "shepherd", "--config", str(tmp_path / "mine.toml"), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)

    for words in (("pull", REPO), ("models", "search", "tiny"), ("models", "list", REPO)):
        n_before = len(proxy.seen)
        done = await asyncio.to_thread(run, *words)
        assert done.returncode == 0, done.stderr
        assert len(proxy.seen) > n_before
