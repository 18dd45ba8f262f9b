"""OpenAI's own client, which retries nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
from tests.own_server import Listening

from shepherd.server.app import Service


def openai_at(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


@asynccontextmanager
async def connecting(listening: Listening, service: Service, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    """To a server of its own."""
    async with (
        listening(service, **options) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client
