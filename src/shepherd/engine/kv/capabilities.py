"""Which operations a model's cache supports without changing results: one table, from facts to capabilities.

A plain cache supports everything. Each row of `RULES` whose fact holds removes capabilities, and `Memory.why` lists
these rows. Return values of the library are not evidence: on a recurrent model it reports success for removing tokens
that the state still contains, and on a YaRN model a shift also scales all keys.

`shift` (moving positions) is dangerous, so it is allowed only by a list: for architectures whose attention layers all
rotate their whole keys in one plain way, and only with cache types that survive it. `engine/test_matrix.py` runs a
whole conversation on models of every kind, and plants the faults that this table prevents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.base import Memory

Rope = Literal["none", "norm", "neox", "mrope"]
Capability = Literal["hole", "rollback", "share", "shift"]

PLAIN_ROPE = frozenset({"gemma", "gemma2", "gemma3", "llama", "qwen2", "qwen3"})
"""Architectures whose shift was compared with a cold run. Files do not show layers without RoPE (cohere2, smollm3, ...)
or keys that are normalised after it (hunyuan-moe), so add an architecture only after a test."""
SHIFTABLE_CACHES = frozenset({"f32", "f16", "q8_0"})
"""bf16 aborts the process; smaller types drift, since every shift quantises the keys again."""


@dataclass(frozen=True, slots=True)
class Facts:
    architecture: str
    rope: Rope = "neox"
    scaling: str = "none"
    """`rope.scaling.type`: none, linear, yarn, longrope."""
    attn_factor: float = 1.0
    """`rope.scaling.attn_factor`."""
    recurrent: bool = False
    """Whether all or some (hybrid) layers keep a state instead of tokens."""
    n_swa: int = 0
    """Tokens that the sliding-window layers look back on; 0 without such layers."""
    swa_full: bool = True
    """Whether those layers have as many cells as the others."""
    type_k: str = "f16"
    head_size: int = 64
    """Of the keys."""
    rotated: bool = True
    """Whether quantised keys are stored rotated (the default; `LLAMA_ATTN_ROT_DISABLE` turns it off)."""
    can_shift: bool = True
    """What the library reports for this context."""
    n_ctx_train: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason why capabilities are missing."""

    why: str
    holds: Callable[[Facts], bool]
    takes: frozenset[Capability]
    fatal: bool = False
    """Whether a missing operation aborts the process; otherwise it silently computes something else."""


def _is_windowed(facts: Facts) -> bool:
    return facts.n_swa > 0 and not facts.swa_full


ALL = frozenset[Capability](("hole", "rollback", "share", "shift"))
SHIFT = frozenset[Capability](("shift",))

RULES = (
    Rule("a recurrent state cannot forget", lambda f: f.recurrent, ALL),
    Rule("compressed cache", lambda f: f.architecture == "deepseek4", ALL),
    Rule("cells behind the sliding window are gone", _is_windowed, ALL - {"hole"}),
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
"""Ordered from the rule that removes most to the one that removes least."""


def memory(facts: Facts) -> Memory:
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


def repeatable(memory: Memory, piece: int) -> Memory:
    """The same memory where answers are repeatable: whatever leaves traces in what stays is missing.

    Tokens behind a hole were computed with what stood in it, and moved keys are rounded again. A state that cannot be
    cut back is saved where the course of a conversation decides, so nothing of it is reused.
    """
    why = f"{memory.why}; repeatable, in pieces of {piece} tokens"
    return replace(memory, hole=False, share=False, shift=False, checkpoint=False, piece=piece, why=why)


def is_shift_fatal(facts: Facts) -> bool:
    return any(rule.fatal and rule.holds(facts) for rule in RULES)
