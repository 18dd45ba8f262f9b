"""A model over two workers computes what one process computes; a worker that dies or hangs ends requests, nothing else.

The workers are `shepherd rpc-worker`, each a process; the engine that they serve is in a child, which the library ends
when a worker is lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import fields
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import httpx2
import psutil
import pytest
from tests import command_line
from tests.in_time import PATIENCE_S, becomes_true
from tests.own_server import serving
from tests.process.engine.factories import FACTORIES, LAMB, spread
from tests.process.engine.test_contract import job, steps, tokens
from tests.started import environment, program
from tests.unit.engine.kinds import child
from tests.unit.engine.tiny_gguf import N_EMBD, N_FF, RECIPES, Recipe, Shapes, write

from shepherd.config import ModelConfig
from shepherd.core import ConfigError, EngineDown, EngineError, Sampling
from shepherd.engine.base import Job
from shepherd.engine.llamacpp import rpc
from shepherd.engine.llamacpp.rpc_worker import HOST, Lent, Worker, networks_of
from shepherd.engine.worker.model_process import ChildEngine
from shepherd.process.tree import or_else_gone

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions are of POSIX"),
]
LOST = r"was killed by SIGABRT.*Remote RPC server crashed"
LIMIT = 56 << 20
"""Bytes that the library's server itself needs, and a small model."""

isolated = pytest.mark.skipif(
    "isolate" not in {each.name for each in fields(ModelConfig)}, reason="a model is not in a process of its own yet"
)


class Lender:
    """`shepherd rpc-worker` in a process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address

    def libraries(self) -> list[psutil.Process]:
        """The processes with the library's server."""
        return psutil.Process(self.process.pid).children()

    def busy(self) -> psutil.Process:
        """The one that has a client."""
        (found,) = [each for each in self.libraries() if len(each.net_connections("tcp4")) > 1]
        return found


@contextmanager
def lending(home: Path, *words: str, before: Sequence[str] = ()) -> Iterator[Lender]:
    with program(home, "rpc-worker", "--port", "0", "--threads", "1", *words, before=before) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("Listening on: "))
            yield Lender(process, line.removeprefix("Listening on: ").strip())
        finally:
            for each in psutil.Process(process.pid).children() if process.poll() is None else ():
                with suppress(psutil.Error):
                    each.resume()
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lender, Lender]]:
    home = tmp_path_factory.mktemp("home")
    with ExitStack() as stack:
        first, second = (stack.enter_context(lending(home)) for _ in range(2))
        yield first, second


@contextmanager
def engine_over(*lenders: Lender, stall_s: float = 60.0) -> Iterator[ChildEngine]:
    engine = child(
        tuple(each.address for each in lenders),
        stall_s,
        factory=f"{FACTORIES}:{spread.__name__}",
    )
    try:
        yield engine
    finally:
        assert engine.close()


def greedy(text: str, max_tokens: int = 20, **more: object) -> Job:
    return job(text, max_tokens, sampling=Sampling(temperature=0, ignore_eos=True), **more)


# -- it computes -------------------------------------------------------------------------------------------------------


async def test_over_two_workers_a_model_says_what_it_says_in_one_process(two: tuple[Lender, Lender]) -> None:
    prompts = ["once upon a time", "the dog ran to", "a" * 300, "the sky is"]
    with closing(spread(())) as alone:
        expected = [tokens(await steps(alone.submit(greedy(each)))) for each in prompts]
    assert len(set(map(tuple, expected))) == len(prompts)
    with engine_over(*two) as engine:
        found = await asyncio.gather(*(steps(engine.submit(greedy(each))) for each in prompts))
        assert [tokens(each) for each in found] == expected
        assert all(len(each.libraries()) >= 1 and each.busy() for each in two), "both hold a part"
        again = await steps(engine.submit(greedy(prompts[2])))
        assert (tokens(again), again[0].n_cached) == (expected[2], 299)  # type: ignore[union-attr]


