"""Back ends for tests."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.backends.local.serving import Make, making


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """`backend, runtime = make("an answer", ...)`."""
    async with making() as made:
        yield made
