"""What the tests of TensorRT-LLM share: an engine over the fake library, and jobs for it."""

from __future__ import annotations

import importlib
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from tests.fakes import model_directory

from shepherd.engine.base import Admitted, Job, Span, Step, Ticket
from shepherd.engine.trtllm.engine import TensorRTEngine, TensorRTOptions, open_engine
from shepherd.engine.trtllm.library import LibraryOptions

FAKE = "tests.fakes.tensorrt_llm"
with mock.patch.dict(os.environ, {"TLLM_DISABLE_MPI": "1"}):  # else the import would make this process a rank
    importlib.import_module(FAKE)
END = 1
"""The fake tokenizer's `<|im_end|>`."""


class Bench:
    """An engine over the fake, its tokenizer, and what the fake really did."""

    def __init__(
        self,
        directory: Path,
        kind: Literal["checkpoint", "engine"] = "checkpoint",
        *,
        n_ctx: int = 512,
        sequences: int = 4,
        queue: int = 64,
        n_events: int = 16384,
        host_cache_bytes: int = 0,
        stall_s: float = 60.0,
        **fake: Any,
    ) -> None:
        model_directory.make(directory, kind, n_ctx=n_ctx, **fake)
        self.tokenizer = model_directory.load_tokenizer(directory)
        library = LibraryOptions(
            str(directory), kind == "engine", n_ctx, sequences=sequences, module=FAKE, n_events=n_events,
            host_cache_bytes=host_cache_bytes,
        )  # fmt: skip
        options = TensorRTOptions(library, queue=queue, end_tokens=frozenset({END}), stall_s=stall_s)
        self.engine: TensorRTEngine = open_engine(options)
        self.llm: Any = self.engine._library._llm
        self.worker: Any = self.llm._executor

    def encode(self, text: str) -> array[int]:
        return array("i", self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def prompt(self, *turns: tuple[str, str]) -> array[int]:
        return array("i", model_directory.prompt(self.tokenizer, *turns))

    def job(self, said: str = "Hello", max_tokens: int = 40, **more: Any) -> Job:
        return Job(self.prompt(("user", said)), max_tokens, **more)

    async def steps(self, job: Job) -> list[Step]:
        return await steps(self.engine.submit(job))

    def text(self, of: Sequence[Step]) -> str:
        return self.decode(tokens(of))

    def talk(self, turns: Sequence[tuple[str, str]]) -> tuple[array[int], tuple[Span, ...]]:
        """The prompt of a conversation, with a span for each message; the first and the last stay."""
        made, spans = array("i"), list[Span]()
        turn = -1
        for at, (role, said) in enumerate(turns):
            start = len(made)
            made += self.encode(f"<|im_start|>{role}\n{said}<|im_end|>\n")
            turn += role == "user"
            keep = role == "system" or at == len(turns) - 1
            spans.append(Span(start, len(made), at, turn, keep))
        return made + self.encode("<|im_start|>assistant\n"), tuple(spans)


async def steps(ticket: Ticket) -> list[Step]:
    return [step async for batch in ticket.batches() for step in batch]


def tokens(of: Sequence[Step]) -> list[int]:
    return [step for step in of if isinstance(step, int)]


def admitted(of: Sequence[Step]) -> Admitted:
    """The engine's last word on what was cached."""
    return [step for step in of if isinstance(step, Admitted)][-1]
