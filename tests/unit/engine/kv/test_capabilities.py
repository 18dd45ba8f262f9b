"""The capability gate: known models, and what must hold for every combination of facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shepherd.engine.base import Memory
from shepherd.engine.kv.capabilities import PLAIN_ROPE, RULES, Facts, is_shift_fatal, memory

PLAIN = Facts("llama", n_ctx_train=4096)

MODELS = [
    ("a plain model", PLAIN, Memory(True, "any", True, True, False, n_positions=4096, why="plain attention")),
    ("a long context by YaRN", replace(PLAIN, architecture="qwen3", scaling="yarn"),
     Memory(True, "any", True, False, False, n_positions=4096, why="YaRN or LongRoPE scales keys in a shift")),
    ("Phi with LongRoPE", replace(PLAIN, architecture="phi3", scaling="longrope", attn_factor=1.19),
     Memory(True, "any", True, False, False, n_positions=4096, why="YaRN or LongRoPE scales keys in a shift")),
    ("an attention factor alone", replace(PLAIN, attn_factor=1.19),
     Memory(True, "any", True, False, False, n_positions=4096, why="an attention factor scales keys in a shift")),
    ("linear scaling", replace(PLAIN, scaling="linear"),
     Memory(True, "any", True, True, False, n_positions=4096, why="plain attention")),
    ("SmolLM3, with NoPE layers", replace(PLAIN, architecture="smollm3"),
     Memory(True, "any", True, False, False, n_positions=4096, why="shift not proved for this architecture")),
    ("Qwen2-VL", replace(PLAIN, architecture="qwen2vl", rope="mrope", can_shift=False),
     Memory(True, "any", True, False, False, n_positions=4096, why="M-RoPE")),
    ("Gemma 3", replace(PLAIN, architecture="gemma3", n_swa=1024),
     Memory(True, "any", True, True, False, 1024, 4096, "plain attention")),
    ("Gemma 3 with small windows", replace(PLAIN, architecture="gemma3", n_swa=1024, swa_full=False, can_shift=False),
     Memory(True, "window", False, False, True, 1024, 4096, "cells behind the sliding window are gone")),
    ("Mamba", replace(PLAIN, architecture="mamba", rope="none", recurrent=True),
     Memory(False, "none", False, False, True, n_positions=0, why="a recurrent state cannot forget")),
    ("LFM2", replace(PLAIN, architecture="lfm2", recurrent=True),
     Memory(False, "none", False, False, True, n_positions=4096, why="a recurrent state cannot forget")),
    ("DeepSeek-V4", replace(PLAIN, architecture="deepseek4", can_shift=False),
     Memory(False, "none", False, False, False, n_positions=4096, why="compressed cache")),
    ("Step-3.5", replace(PLAIN, architecture="step35", can_shift=False),
     Memory(True, "any", True, False, False, n_positions=4096, why="the library cannot shift")),
    ("bf16 keys", replace(PLAIN, type_k="bf16"),
     Memory(True, "any", True, False, False, n_positions=4096, why="no shift of bf16 keys")),
    ("q8_0 keys", replace(PLAIN, type_k="q8_0", head_size=128),
     Memory(True, "any", True, True, False, n_positions=4096, why="plain attention")),
    ("q8_0 keys in heads of 96", replace(PLAIN, type_k="q8_0", head_size=96),
     Memory(True, "any", True, False, False, n_positions=4096,
            why="no shift of quantised keys in heads of this size")),
    ("q8_0 keys that are not rotated", replace(PLAIN, type_k="q8_0", rotated=False),
     Memory(True, "any", True, False, False, n_positions=4096,
            why="no shift of quantised keys in heads of this size")),
    ("q4_0 keys", replace(PLAIN, type_k="q4_0"),
     Memory(True, "any", True, False, False, n_positions=4096, why="keys of this type drift in a shift")),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "wanted"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS])
def test_what_may_be_done_to_known_models(facts: Facts, wanted: Memory) -> None:
    assert memory(facts) == wanted


FACTS = st.builds(
    Facts,
    architecture=st.sampled_from([*PLAIN_ROPE, "smollm3", "deepseek4", "a-new-one"]),
    rope=st.sampled_from(["none", "norm", "neox", "mrope"]),
    scaling=st.sampled_from(["none", "linear", "yarn", "longrope"]),
    attn_factor=st.sampled_from([1.0, 1.19]),
    recurrent=st.booleans(),
    n_swa=st.sampled_from([0, 128]),
    swa_full=st.booleans(),
    type_k=st.sampled_from(["f32", "f16", "bf16", "q8_0", "q5_1", "q4_0"]),
    head_size=st.sampled_from([32, 64, 80, 128]),
    rotated=st.booleans(),
    can_shift=st.booleans(),
    n_ctx_train=st.sampled_from([0, 4096]),
)

TROUBLES: list[dict[str, Any]] = [
    {"recurrent": True},
    {"architecture": "deepseek4"},
    {"architecture": "a-new-one"},
    {"n_swa": 128, "swa_full": False},
    {"scaling": "yarn"},
    {"attn_factor": 1.19},
    {"rope": "mrope"},
    {"type_k": "bf16"},
    {"type_k": "q4_0"},
    {"rotated": False},
    {"can_shift": False},
]


def strength(of: Memory) -> tuple[int, ...]:
    return (of.hole, ("none", "window", "any").index(of.rollback), of.share, of.shift)


@given(FACTS, st.sampled_from(TROUBLES))
@example(replace(PLAIN, architecture="deepseek4"), {"n_swa": 128, "swa_full": False})
def test_trouble_never_adds_a_capability(facts: Facts, trouble: dict[str, Any]) -> None:
    assume("architecture" not in trouble or facts.architecture in PLAIN_ROPE)
    before, after = memory(facts), memory(replace(facts, **trouble))
    assert all(b <= a for a, b in zip(strength(before), strength(after), strict=True))


@given(FACTS)
def test_a_shift_is_never_allowed_where_it_ends_the_process_or_was_not_proved(facts: Facts) -> None:
    if memory(facts).shift:
        assert not is_shift_fatal(facts)
        assert facts.architecture in PLAIN_ROPE
        assert facts.scaling in {"none", "linear"}


@given(FACTS)
def test_a_recurrent_state_goes_back_by_checkpoints_only(facts: Facts) -> None:
    if facts.recurrent:
        assert strength(memory(facts)) == (0, 0, 0, 0)
        assert memory(facts).checkpoint


@given(FACTS)
def test_holes_do_not_depend_on_rope_nor_on_cache_types(facts: Facts) -> None:
    assert memory(facts).hole == (not facts.recurrent and facts.architecture != "deepseek4")


@given(FACTS)
def test_every_loss_has_its_reason(facts: Facts) -> None:
    found = memory(facts)
    assert (found.why == "plain attention") == (strength(found) == (1, 2, 1, 1))
    assert set(found.why.split("; ")) <= {rule.why for rule in RULES} | {"plain attention"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.why)
def test_every_rule_decides_something_alone(rule: Any) -> None:
    """A row that no model needs would never be missed."""
    assert any(rule.why in row[2].why for row in MODELS)
