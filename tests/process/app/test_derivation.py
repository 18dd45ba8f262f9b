"""Deriving from templates that are not ours: none of them can hang, exhaust or break the program."""

from __future__ import annotations

from tests.unit.dialects.test_derive import CALLS, template

from shepherd.app.directory.entries import derived_dialect


def test_a_template_is_derived_in_a_process_of_its_own() -> None:
    found = derived_dialect(template(CALLS["json"]))
    assert found is not None
    assert found.name == "derived"
    assert [block.opener for block in found.markup.blocks] == ["<|call|>"]
    assert derived_dialect(template(CALLS["json"])) is found
