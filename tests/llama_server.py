"""llama-server, of the library that we load, as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest
from tests.in_time import becomes_true

PROGRAM = Path(platformdirs.user_cache_dir("shepherd-bench")) / "build" / "bin" / "llama-server"


@contextmanager
def llama_server(model: Path, *options: str) -> Iterator[str]:
    """The address of one with this model and one thread. The test is skipped where it is not built."""
    if not PROGRAM.exists():
        pytest.skip("llama-server is not built: uv run python -m bench.rig.llama_tools")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-t", "1", "--no-webui", *options]
    env = {**os.environ, "LD_LIBRARY_PATH": str(PROGRAM.parent)}
    server = subprocess.Popen([str(PROGRAM), *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, "llama-server has ended"
        try:
            urllib.request.urlopen(f"{url}/health", timeout=60).close()
        except OSError:
            return False
        return True

    try:
        assert becomes_true(answers)
        yield url
    finally:
        server.kill()
        server.wait()
