"""The set of adapters of a request: equal sets are equal, and a wrong choice names those that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.backends.local.adapters import ModelAdapters, adapter_set
from shepherd.core import InvalidRequest, Request
from shepherd.models.adapter import Adapter

HASHES = ("h-law", "h-med")


def known() -> ModelAdapters:
    law = Adapter("law", Path("/x/law.gguf"), "lora", 1)
    return ModelAdapters("qwen", [law, Adapter("med", Path("/x/med.gguf"), "control", 1, 0.5, applies=False)])


def test_sets_that_add_the_same_are_equal() -> None:
    assert adapter_set([("b", 1.0), ("a", 0.1)]) == adapter_set([("a", 0.1 + 1e-12), ("b", 1.0)])
    assert adapter_set([("a", 0.25), ("a", 0.5)]) == adapter_set([("a", 0.75)])
    assert adapter_set([("a", 0.0), ("b", -0.0), ("c", 1e-60)]) == ()
    assert adapter_set([("a", 1.0), ("a", -1.0)]) == ()
    assert adapter_set([("a", 1.0)]) != adapter_set([("a", 0.5)])


def test_lora_is_stronger_than_the_name_and_the_name_than_the_default() -> None:
    adapters = known()
    both = Request("qwen:med", lora=(("law", 2.0), (1, 1.0)))
    assert adapters.of(both, HASHES) == (("h-law", 2.0), ("h-med", 1.0))
    assert adapters.of(Request("qwen:med"), HASHES) == (("h-med", 0.5),)
    assert adapters.of(Request("qwen"), HASHES) == (("h-law", 1.0),)
    assert adapters.of(Request("qwen", lora=((0, 0.0),)), HASHES) == ()
    assert adapters.of(Request("qwen", lora=((0, 1.0), (0, 0.5))), HASHES) == (("h-law", 0.5),), "the last word counts"


def test_the_defaults_can_be_set_and_a_wrong_choice_changes_nothing() -> None:
    adapters = known()
    adapters.set_scales([("med", -1.0)])
    assert adapters.of(Request("qwen"), HASHES) == (("h-med", -1.0),)
    with pytest.raises(InvalidRequest, match=r"lora\[1\].*'qwen' has no adapter 2; known: 0 \(law\), 1 \(med\)"):
        adapters.set_scales([("law", 1.0), (2, 1.0)])
    assert [state.scale for state in adapters.states()] == [0.0, -1.0]


def test_a_file_that_was_replaced_is_another_adapter() -> None:
    adapters, request = known(), Request("qwen")
    assert adapters.of(request, HASHES) != adapters.of(request, ("h-new", "h-med"))
