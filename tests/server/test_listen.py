"""Opening a port, and leaving it: what can go wrong is one sentence, and a signal is an orderly end."""

import asyncio
import signal
import socket
import subprocess
import sys
import time

import httpx2
import pytest

from shepherd.core import ConfigError
from shepherd.server.listen import bind

PROGRAM = """
import asyncio, sys
from shepherd.core import Started, TextDelta
from shepherd.server.app import create_app, serve
from shepherd.server.fake import ScriptedService
from shepherd.server.listen import loop_factory

async def endless(request):
    yield Started("m")
    while True:
        yield TextDelta("word ")
        await asyncio.sleep(0.01)

async def main():
    on_ready = lambda port: print(port, flush=True)
    await serve(create_app(ScriptedService(endless)), host="127.0.0.1", port=0, on_ready=on_ready)
    print("cleaned up", flush=True)

with asyncio.Runner(loop_factory=asyncio.new_event_loop if "asyncio" in sys.argv else loop_factory()) as runner:
    runner.run(main())
"""


def test_a_port_in_use_is_one_sentence_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} is already in use; stop the other program or choose"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("127.0.0.1", -1, "between 0 and 65535"),
        ("127.0.0.1", 65536, "between 0 and 65535"),
        ("no-such-host.invalid", 0, "cannot be resolved"),
        ("a" * 80, 0, "cannot be resolved"),
        ("203.0.113.7", 0, "no address '203.0.113.7'"),
    ],
)
def test_a_bad_address_is_one_sentence(host: str, port: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bind(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", ""])
def test_port_0_takes_a_free_port_the_same_for_every_address(host: str) -> None:
    try:
        sockets = bind(host, 0)
    except ConfigError as error:
        pytest.skip(f"no such address here: {error}")
    ports = {listener.getsockname()[1] for listener in sockets}
    for listener in sockets:
        listener.close()
    assert len(ports) == 1
    assert ports != {0}


async def test_small_answers_are_not_held_back_by_nagles_algorithm() -> None:
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Look(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.set_result(option)
            transport.close()

    (listener,) = bind("127.0.0.1", 0)
    async with await asyncio.get_running_loop().create_server(Look, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await accepted
        writer.close()


@pytest.mark.parametrize("loop", ["asyncio", "fastest"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_signal_ends_running_answers_and_lets_the_program_clean_up(number: signal.Signals, loop: str) -> None:
    command = [sys.executable, "-c", PROGRAM, loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        port = int(program.stdout.readline())
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        with httpx2.stream("POST", url, json=body, timeout=30) as answer:
            pieces = answer.iter_text()
            next(pieces)
            begun = time.monotonic()
            program.send_signal(number)
            assert "the server is stopping" in "".join(pieces)
        assert program.stdout.read() == b"cleaned up\n"
        assert program.wait(30) == 0
        assert time.monotonic() - begun < 10
        assert program.stderr.read() == b""


BLOCKING = """
import sys
from shepherd.core import Finished, Message, Started, TextDelta
from shepherd.server.app import run_server
from shepherd.server.fake import ScriptedService

async def script(request):
    yield Started("fake")
    yield TextDelta("Hi.")
    yield Finished("end")

run_server(ScriptedService(script), "127.0.0.1", int(sys.argv[1]))
"""


def test_a_program_can_run_the_server() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", BLOCKING, str(port)]) as process:
        deadline = time.monotonic() + 60
        answer = None
        while answer is None and time.monotonic() < deadline:
            try:
                body = {"messages": [{"role": "user", "content": "Hello"}]}
                answer = httpx2.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
            except httpx2.ConnectError:
                time.sleep(0.05)
        assert answer is not None
        assert answer.json()["choices"][0]["message"]["content"] == "Hi."
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
