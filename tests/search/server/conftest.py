"""The fixtures of `tests/unit/server/conftest.py`."""

from tests.unit.server.conftest import coder  # noqa: F401
