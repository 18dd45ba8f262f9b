"""The factory of test_child.py: an engine over the tests' model that asks all ranks at every decode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tests.fake_engine import BYTES, FakeRuntime
from tests.process.engine.trtllm import standin

from shepherd.core import EngineError
from shepherd.engine.base import Chunk, Decoded
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.worker.messages import RemoteModel


class Runtime(FakeRuntime):
    def __init__(self, session: Any, n_ranks: int) -> None:
        super().__init__(lambda tokens: len(tokens) % BYTES, frozenset(), n_ctx=4096)
        self.session, self.n_ranks = session, n_ranks

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        found = [each.result() for each in self.session.submit(standin.where)]
        assert sorted(rank for rank, _, _ in found) == list(range(self.n_ranks))
        return super().decode(batch)

    def close(self) -> None:
        super().close()
        self.session.shutdown()
        os.write(2, b"[rank 0] the runtime is closed\n")


def make(n_ranks: int, fault: str, session: Any) -> RemoteModel:
    if fault == "session":
        session(lambda comm, n: 1 // 0)
    made = session(standin.Session) or standin.Pool(n_ranks)
    if fault:
        raise EngineError(fault)
    return RemoteModel((InProcessEngine(Runtime(made, n_ranks)),))
