"""The kinds of engines that `test_contract.py` tests: one row each, over a model that the tests know.

A new kind is a function from `Setup` to an engine, and a row of `KINDS`. Its model says `next_token`.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_engine import BYTES, FakeRuntime, FakeVocabulary, Faults, SteadyCost, drafts_by
from tests.places import ROOT

from shepherd.engine.base import Chunk, Decoded, Engine
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.speculation import Speculator
from shepherd.engine.worker.messages import RemoteModel

if TYPE_CHECKING:  # children import this file, too, and need neither
    from shepherd.engine.trtllm.engine import TensorRTEngine
    from shepherd.engine.worker.model_process import ChildEngine, Timeouts

END = BYTES + 1
POISON = BYTES + 32
"""A prompt with this token fails."""
CRASH = BYTES + 33
"""A prompt with this token breaks the engine: a bug."""


@dataclass(frozen=True)
class Setup:
    """What a test wants of its engine."""

    gate: str = ""
    """A file: while it exists, nothing is computed, and what is asked between two decodes still is."""
    n_ctx: int = 4096
    sequences: int = 4
    queue: int = 64
    stall_s: float = 60.0
    has_grammars: bool = False


def next_token(tokens: Sequence[int]) -> int:
    """The number of tokens so far; it ends at every multiple of 40."""
    return END if len(tokens) % 40 == 0 else len(tokens) % BYTES


class GatedRuntime(FakeRuntime):
    """Waits for its gate, as a decode of a large model takes long."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(next_token, frozenset({END}), n_ctx=setup.n_ctx, faults=Faults(poison=POISON))
        self._gate = Path(setup.gate) if setup.gate else None
        self._stopped = threading.Event()

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if any(CRASH in chunk.tokens for chunk in batch):
            raise RuntimeError("a planted bug")
        while self._gate is not None and self._gate.exists():
            if self._stopped.wait(0.002):
                return "aborted"
        return super().decode(batch)

    def interrupt(self, on: bool) -> None:
        super().interrupt(on)
        if on:
            self._stopped.set()
        else:
            self._stopped.clear()


def in_process(setup: Setup) -> InProcessEngine:
    options = EngineOptions(sequences=setup.sequences, queue=setup.queue, stall_s=setup.stall_s)
    constrainer = Constrainer(FakeVocabulary(), frozenset({END})) if setup.has_grammars else None
    engine = InProcessEngine(GatedRuntime(setup), options=options, constrainer=constrainer)
    drafts_by(engine._scheduler, speculator=Speculator(SteadyCost(0.01)))
    return engine


def on_lamb(setup: Setup) -> InProcessEngine:
    """Over the embedded model."""
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    weights = Weights.load(ROOT / "src" / "shepherd" / "models" / "lamb.gguf")
    context = ContextOptions(n_ctx=setup.n_ctx, n_seq=8, n_outputs=setup.sequences, n_threads=1)
    options = EngineOptions(sequences=setup.sequences)
    constrainer = Constrainer(weights, weights.end_tokens)
    return InProcessEngine(LlamaRuntime(weights, context), show=weights.piece, options=options, constrainer=constrainer)


def seeing(model: str, projector: str, n_ctx: int) -> InProcessEngine:
    """Over a model with its projector, which live as long as the process."""
    from shepherd.engine.llamacpp.projector import Projector
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    weights = Weights.load(Path(model))
    eyes = Projector.load(Path(projector), weights, n_threads=1)
    return InProcessEngine(LlamaRuntime(weights, ContextOptions(n_ctx, n_seq=5, n_threads=1), eyes))


COMMAND = (sys.executable, "-m", "shepherd.engine.worker")


def environment() -> dict[str, str]:
    """Of a child that imports the tests."""
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def serve_one(factory: str, *arguments: object) -> RemoteModel:
    """In the child: a model of the one engine that the factory makes."""
    *others, _workplace = arguments
    return RemoteModel((pkgutil.resolve_name(factory)(*others),))


def serve_several(setups: Sequence[Setup], _workplace: object) -> RemoteModel:
    """In the child: a model of an engine for each setup."""
    return RemoteModel(tuple(map(in_process, setups)))


class Crowd:
    """A child with one engine for each of some setups. It costs what a child with a single one costs."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts

        factory = f"{__name__}:{serve_several.__name__}"
        program = Program(COMMAND, factory, (tuple(setups),), environment(), Timeouts(connect_s=60))
        self._process = ModelProcess(program, title="cache 'main'")
        self._free = [(setup, ChildEngine(self._process, at)) for at, setup in enumerate(setups)]

    def find(self, setup: Setup) -> ChildEngine | None:
        """One that no test has had yet."""
        at = next((at for at, (each, _) in enumerate(self._free) if each == setup), None)
        return None if at is None else self._free.pop(at)[1]

    def close(self) -> None:
        self._process.close()


CHILDREN: list[ChildEngine] = []
"""Those that `child` has made: a test that fails, or takes too long, does not come to close its own."""


def child(
    *arguments: object,
    factory: str = "tests.unit.engine.kinds:in_process",
    timeouts: Timeouts | None = None,
    command: Sequence[str] = COMMAND,
    **program: Any,
) -> ChildEngine:
    """An engine in a child, noted in `CHILDREN`. program: further fields of a `Program` and of a `ModelProcess`."""
    from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts

    started = {name: program.pop(name) for name in ("is_wanted", "report") if name in program}
    made = Program(
        command, "tests.unit.engine.kinds:serve_one", (factory, *arguments),
        **{"environment": environment(), "timeouts": timeouts or Timeouts(connect_s=60), **program},
    )  # fmt: skip
    CHILDREN.append(engine := ChildEngine(ModelProcess(made, title="cache 'main'", **started)))
    return engine


@cache
def models() -> tempfile.TemporaryDirectory[str]:
    """Made when it is needed: children import this file, too, and are killed."""
    return tempfile.TemporaryDirectory(prefix="shepherd-models-")


def tensorrt(setup: Setup) -> TensorRTEngine:
    """Over the fake library, in this process."""
    from tests.fakes import model_directory
    from tests.unit.engine.trtllm.trt import FAKE

    from shepherd.engine.trtllm.engine import TensorRTOptions, open_engine
    from shepherd.engine.trtllm.library import LibraryOptions

    directory = model_directory.make(
        Path(tempfile.mkdtemp(dir=models().name)), n_ctx=setup.n_ctx, tokenizer=model_directory.bytewise(),
        rule="tests.unit.engine.kinds:next_token", gate=setup.gate, poison=POISON, crash=CRASH, blocks=128,
    )  # fmt: skip
    library = LibraryOptions(
        str(directory), False, setup.n_ctx, sequences=setup.sequences, has_grammars=setup.has_grammars, module=FAKE
    )
    ends = frozenset({END})
    return open_engine(
        TensorRTOptions(library, queue=setup.queue, low_water=0.75, end_tokens=ends, stall_s=setup.stall_s)
    )


@dataclass(frozen=True)
class Kind:
    name: str
    make: Callable[[Setup], Engine]
    lacks: str = ""
    """What it refuses, by the name of the test."""


KINDS = (
    Kind("in process", in_process),
    Kind("child", child),
    Kind("tensorrt", tensorrt, lacks="test_scores_cross_too"),
)
