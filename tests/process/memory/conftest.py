"""The fixtures of `tests/unit/memory/conftest.py`."""

from tests.unit.memory.conftest import connection, db, path, store  # noqa: F401
