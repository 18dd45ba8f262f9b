"""The fixtures of `tests/unit/cli/conftest.py`."""

from tests.unit.cli.conftest import empty_home, home, listening, logging_as_before, shared_cache  # noqa: F401