STATES = """
import json, sys
from array import array
from pathlib import Path
from shepherd.core import Sampling
from shepherd.engine.base import Chunk, Forget
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

def runtime(servers):
    return LlamaRuntime(Weights.load(Path(sys.argv[1]), rpc_servers=servers), ContextOptions(n_ctx=512, n_threads=1))

def answer(runtime, begun):
    token, said = begun, []
    sampler = runtime.sampler(Sampling(temperature=0), array("i"))
    for at in range(20):
        assert runtime.decode([Chunk(0, array("i", [token]), len(prompt) + at, logits=True)]) == "ok"
        said.append(token := sampler.sample(0))
    return said

prompt = array("i", range(60, 120))
here, there = runtime(()), runtime(json.loads(sys.argv[2]))
found = []
for writes, reads in ((here, there), (there, here)):
    writes.apply(Forget(0))
    assert writes.decode([Chunk(0, prompt, 0, logits=True)]) == "ok"
    assert reads.load(0, writes.save(0))
    found += [answer(writes, 70), answer(reads, 70)]
print(json.dumps([found, here.fingerprint == there.fingerprint]))
"""


def test_a_conversation_that_one_machine_has_saved_goes_on_over_workers_and_back(two: tuple[Lender, Lender]) -> None:
    command = (sys.executable, "-c", STATES, str(LAMB), json.dumps([each.address for each in two]))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    (first, second, third, fourth), is_same = json.loads(done.stdout)
    assert first == second == third == fourth
    assert is_same


KINDS = """
import json, sys
from array import array
from pathlib import Path
from shepherd.core import Sampling
from shepherd.engine.base import Chunk, Remove, Shift
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

def said(servers):
    weights = Weights.load(Path(sys.argv[1]), rpc_servers=servers, use_extra_bufts=False)
    options = ContextOptions(n_ctx=256, n_threads=1, cache_type_k=sys.argv[2], cache_type_v=sys.argv[2])
    runtime = LlamaRuntime(weights, options)
    tokens, at = array("i", range(40)), 0
    sampler, found = runtime.sampler(Sampling(temperature=0), tokens), []
    for turn in range(24):
        if turn == 12 and runtime.memory.hole and runtime.memory.shift:
            assert runtime.apply(Remove(0, 5, 15)) and runtime.apply(Shift(0, 15, -10))
            at -= 10
        assert runtime.decode([Chunk(0, tokens, at, logits=True)]) == "ok"
        at += len(tokens)
        found.append(sampler.sample(0))
        tokens = array("i", found[-1:])
    return found, len(runtime.save(0))

print(json.dumps([said(()), said(json.loads(sys.argv[3]))]))
"""


@pytest.mark.parametrize(
    ("recipe", "cache_type"),
    [
        pytest.param("plain", "f16", marks=pytest.mark.search),
        ("plain-64", "q8_0"),
        pytest.param("gemma3", "f16", marks=pytest.mark.search),
        ("hybrid-swa", "f16"),
    ],
)
def test_every_kind_of_memory_is_the_same_over_workers(
    recipe: str, cache_type: str, two: tuple[Lender, Lender], tmp_path: Path
) -> None:
    write(RECIPES[recipe], tmp_path / "m.gguf")
    servers = json.dumps([each.address for each in two])
    command = (sys.executable, "-c", KINDS, str(tmp_path / "m.gguf"), cache_type, servers)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    alone, over_two = json.loads(done.stdout)
    assert over_two == alone


