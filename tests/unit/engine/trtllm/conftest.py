"""The mark of tests that need NVIDIA's package."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_trtllm: compares with the real tensorrt_llm package, where it is installed"
    )
