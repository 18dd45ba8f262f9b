"""This machine is measured by models of zeros, in processes of their own, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.core import EngineError
from shepherd.measure import speed
from shepherd.measure.speed import Shape
from shepherd.models import plan

pytestmark = pytest.mark.model
TINY = {
    "wide": Shape(2, 256, 512, 4, 2),
    "short": Shape(2, 256, 256, 4, 2, 1024),
    "long": Shape(2, 64, 64, 2, 1),
    "flat": Shape(4, 32, 32, 1, 1),
}


def test_a_machine_is_measured_once_for_each_number_format(tmp_path: Path) -> None:
    said = list[str]()

    def rates(*kinds: str) -> plan.Rates:
        return speed.measured_rates(
            kinds, n_threads=1, gpu_layers=0, cache_folder=tmp_path, say=said.append, shapes=TINY, repeat_s=0.0
        )

    first = rates("q8_0")
    assert said == ["measuring this machine, once: 5 measurements of about 2 s"]
    assert rates("q8_0") == first
    assert len(said) == 1
    both = rates("q8_0", "q4_K", "i8", "of-tomorrow")
    assert said[1:] == ["measuring this machine, once: 2 measurements of about 2 s"]
    assert set(both.weights) == {"q8_0", "q4_K", ""}


def test_a_model_of_zeros_that_cannot_be_computed_is_one_sentence(tmp_path: Path) -> None:
    odd = TINY | {"wide": Shape(2, 256, 512, 4, 3)}
    with pytest.raises(EngineError, match="the speed of this machine cannot be measured: "):
        speed.measured_rates(("q8_0",), n_threads=1, gpu_layers=0, cache_folder=tmp_path, shapes=odd, repeat_s=0.0)
