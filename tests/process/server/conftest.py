"""The fixtures of `tests/unit/server/conftest.py`."""

from tests.unit.server.conftest import coder, own_listening  # noqa: F401