WORDS = ("-p", "Once upon a time", "--max-tokens", "20", "--no-recall", "--temperature", "0", "--threads", "1")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one process says on the command line."""
    home = tmp_path_factory.mktemp("home")
    said = command_line.run(*WORDS, env=environment(home), cwd=home)
    assert said.returncode == 0
    assert said.stdout.strip()
    return said.stdout


def test_a_prompt_on_the_command_line_is_answered_over_workers_without_a_trial_of_the_model_here(
    two: tuple[Lender, Lender], tmp_path: Path, alone: str
) -> None:
    unknown = tmp_path / "unknown.gguf"
    unknown.write_bytes(LAMB.read_bytes().replace(b"Lamb", b"Bmal", 1))
    words = (*WORDS, "--model", str(unknown), "--rpc-servers", ",".join(each.address for each in two))
    over_two = command_line.run(*words, env=environment(tmp_path), cwd=tmp_path)
    assert (over_two.returncode, over_two.stdout) == (0, alone)
    kept = tmp_path / ".cache" / "shepherd"
    assert [each.name.partition("-")[0] for each in kept.iterdir()] == ["selftest"], "this machine may lack its memory"


# -- a worker is lost --------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_while_it_computes_a_prompt_ends_the_request(two: tuple[Lender, Lender]) -> None:
    with engine_over(*two) as engine:
        victim = two[1].busy()
        victim.suspend()  # it never ends this prompt
        batches = engine.submit(greedy("a prompt " * 30)).batches()
        async with asyncio.timeout(PATIENCE_S):
            await anext(batches)
            victim.kill()
            with pytest.raises(EngineDown, match=LOST):
                [step async for batch in batches for step in batch]


async def test_a_worker_that_dies_while_it_answers_ends_the_request_and_the_next_engine_works(
    two: tuple[Lender, Lender],
) -> None:
    with engine_over(*two) as engine:
        batches = engine.submit(greedy("once upon a time", 1500)).batches()
        async with asyncio.timeout(PATIENCE_S):
            while not tokens(await anext(batches)):
                pass
            two[0].busy().kill()
            with pytest.raises(EngineDown, match=LOST):
                [step async for batch in batches for step in batch]
    with engine_over(*two) as engine:
        assert len(tokens(await steps(engine.submit(greedy("once upon a time"))))) == 20


async def test_a_worker_that_hangs_ends_the_request_by_the_watchdog(two: tuple[Lender, Lender]) -> None:
    with engine_over(*two, stall_s=2.0) as engine:
        await steps(engine.submit(greedy("once upon a time")))
        frozen = two[1].busy()
        frozen.suspend()
        with pytest.raises(EngineDown, match="the engine of cache 'main' has made no progress for"):
            await steps(engine.submit(greedy("the dog ran to")))
        frozen.kill()  # else the worker waits for it
    assert becomes_true(lambda: not frozen.is_running() or frozen.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.grid(0.2)
@isolated
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_outlives_a_worker_that_dies_or_hangs_and_answers_again(
    number: signal.Signals, tmp_path: Path
) -> None:
    with lending(tmp_path) as lender:
        text = f'[kv]\nstall_s = 0.2\n[models.m]\npath = "embedded"\nrpc_servers = ["{lender.address}"]\n'
        with serving(tmp_path, text) as address:
            ask = partial(httpx2.post, f"{address}/v1/completions", timeout=PATIENCE_S)
            assert ask(json={"prompt": "once", "max_tokens": 4}).status_code == 200
            library = lender.busy()
            library.send_signal(number)
            assert ask(json={"prompt": "two", "max_tokens": 4}).status_code in {200, 503}
            assert httpx2.get(f"{address}/health", timeout=PATIENCE_S).status_code in {200, 503}
            with suppress(psutil.Error):
                library.kill()  # as a person does who finds that it hangs
            assert becomes_true(lambda: ask(json={"prompt": "once", "max_tokens": 4}).status_code == 200)


# -- a worker that cannot be used --------------------------------------------------------------------------------------


@contextmanager
def serving_here(worker: Worker) -> Iterator[str]:
    thread = threading.Thread(target=worker.serve)
    thread.start()
    try:
        yield f"127.0.0.1:{worker.port}"
    finally:
        worker.stop()
        thread.join()
        worker.close()


def libraries_here() -> list[psutil.Process]:
    """The processes with the library's server of a worker in this process."""
    none: list[str] = []
    return [each for each in psutil.Process().children() if "serve_task" in or_else_gone(each.cmdline, none)]


