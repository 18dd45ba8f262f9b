"""Real servers from npm are started in `make clients` only, as all programs of others are."""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clients: runs programs of others; `make clients`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = "clients" in (config.option.markexpr or "")
    return True if collection_path.name == "test_real_servers.py" and not wanted else None
