"""A real upstream: another Shepherd with the embedded model, behind three protocols."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.own_server import serving

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.core import ContextFull, Evicted, Message, Request, fold
from shepherd.wire.signature import Protocol

CONFIG = """
[caches.small]
n_ctx = 1024
"""
PROTOCOLS: tuple[tuple[str, Protocol], ...] = (
    ("shepherd", "openai.chat"),
    ("openai", "openai.responses"),
    ("anthropic", "anthropic"),
)
TURNS = (
    *(message for n in range(12) for message in (Message.user(f"Count to {n}. " * 20), Message.assistant("1, 2, 3"))),
    Message.user("Say hello."),
)


@pytest.mark.model
async def test_another_shepherd(tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG) as address:
        for kind, protocol in PROTOCOLS:
            provider = provider_of(KINDS[kind], base_url=address, key="right-key-0123", protocol=protocol)
            backend = CloudBackend(provider, timeouts=Timeouts(attempts=1))
            name = (await backend.models())[0].id
            request = Request(name, (Message.user("Say hello."),), max_tokens=8)
            reply = fold([event async for event in backend.stream(request)])
            assert reply.usage.prompt > 0, protocol
            assert 0 < reply.usage.output <= 8, protocol
            count = await backend.count(request)
            assert (count.tokens > 0, count.is_exact) == (True, protocol != "openai.chat"), protocol
            long = Request(name, TURNS, max_tokens=8)
            with pytest.raises(ContextFull) as full:
                [event async for event in backend.stream(long)]
            assert full.value.limit == 1024, protocol
            assert full.value.needed > 1024, protocol
            evicting = Request(name, TURNS, max_tokens=8, on_full="evict")
            events = [event async for event in backend.stream(evicting)]
            assert any(isinstance(event, Evicted) for event in events), protocol
            fold(events)
            await backend.aclose()
