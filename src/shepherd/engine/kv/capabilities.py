"""The capability gate: from facts about a model and its cache to what may be done to that cache. One table.

A plain cache can do everything; each row of `RULES` whose fact holds takes something away, and `Memory.why` says which
did. Nothing is inferred from what a call returns: on a recurrent model the library says yes to removing tokens that its
state still remembers, and a YaRN model lets its keys be shifted and scales all of them by the way.

Moving positions (`shift`) is the dangerous one, so the table works the other way round there: it is allowed only for
architectures whose attention layers all rotate their whole keys in one plain way, and only with caches that survive it.
`tests/engine/test_matrix.py` lives a whole conversation on models of every kind, and plants the faults that this table
prevents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shepherd.engine.base import Memory

Rope = Literal["none", "norm", "neox", "mrope"]
Capability = Literal["hole", "rollback", "share", "shift"]

PLAIN_ROPE = frozenset({"gemma", "gemma2", "gemma3", "llama", "qwen2", "qwen3"})
"""Architectures whose shift was compared with a cold run. Those with layers that have no RoPE (cohere2, smollm3, ...)
or that normalise keys after it (hunyuan-moe) look the same in a file, so a new one is added here after a test only."""
SHIFTABLE_CACHES = frozenset({"f32", "f16", "q8_0"})
"""bf16 aborts the process, and smaller ones drift: they are quantised anew by every shift."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the file, the library and the options say."""

    architecture: str
    rope: Rope = "neox"
    scaling: str = "none"
    """`rope.scaling.type`: none, linear, yarn, longrope."""
    attn_factor: float = 1.0
    """`rope.scaling.attn_factor`."""
    recurrent: bool = False
    """All layers, or some (hybrid), keep a state instead of tokens."""
    n_swa: int = 0
    """Tokens that the sliding-window layers look back on; 0 without such layers."""
    swa_full: bool = True
    """Those layers have as many cells as the others."""
    type_k: str = "f16"
    head_size: int = 64
    """Of the keys."""
    rotated: bool = True
    """Quantised keys are stored rotated (the default; `LLAMA_ATTN_ROT_DISABLE` turns it off)."""
    can_shift: bool = True
    """The library's own word, for this context."""
    n_ctx_train: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason why something cannot be done."""

    why: str
    holds: Callable[[Facts], bool]
    takes: frozenset[Capability]
    fatal: bool = False
    """Doing it anyway ends the process; otherwise it computes something else without a word."""


def _takes(*capabilities: Capability) -> frozenset[Capability]:
    return frozenset(capabilities)


def _is_windowed(facts: Facts) -> bool:
    return facts.n_swa > 0 and not facts.swa_full


ALL = _takes("hole", "rollback", "share", "shift")
SHIFT = _takes("shift")

RULES = (
    Rule("a recurrent state cannot forget", lambda f: f.recurrent, ALL),
    Rule("compressed cache", lambda f: f.architecture == "deepseek4", ALL),
    Rule("cells behind the sliding window are gone", _is_windowed, _takes("rollback", "share", "shift")),
    Rule("M-RoPE", lambda f: f.rope == "mrope", SHIFT, fatal=True),
    Rule("the library cannot shift", lambda f: not f.can_shift, SHIFT, fatal=True),
    Rule("YaRN or LongRoPE scales keys in a shift", lambda f: f.scaling in {"yarn", "longrope"}, SHIFT),
    Rule("an attention factor scales keys in a shift", lambda f: f.attn_factor != 1.0, SHIFT),
    Rule("no shift of bf16 keys", lambda f: f.type_k == "bf16", SHIFT, fatal=True),
    Rule("no shift of quantised keys in heads of this size",
         lambda f: f.type_k.startswith("q") and (f.head_size % 64 != 0 or not f.rotated), SHIFT, fatal=True),
    Rule("keys of this type drift in a shift", lambda f: f.type_k not in SHIFTABLE_CACHES, SHIFT),
    Rule("shift not proved for this architecture", lambda f: f.architecture not in PLAIN_ROPE, SHIFT),
)  # fmt: skip
"""From the one that takes most to the one that takes least."""


def memory(facts: Facts) -> Memory:
    """What may be done to the memory of a context with these facts."""
    taken: frozenset[Capability] = frozenset()
    reasons = []
    for rule in RULES:
        if rule.holds(facts) and not rule.takes <= taken:
            taken |= rule.takes
            reasons.append(rule.why)
    windowed = _is_windowed(facts) and "hole" not in taken
    return Memory(
        hole="hole" not in taken,
        rollback="any" if "rollback" not in taken else "window" if windowed else "none",
        share="share" not in taken,
        shift="shift" not in taken,
        checkpoint=facts.recurrent or windowed,
        window=0 if facts.recurrent else facts.n_swa,
        n_positions=0 if facts.rope == "none" and facts.recurrent else facts.n_ctx_train,
        why="; ".join(reasons) or "plain attention",
    )


def is_shift_fatal(facts: Facts) -> bool:
    """Whether a shift would end the process, whatever `memory` is believed to allow."""
    return any(rule.fatal and rule.holds(facts) for rule in RULES)
