"""The tests of `tests/process/app/test_derivation.py` that take long."""

from __future__ import annotations

import pytest
from tests.unit.dialects.test_derive import CALLS, template

from shepherd.app.directory.entries import derived_dialect

ENDLESS = "".join(f"{{% for {name} in range(99999) %}}" for name in "abc") + "{% endfor %}" * 3


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS,
        "{{ 'x' * 99999999999 }}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for",
        "{{ ''.__class__.__mro__ }}",
        "x" * 300_000,
    ],
)
def test_a_hostile_template_derives_nothing(source: str) -> None:
    assert derived_dialect(source + "{# tool_calls #}", deadline_s=1.0) is None


def test_a_template_that_prints_without_end_derives_nothing() -> None:
    bomb = template(CALLS["json"]).replace("<|call|>", "{% for i in range(99999) %}<|call|>{% endfor %}")
    assert derived_dialect(bomb, deadline_s=2.0) is None
