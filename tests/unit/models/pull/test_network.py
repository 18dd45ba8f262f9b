"""Proxies and certificates, in both halves of a pull: the hub's library, and the transfer of the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.hub import Hub
from tests.fakes.proxy import Proxy
from tests.unit.models.pull.conftest import Puller

from shepherd.core import BackendError, ConfigError, Refused
from shepherd.models.pull import hub as hubs
from shepherd.models.pull.network import Network
from shepherd.models.pull.transfer import CHUNK_BYTES, Waiting

Content = Callable[[int], bytes]
REPO = "hf:acme/tiny-GGUF:Q4_K_M"
VARIABLES = [name for word in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (word, word.upper())]


@pytest.fixture(autouse=True)
def anew(hub: Hub, content: Content, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library's client reads the variables when it is made."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    hub.put_repo("acme/tiny-GGUF", {"tiny-Q4_K_M.gguf": content(0)})
    hub.cdn = "http://cdn.invalid"
    hubs._reach.cache_clear()
    yield
    hubs._reach.cache_clear()


@pytest.fixture
def proxy(hub: Hub) -> Iterator[Proxy]:
    with Proxy(hub.host) as proxy:
        yield proxy


@pytest.fixture
def away(pull: Puller) -> Puller:
    """Pulls from a hub that only a proxy reaches."""
    pull.env["HF_ENDPOINT"] = "http://hub.invalid"
    return pull


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_has_every_request(
    away: Puller, proxy: Proxy, content: Content, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, proxy.url)
    assert (await away(REPO))[0].path.read_bytes() == content(0)
    assert [line.split("/")[2] for line in proxy.seen] == ["hub.invalid", "hub.invalid", "cdn.invalid"]


async def test_hosts_of_no_proxy_are_reached_without_it(
    hub: Hub, pull: Puller, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    await pull(REPO)
    assert [line.split("/")[2] for line in proxy.seen] == ["cdn.invalid"]


async def test_the_configured_proxy_counts_before_that_of_the_environment_and_not_for_this_machine(
    hub: Hub, away: Puller, proxy: Proxy, content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    away.network = Network(proxy.url)
    assert (await away(REPO))[0].path.read_bytes() == content(0)
    assert len(proxy.seen) == 3
    hub.put_ollama("library/tiny/1b", {"model": content(1)})
    await away(f"ollama:{hub.host}/library/tiny:1b")
    assert len(proxy.seen) == 3, "the registry is on this machine"


async def test_without_a_proxy_means_without_one(
    hub: Hub, pull: Puller, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy.url)
    pull.network = Network("none")
    hub.cdn = hub.url.replace("127.0.0.1", "localhost")
    await pull(REPO)
    assert proxy.seen == []


LOGINS = {"hub": REPO, "registry": "ollama:registry.invalid/library/tiny:1b", "address": "http://files.invalid/m.gguf"}


@pytest.mark.parametrize("source", LOGINS.values(), ids=LOGINS)
async def test_a_proxy_that_wants_a_password_is_one_sentence_and_with_it_all_goes_well(
    away: Puller, hub: Hub, proxy: Proxy, source: str
) -> None:
    proxy.login = "me:secret"
    away.network = Network(proxy.url)
    with pytest.raises(
        Refused, match=r"the proxy on the way to .*\.invalid.* wants a name and a password \(HTTP 407\)"
    ):
        await away(source)
    assert away.pauses == [], "a second attempt would end like the first"
    if source == REPO:
        away.network = Network(proxy.url.replace("//", "//me:secret@"))
        model, _ = await away(source)
        assert not any(b"secret" in path.read_bytes() for path in away.root.rglob("*") if path.is_file())
        assert model.path.is_file()


async def test_a_proxy_that_dies_half_way_costs_what_was_on_its_way(
    away: Puller, hub: Hub, proxy: Proxy, content: Content
) -> None:
    proxy.cuts += [CHUNK_BYTES + 200_000, 5000]
    away.network = Network(proxy.url)
    assert (await away(REPO))[0].path.read_bytes() == content(0)
    assert len([event for event in away.events if isinstance(event, Waiting)]) == 2
    starts = [int(text.removeprefix("bytes=").partition("-")[0]) for text in hub.ranges("cdn")]
    assert 0 == starts[0] < CHUNK_BYTES < starts[1] < starts[2]


async def test_a_proxy_that_is_not_there_is_one_sentence(away: Puller) -> None:
    away.network = Network("http://127.0.0.1:9")
    with pytest.raises(BackendError, match=r"the connection to hub\.invalid failed .* HTTPS_PROXY"):
        await away(REPO, attempts=1)


async def test_a_proxy_or_certificates_that_cannot_be_used_are_one_sentence(pull: Puller, tmp_path: Path) -> None:
    for network in (Network("socks5://127.0.0.1:9"), Network(ca_file=str(tmp_path / "none.pem"))):
        pull.network = network
        with pytest.raises(ConfigError, match=r"of \[network\], or of the environment, cannot be used"):
            await pull(REPO)
