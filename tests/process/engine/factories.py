"""What the children of these tests are asked to make, each with its own fault.

It imports no test, and nothing that a child does not need: each of a hundred children imports it first, and takes a
third of the time that way.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.fake_engine import FakeRuntime
from tests.places import SOURCE
from tests.unit.engine.kinds import GatedRuntime, Setup, in_process

from shepherd.core import ConfigError
from shepherd.engine.base import Chunk, Decoded, Media
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.worker.channel import Channel
from shepherd.engine.worker.messages import RemoteModel, Workplace

FACTORIES = __name__
LAMB = SOURCE / "models" / "lamb.gguf"
DEADLY = 7
"""A prompt that begins with this token ends the process, or lets it send what it must not."""
STOP = b"<stop>"
STALL_S = 0.3
"""What the tests allow a projector; ten times as long where its speed is not known."""
MUTE_S = 2.0
"""What the tests allow a child that loads."""


def is_deadly(batch: Sequence[Chunk]) -> bool:
    return any(chunk.tokens[0] == DEADLY and chunk.position == 0 for chunk in batch)


def nth(file: str) -> int:
    """The how many-th child this is of those that share the file, from 1 on."""
    count = Path(file)
    count.write_text(str(made := int(count.read_text() or "0") + 1 if count.exists() else 1))
    return made


# -- how it starts -----------------------------------------------------------------------------------------------------


def failing(kind: str) -> InProcessEngine:
    match kind:
        case "config":
            raise ConfigError("is not a number", key="models.a.n_ctx", file="a.toml")
        case "bug":
            raise ZeroDivisionError("a planted bug")
        case "exit":
            print("the licence has expired", flush=True)
            os._exit(3)
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            threading.Event().wait()
    raise AssertionError(kind)


def hanging(file: str) -> InProcessEngine:
    """Says where it is, and loads for ever."""
    print(os.getpid(), file=(said := open(file, "w")))  # noqa: SIM115
    said.close()
    threading.Event().wait()
    raise AssertionError


def short_lived(file: str, n: int) -> InProcessEngine:
    """Works once, and then `n` times it dies while it is made; a later one is not made while `file`.held exists."""
    made, held = nth(file), Path(f"{file}.held")
    while held.exists():
        threading.Event().wait(0.005)
    if 1 < made <= 1 + n:
        os.kill(os.getpid(), signal.SIGKILL)
    return InProcessEngine(GatedRuntime(Setup()))


def slow_to_load(file: str) -> InProcessEngine:
    """Works once; the next one stands still while it is made, and the one behind it is made for longer than that."""
    made = nth(file)
    if made == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if made == 3:
        threading.Event().wait(MUTE_S + 1.0)
    return InProcessEngine(GatedRuntime(Setup()))


def garbled(file: str) -> InProcessEngine:
    """Works once; the next one sends garbage while it is made."""
    if nth(file) == 2:
        connection().send_bytes(b"garbage")
        threading.Event().wait()
    return InProcessEngine(GatedRuntime(Setup()))


# -- what it says ------------------------------------------------------------------------------------------------------


def noisy() -> InProcessEngine:
    os.write(1, b"noise on standard output\n" * 100_000)
    os.write(2, b"noise on standard error\n" * 100_000)
    print("the last line", flush=True)
    return in_process(Setup())


def connection() -> Any:
    """In a child: the raw connection to its parent."""
    (channel,) = (each for each in gc.get_objects() if isinstance(each, Channel))
    return channel._connection


class Talking(GatedRuntime):
    """Calls `talk` before it computes a deadly prompt."""

    def __init__(self, talk: Callable[[], object]) -> None:
        super().__init__(Setup())
        self._talk = talk

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if is_deadly(batch):
            self._talk()
        return super().decode(batch)


def garbage(file: str, texts: tuple[bytes, ...]) -> InProcessEngine:
    """The n-th child sends the n-th text, which is no message, for a deadly prompt."""
    text = dict(enumerate(texts, 1)).get(nth(file), b"")
    return InProcessEngine(Talking(lambda: connection().send_bytes(text)))


def babbling(file: str, texts: tuple[bytes, ...]) -> InProcessEngine:
    """The n-th child writes the n-th text to its connection for a deadly prompt; `STOP` behind it: and stands still."""
    text = dict(enumerate(texts, 1)).get(nth(file), b"")
    said = text.removesuffix(STOP)

    def talk() -> None:
        os.write(connection().fileno(), said)
        if said != text:
            os.kill(os.getpid(), signal.SIGSTOP)

    return InProcessEngine(Talking(talk))


# -- how it computes ---------------------------------------------------------------------------------------------------


def endless() -> InProcessEngine:
    return InProcessEngine(FakeRuntime(lambda _: 7, n_ctx=100_000), options=EngineOptions(sequences=1))


class Deadly(GatedRuntime):
    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if is_deadly(batch):
            os.abort()
        return super().decode(batch)


def deadly(setup: Setup) -> InProcessEngine:
    return InProcessEngine(Deadly(setup))


class Blinding(GatedRuntime):
    """While its gate exists, an image ends the process as it is encoded; what runs waits, and mail is read."""

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        assert self._gate is not None
        if self._gate.exists():
            self._stopped.wait(0.002)
            return "aborted"
        return super().decode(batch)

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        assert self._gate is not None
        if self._gate.exists():
            os.abort()
        return super().prepare(media, on_ready)


def blinding(setup: Setup) -> InProcessEngine:
    return InProcessEngine(Blinding(setup))


def encoding(workplace: Workplace) -> RemoteModel:
    """A model without an engine: one text ends its process."""

    def encode(text: str, is_wanted: Callable[[], bool]) -> str:
        if text == "deadly":
            os.abort()
        return text.upper()

    return RemoteModel(calls={"encode": encode})


def stuck(workplace: Workplace) -> RemoteModel:
    """The same, in which one text never returns from the library."""
    from shepherd.engine.llamacpp.watched import WatchedThread  # late: other children need no library

    thread = WatchedThread("vec.gguf", 0.1)

    def computed(text: str) -> str:
        if text == "deadly":
            threading.Event().wait()
        return text.upper()

    def encode(text: str, is_wanted: Callable[[], bool]) -> str:
        return thread.call(partial(computed, text))

    return RemoteModel(calls={"encode": encode}, down=lambda: thread.down, stats=thread.stats)


WIDE = 100
"""An image of more pixels in a row is one of which the library does not return, and so is a recording of more
samples."""


def hang_in(where: str, free: threading.Event) -> None:
    """Let a function of the library that reads or encodes an image wait, for one that is wide, or for a recording."""
    from shepherd.engine.llamacpp.library import libmtmd

    mtmd = libmtmd()
    real, n_wide = getattr(mtmd, where), 20

    def called(*arguments: Any) -> Any:
        if where == "mtmd_tokenize":
            is_wide = mtmd.mtmd_bitmap_get_nx(arguments[3][0]) > WIDE
        else:
            is_wide = mtmd.mtmd_input_chunk_get_n_tokens(arguments[1]) > n_wide
        if is_wide:
            free.wait()
        return real(*arguments)

    setattr(mtmd, where, called)


def looking(model: str, projector: str, where: str, workplace: Workplace) -> RemoteModel:
    """A model that sees; `where` in the library a wide image never ends."""
    from shepherd.engine.llamacpp.model import CacheOptions, ModelOptions
    from shepherd.engine.llamacpp.remote import serve
    from shepherd.engine.llamacpp.runtime import ContextOptions

    hang_in(where, threading.Event())
    cache = CacheOptions("main", ContextOptions(384, n_seq=5, n_threads=1), EngineOptions(sequences=2), 4)
    options = ModelOptions(
        Path(model), "chat", (cache,), n_threads=1, projector=Path(projector), stall_s=STALL_S
    )  # fmt: skip
    return serve(options, workplace)


class Uninterrupted(GatedRuntime):
    """Not to be interrupted."""

    def interrupt(self, on: bool) -> None:
        pass


def uninterrupted(setup: Setup) -> InProcessEngine:
    return InProcessEngine(Uninterrupted(setup), options=EngineOptions(stall_s=setup.stall_s))


def spread(servers: tuple[str, ...], stall_s: float = 60.0) -> InProcessEngine:
    """Over the embedded model, and over the workers at these addresses."""
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    weights = Weights.load(LAMB, rpc_servers=servers)
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=2048, n_seq=8, n_outputs=4, n_threads=1))
    options = EngineOptions(sequences=4, stall_s=stall_s)
    return InProcessEngine(runtime, show=weights.piece, options=options)


# -- how it ends -------------------------------------------------------------------------------------------------------


def familiar(setup: Setup) -> InProcessEngine:
    """With children of its own, as launchers have them: one in a session of its own, one with an empty environment."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    subprocess.Popen(["sleep", "1000"], env={})
    return in_process(setup)


class Deaf(InProcessEngine):
    """Does not close, and its process ignores SIGTERM."""

    def close(self, timeout_s: float = 30.0) -> bool:
        threading.Event().wait()
        return True


def deaf(setup: Setup) -> InProcessEngine:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return Deaf(GatedRuntime(setup))
