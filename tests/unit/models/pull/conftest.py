"""A hub on loopback, small real GGUF files, and a pull that waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.fakes.hub import Hub

from shepherd.models.pull import pull as pulling
from shepherd.models.pull.network import Network
from shepherd.models.pull.pull import Event
from shepherd.models.pull.source import parse
from shepherd.models.pull.transfer import Timeouts
from shepherd.models.pulled import PulledModel


def gguf_file(path: Path, n_values: int = 30_000, seed: int = 0) -> bytes:
    """The content of a GGUF file with one tensor of random numbers."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_tensor("token_embd.weight", np.random.default_rng(seed).random(n_values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="session")
def content(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], bytes]:
    """Contents of GGUF files: equal numbers give equal files."""
    folder, made = tmp_path_factory.mktemp("gguf"), dict[int, bytes]()

    def make(seed: int) -> bytes:
        if seed not in made:
            made[seed] = gguf_file(folder / f"{seed}.gguf", 600_000 if seed == 0 else 3_000 * seed, seed)
        return made[seed]

    return make


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@dataclass
class Puller:
    """Pulls from the hub of a test into a folder of its own."""

    root: Path
    env: dict[str, str]
    events: list[Event] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    memory_bytes: int | None = 8 * 2**30
    network: Network = field(default_factory=Network)

    async def __call__(self, text: str, **timeouts: Any) -> tuple[PulledModel, bool]:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        self.events.clear()
        self.pauses.clear()
        return await pulling.pull(
            parse(text),
            root=self.root,
            env=self.env,
            memory_bytes=self.memory_bytes,
            show=self.events.append,
            network=self.network,
            timeouts=Timeouts(**{"idle_s": 20.0, "sleep": sleep, **timeouts}),
        )


@pytest.fixture
def pull(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Puller:
    for name in ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return Puller(tmp_path / "models", {"HF_ENDPOINT": hub.url})
