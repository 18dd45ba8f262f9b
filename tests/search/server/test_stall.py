"""The tests of `tests/unit/server/test_stall.py` that take long."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.places import ROOT
from tests.unit.server.test_stall import PATIENCE_S, REQUESTS

pytestmark = pytest.mark.model

PROGRAM = """
import asyncio, sys, threading
from pathlib import Path
from tests.unit.server.test_stall import app_with
from shepherd.server.app import create_app, serve

async def main():
    app = app_with(60, Path(sys.argv[1]))
    await app.load()
    (engine,) = [backend.engine for backend in app.dispatcher.backends().values()]
    entered = threading.Event()

    def stall():
        entered.set()
        while True:  # busy, as the engine that was stopped was
            pass

    sys.setswitchinterval(0.0001)  # the other threads wait for this one less often

    def on_ready(port):
        asking = asyncio.ensure_future(engine._call(stall))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        threading.Thread(target=lambda: (entered.wait(), print(port, flush=True)), daemon=True).start()

    try:
        await serve(create_app(app), host="127.0.0.1", port=0, on_ready=on_ready, grace_s=0.2)
    finally:
        await app.aclose()
        print("cleaned up", flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_signal_ends_a_server_whose_engine_never_comes_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as program:
        try:
            assert program.stdout is not None
            address = f"http://127.0.0.1:{int(program.stdout.readline())}"
            path, body = REQUESTS["chat, streamed"]
            with httpx2.Client(timeout=PATIENCE_S) as client, client.stream("POST", address + path, json=body) as told:
                program.send_signal(signal.SIGTERM)
                assert "the server is stopping" in "".join(told.iter_text())
            stdout, stderr = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
    assert (program.returncode, stdout) == (0, "cleaned up\n")
    assert "the engine thread of cache 'main' does not end and is left" in stderr