def greeted(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A client that the library's server has greeted."""
    host, _, port = address.partition(":")
    client = socket.create_connection((host, int(port)), source_address=(source, 0))
    client.sendall(bytes([rpc.HELLO]) + (24).to_bytes(8, "little") + bytes(24))
    assert len(client.recv(36, socket.MSG_WAITALL)) == 36
    return client


def test_a_client_that_is_not_allowed_is_closed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(("127.0.0.1", 0), [IPv4Network("127.0.0.9/32")], Lent(n_threads=1))
    with serving_here(worker) as address:
        with pytest.raises(EngineDown, match="closes the connection: it does not allow this machine"):
            rpc.probe(address)
        greeted(address, "127.0.0.9").close()
    assert "may not connect: --allow does not name it" in caplog.text


def test_each_client_has_a_process_of_its_own_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(("127.0.0.1", 0), [IPv4Network("127.0.0.0/8")], Lent(n_threads=1), most_clients=2)
    with caplog.at_level(logging.INFO), serving_here(worker) as address:
        host, _, port = address.partition(":")
        first = socket.create_connection((host, int(port)))
        assert becomes_true(lambda: "connects" in caplog.text)
        assert rpc.probe(address).free_bytes == worker.free_bytes, "the first client does not hold up the second"
        assert becomes_true(lambda: " leaves after " in caplog.text)
        second = socket.create_connection((host, int(port)))
        with pytest.raises(EngineDown, match="closes the connection"):
            rpc.probe(address)
        first.close()
        second.close()
        assert becomes_true(lambda: caplog.text.count(" leaves after ") >= 3)
        assert rpc.probe(address).free_bytes == worker.free_bytes
    assert "may not connect: 2 clients are served, which is the limit" in caplog.text


@pytest.mark.parametrize("crashes", [False, True])
def test_a_library_that_hangs_up_or_dies_is_logged_and_the_next_client_is_served(
    crashes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(("127.0.0.1", 0), networks_of((), HOST), Lent(n_threads=1))
    with caplog.at_level(logging.INFO), serving_here(worker) as address:
        with greeted(address) as client:
            if crashes:
                (library,) = libraries_here()
                library.kill()
            else:
                client.sendall(b"\xff")  # no command
            assert client.recv(1) == b""
        assert becomes_true(lambda: " leaves after " in caplog.text)
        assert rpc.probe(address).free_bytes == worker.free_bytes
        assert len(libraries_here()) == 1
    how = "was killed by SIGKILL" if crashes else "closed its connection"
    assert caplog.text.count(f"is not served any more: the library's RPC server {how}") == 1
    assert libraries_here() == []


def test_a_device_that_is_not_here_and_a_port_that_is_taken_are_refused_at_the_start() -> None:
    with pytest.raises(EngineError, match="there is no device 'CUDA7' here; there are CPU"):
        Worker(("127.0.0.1", 0), [], Lent(devices=("CUDA7",)))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="choose another --host or"):
        Worker(("127.0.0.1", taken.getsockname()[1]), [], Lent())
    assert libraries_here() == []


LOAD = """
import sys
from pathlib import Path
from shepherd.core import EngineError
from shepherd.engine.llamacpp.weights import Weights
try:
    Weights.load(Path(sys.argv[1]), rpc_servers=sys.argv[2:]).close()
except EngineError as error:
    sys.exit(error.message)
"""
LARGE = 50_000
"""Rows of a tensor of more than 10 MiB, which llama.cpp keeps."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with three large tensors."""

    def tensors(recipe: Recipe) -> Shapes:
        made = RECIPES["plain"].tensors(recipe)
        return {name: tuple(LARGE if n == N_FF else n for n in shape) for name, shape in made.items()}

    path = tmp_path_factory.mktemp("models") / "large.gguf"
    write(Recipe("llama", tensors, n_layer=1, keys={"feed_forward_length": LARGE}), path)
    return path


def loaded(path: Path, address: str) -> str:
    """Loads a model over a worker; why it could not."""
    command = (sys.executable, "-c", LOAD, str(path), address)
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False).stderr.strip()


