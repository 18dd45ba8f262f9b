"""What only the FAKE has: `fake.json` in the model's directory, and FAKE_TRTLLM_VERSION."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

VERSION = os.environ.get("FAKE_TRTLLM_VERSION", "1.2.1")


HEEDED_SINCE = {
    "repetition_penalty": (1, 3, 0, 24),
    "frequency_penalty": (1, 3, 0, 24),
    "presence_penalty": (1, 3, 0, 24),
    "min_p": (1, 3, 0, 25),
    "seed": (1, 3, 0, 25),
}
"""What the sampler for checkpoints takes and ignores in earlier versions (major, minor, patch, release candidate)."""


def unheeded(version: str = VERSION) -> frozenset[str]:
    """The parameters that a checkpoint's sampler of this version ignores."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    own = (*numbers[:3], numbers[3] if "rc" in version else 1_000)
    return frozenset(name for name, since in HEEDED_SINCE.items() if own < since)


@dataclass
class Settings:
    """Every key of `fake.json`; all have defaults."""

    say: list[list[str]] = field(default_factory=list)
    """Pairs: a text that the newest user message holds (empty: any), and the answer. Without one, the model echoes."""
    user: str = "<|im_start|>user\n"
    """Where a user message begins in a prompt."""
    answer: str = "<|im_start|>assistant\n"
    """Where the answer begins: what the prompt has behind the last one is written already."""
    close: str = "<|im_end|>"
    """What ends a message."""
    step_s: float = 0.0
    """What each token takes."""
    blocks: int = 4096
    """Blocks of the cache on the GPU."""
    events: Literal["queue", "rpc"] = "queue" if VERSION.startswith("1.2") else "rpc"
    """The shape of `get_kv_cache_events`: which one 1.2.1 has is not settled."""
    load_s: float = 0.0
    fail_load: str = ""
    """The message with which the load fails."""
    die_at: int = 0
    """The worker dies when it has made so many tokens; 0 = never."""
    hang_at: int = 0
    keep_end: bool = True
    """Whether the end token is in the answer's token ids: not settled for the real package."""
    rule: str = ""
    """`module:function` from all tokens to the next one, in place of scripted answers."""
    gate: str = ""
    """A file: while it exists, nothing is computed."""
    poison: int = -1
    """A prompt with this token fails."""
    crash: int = -1
    """A prompt with this token ends the worker."""
    logits: float = 12.0
    """How far the scripted token stands above the noise."""


def read(directory: Path) -> Settings:
    """The settings of a model's directory. Raises: `ValueError` for a key that there is not."""
    file = directory / "fake.json"
    if not file.exists():
        return Settings()
    given = json.loads(file.read_text())
    if unknown := given.keys() - {each.name for each in fields(Settings)}:
        raise ValueError(f"fake.json has unknown keys: {sorted(unknown)}")
    return Settings(**given)
