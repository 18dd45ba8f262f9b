"""The fixtures of `tests/unit/models/pull/conftest.py`."""

from tests.unit.models.pull.conftest import content, hub, pull  # noqa: F401
