"""The tests of `tests/unit/backends/cloud/test_transport.py` that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.providers_replay import replaying
from tests.unit.backends.cloud.providing import (
    KEY,
    asking,
    spoken,
)
from tests.unit.backends.cloud.test_transport import ONCE, OPENSSL, certified

from shepherd.backends.cloud.backend import CloudBackend
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.backends.cloud.transport import Deadlines, Transport
from shepherd.core import (
    Finished,
    Unreachable,
)


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")
async def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    certificate, tls = certified(tmp_path)
    async with replaying(spoken(), spoken(), tls=tls) as server:
        provider = provider_of(KINDS["openai_compat"], base_url=server.url, key=KEY)
        for ca_file, is_trusted in ((certificate, True), (None, False)):
            transport = Transport(provider, ca_file=ca_file, deadlines=Deadlines(connect=5))
            backend = CloudBackend(provider, transport=transport, timeouts=ONCE)
            if is_trusted:
                assert isinstance([event async for event in backend.stream(asking())][-1], Finished)
            else:
                with pytest.raises(Unreachable, match=r"(?i)certificate"):
                    [event async for event in backend.stream(asking())]
            await backend.aclose()
