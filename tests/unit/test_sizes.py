"""No room grows without its row in `tests/sizes.toml`."""

from tests import sizes


def test_no_room_has_grown_beyond_its_limit_and_a_planted_one_is_caught() -> None:
    measured, limits = sizes.measured(), sizes.limits()
    assert sizes.faults(measured, limits) == []
    grown, unknown, gone = sizes.faults({**measured, "core": 10**6, "attic": 1}, {**limits, "cellar": 1})
    assert grown.startswith("core has 1000000 lines")
    assert "'attic' = 10" in unknown
    assert gone.startswith("cellar is no room")