def test_large_tensors_are_kept_and_not_sent_again(
    large: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    came = []
    lent = Lent(n_threads=1, cache=tmp_path, cache_bytes=30 << 20)
    with caplog.at_level(logging.INFO), serving_here(Worker(("127.0.0.1", 0), networks_of((), HOST), lent)) as address:
        for _ in range(2):
            caplog.clear()
            assert loaded(large, address) == ""
            n_clients = caplog.text.count(" connects")
            assert becomes_true(lambda n=n_clients: caplog.text.count(" leaves after ") == n)  # type: ignore[misc]
            came.append(sum(map(int, re.findall(r"(\d+) bytes came", caplog.text))))
    size = 4 * LARGE * N_EMBD
    assert came[0] > 3 * size
    assert size < came[1] < 2 * size, "the cache holds two of the three"
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [size] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's data")
def test_a_client_that_wants_more_memory_than_it_may_have_is_told_so(large: Path) -> None:
    lent = Lent(n_threads=1, memory_bytes=LIMIT)
    with serving_here(Worker(("127.0.0.1", 0), networks_of((), HOST), lent)) as address:
        assert re.match(r"large.gguf cannot be loaded \(.*failed to allocate RPC0.* buffer", loaded(large, address))
        assert loaded(LAMB, address) == "", "the worker serves others"


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_ends_in_order_with_its_clients_and_processes(number: signal.Signals, tmp_path: Path) -> None:
    with lending(tmp_path) as lender:
        host, _, port = lender.address.partition(":")
        with socket.create_connection((host, int(port))) as client:
            assert becomes_true(lambda: any(len(each.net_connections("tcp4")) > 1 for each in lender.libraries()))
            left = lender.libraries()
            lender.process.send_signal(number)
            assert lender.process.wait(PATIENCE_S) == 0
            assert client.recv(1) == b""
            assert psutil.wait_procs(left, PATIENCE_S)[1] == []


# -- another machine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two networks, 10.77.0.1 and 10.77.0.2, with a wire between them."""
    names = tuple(f"shepherd-{os.getpid()}-{n}" for n in (1, 2))
    commands = [
        *(f"ip netns add {name}" for name in names),
        f"ip link add shep1 netns {names[0]} type veth peer name shep2 netns {names[1]}",
        *(f"ip -n {name} addr add 10.77.0.{n}/24 dev shep{n}" for n, name in enumerate(names, 1)),
        *(f"ip -n {name} link set {link} up" for n, name in enumerate(names, 1) for link in ("lo", f"shep{n}")),
    ]
    try:
        for command in commands:
            try:
                subprocess.run(command.split(), check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                why = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
                pytest.skip(f"this system makes no networks for tests ({command}: {why})")
        yield names[0], names[1]
    finally:
        for name in names:
            with suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.search  # `test_a_client_that_is_not_allowed_is_closed_and_logged` does the same on one machine
def test_a_worker_in_another_network_serves_the_machine_that_it_allows_and_no_other(
    namespaces: tuple[str, str], tmp_path: Path, alone: str
) -> None:
    here, there = (("ip", "netns", "exec", name) for name in namespaces)
    with lending(tmp_path, "--host", "10.77.0.1", "--allow", "10.77.0.2", before=here) as lender:
        with program(tmp_path, *WORDS, "--rpc-servers", lender.address, before=there) as allowed:
            assert allowed.communicate(timeout=PATIENCE_S)[0] == alone
            assert allowed.returncode == 0
        with program(tmp_path, *WORDS, "--rpc-servers", lender.address, before=here) as refused:
            assert refused.wait(PATIENCE_S) == 1
