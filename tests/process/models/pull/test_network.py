"""The tests of `tests/unit/models/pull/test_network.py` that start programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.fakes.hub import Hub
from tests.fakes.proxy import Proxy
from tests.unit.backends.cloud.test_transport import OPENSSL, certified
from tests.unit.models.pull.conftest import Puller
from tests.unit.models.pull.test_network import REPO, Content, anew, proxy  # noqa: F401 - fixtures

from shepherd.core import Refused
from shepherd.models.pull import hub as hubs
from shepherd.models.pull.network import Network


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")
async def test_a_certificate_of_ones_own_counts_in_both_halves_and_an_unknown_one_is_one_sentence(
    tmp_path: Path, content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, tls = certified(tmp_path)
    with Hub(tls) as hub, Proxy(hub.host) as proxy:
        hub.put_repo("acme/tiny-GGUF", {"tiny-Q4_K_M.gguf": content(0)})
        hub.files["m.gguf"] = content(1)
        hub.cdn = hub.url
        pull = Puller(tmp_path / "models", {"HF_ENDPOINT": hub.url})
        for source in (REPO, f"{hub.url}/files/m.gguf"):
            with pytest.raises(Refused, match=r"127.* shows a certificate that is not trusted \(self.signed .*ca_file"):
                await pull(source)
            assert pull.pauses == []
        pull.network = Network(ca_file=certificate)
        assert (await pull(REPO))[0].path.read_bytes() == content(0)
        assert (await pull(f"{hub.url}/files/m.gguf"))[0].path.read_bytes() == content(1)
        shutil.rmtree(pull.root)
        pull.network = Network(ca_file=certificate)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        await pull(REPO)
        assert proxy.seen
        assert {line.split()[0] for line in proxy.seen} == {"CONNECT"}
        proxy.login = "me:secret"
        hubs._reach.cache_clear()
        with pytest.raises(Refused, match="wants a name and a password"):
            await pull(REPO)
        assert pull.pauses == []
