"""Certificates of the server: what cannot be used is a sentence that names its field, before the port opens."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from tests import command_line
from tests.places import ROOT
from tests.scripted_service import ScriptedService, saying

from shepherd.cli.command import server_client
from shepherd.core import ConfigError, Refused, Unreachable
from shepherd.server.app import create_app, serve
from shepherd.server.http.listen import loop_factory
from shepherd.server.http.tls import MOST_BYTES, SOON_S, Certificate, find_faults, trusting

DATA = ROOT / "tests" / "data" / "tls"
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of `DATA`, with keys that only their owner can read."""
    found = shutil.copytree(DATA, tmp_path / "tls")
    for key in found.glob("*.key"):
        key.chmod(0o600)
    (found / "notes.txt").write_text("no certificate\n")
    (found / "folder.pem").mkdir()
    (found / "large.pem").write_bytes(b"-" * (MOST_BYTES + 1))
    (found / "cut.pem").write_text((found / "server.pem").read_text()[:200])
    (found / "binary.pem").write_bytes(ssl.PEM_cert_to_DER_cert((found / "other.pem").read_text()))
    (found / "half.pem").write_text((found / "server.pem").read_text() + (found / "ca.pem").read_text()[:200])
    os.mkfifo(found / "pipe.pem")
    return found


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("missing.pem", "server.key", r"^server\.tls_cert: .*missing\.pem cannot be read: No such file"),
        ("server.pem", "missing.key", r"^server\.tls_key: .*missing\.key cannot be read: No such file"),
        ("folder.pem", "server.key", r"^server\.tls_cert: .*folder\.pem is no file"),
        ("pipe.pem", "server.key", r"^server\.tls_cert: .*pipe\.pem is no file"),
        ("large.pem", "server.key", r"^server\.tls_cert: .*it has more than 1,048,576 bytes"),
        ("notes.txt", "server.key", r"^server\.tls_cert: .*notes\.txt holds no certificate that can be read"),
        ("binary.pem", "other.key", r"^server\.tls_cert: .*binary\.pem holds no certificate that can be read"),
        ("cut.pem", "server.key", r"^server\.tls_cert: .*cut\.pem holds no certificate that can be read"),
        ("half.pem", "server.key", r"^server\.tls_cert: certificate 3 of 3 in .*half\.pem is none that can be read"),
        ("server.key", "server.pem", r"^server\.tls_cert: .*server\.key holds no certificate that can be read"),
        ("server.pem", "notes.txt", r"^server\.tls_key: .*notes\.txt holds no private key that can be read"),
        ("server.pem", "ca.pem", r"^server\.tls_key: .*ca\.pem holds no private key that can be read"),
        ("server.pem", "other.key", r"^server\.tls_key: .*other\.key does not belong to the first certificate in"),
        ("weak.pem", "weak.key", r"^server\.tls_cert: .*weak\.pem is too weak to be safe"),
        ("server.pem", "locked.key", r"^server\.tls_key: .*locked\.key has a password; write one without: openssl"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_with_its_field(folder: Path, cert: str, key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Certificate(str(folder / cert), str(folder / key))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tls-cert", "server.pem"), "needs server.tls_key as well (--tls-key)"),
        (("--tls-key", "server.key"), "needs server.tls_cert as well (--tls-cert)"),
        (("--tls-cert", "server.pem", "--tls-key", "other.key"), "other.key does not belong to the first certificate"),
        (("--tls-cert", "missing.pem", "--tls-key", "server.key"), "missing.pem cannot be read"),
    ],
)
def test_a_start_that_cannot_be_is_one_sentence(folder: Path, words: tuple[str, ...], told: str) -> None:
    done = command_line.run("serve", "--port", "0", *words, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("shepherd: ")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_certificate_that_clients_will_refuse_is_a_warning(folder: Path) -> None:
    cert, key = str(folder / "server.pem"), str(folder / "server.key")
    assert find_faults(cert, key) == []
    expired = str(folder / "expired.pem")
    told = f"clients will refuse the certificate {expired}: certificate has expired; renew it"
    assert find_faults(expired, key) == [told]
    curve = str(folder / "curve.pem")
    told = f"clients will refuse the certificate {curve}: no shared cipher; renew it"
    assert find_faults(curve, str(folder / "curve.key")) == [told]
    ends = "Nov  4 00:58:17 2126 GMT"
    soon = ssl.cert_time_to_seconds(ends) - SOON_S / 2
    assert find_faults(cert, key, now_s=soon) == [f"the certificate {cert} expires in 7.0 days; renew it before"]


def test_a_key_that_everybody_can_read_is_a_warning(folder: Path) -> None:
    key = folder / "server.key"
    key.chmod(0o644)
    told = f"every user of this machine can read the key {key}; run chmod 600 on it"
    assert find_faults(str(folder / "server.pem"), str(key)) == [told]


def test_certificates_of_the_environment_that_cannot_be_read_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("missing.pem", "notes.txt"):
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / name))
        with pytest.raises(ConfigError, match=rf"^SSL_CERT_FILE names '.*{name}', from which no certificate"):
            server_client.connect(server_client.Address("https://127.0.0.1:1"))


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """The port of a server that says "Hello there"."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = create_app(ScriptedService(saying("Hello there")))
    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=0, on_ready=ready.set_result, tls=tls))
    try:
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        yield ready.result()
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def answer(url: str, verify: ssl.SSLContext) -> str:
    with httpx2.Client(base_url=url, verify=verify, trust_env=False, timeout=60.0) as client:
        return client.post("/v1/chat/completions", json=CHAT).text


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, loop_factory()])
def test_a_stream_is_whole_and_nothing_of_it_can_be_read_on_the_way(folder: Path, loop: type) -> None:
    """Our transport writes to the socket itself where there is no TLS."""
    seen = bytearray()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            seen.extend(content)
            writer.write(content)
        writer.close()

    async def main() -> None:
        async with listening(Certificate(str(folder / "server.pem"), str(folder / "server.key")).context) as port:

            async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

            async with await asyncio.start_server(between, "127.0.0.1", 0) as wire:
                url = f"https://127.0.0.1:{wire.sockets[0].getsockname()[1]}"
                trusted = ssl.create_default_context(cafile=str(folder / "ca.pem"))
                told = await asyncio.to_thread(answer, url, trusted)
                assert "Hello there" in told
                assert told.rstrip().endswith("data: [DONE]")
        assert len(seen) > len(told)
        assert b"Hello" not in seen
        assert b"HTTP/1.1" not in seen

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_a_renewed_certificate_counts_from_the_next_connection_on(folder: Path) -> None:
    cert, key = folder / "server.pem", folder / "server.key"
    async with listening(Certificate(str(cert), str(key)).context) as port:
        url = f"https://127.0.0.1:{port}"
        first, second = trusting(str(folder / "server.pem")), trusting(str(folder / "other.pem"))
        await asyncio.to_thread(answer, url, first)
        shutil.copy(folder / "other.pem", cert)  # half of the pair has changed: the old one stays
        await asyncio.to_thread(answer, url, first)
        shutil.copy(folder / "other.key", key)
        await asyncio.to_thread(answer, url, second)
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await asyncio.to_thread(answer, url, first)


async def test_a_client_without_tls_harms_nobody_and_fills_no_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = str(folder / "server.pem"), str(folder / "server.key")
    async with listening(Certificate(*pair).context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in await reader.read()
        writer.close()
        assert "Hello there" in await asyncio.to_thread(answer, f"https://127.0.0.1:{port}", trusting(pair[0]))
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []


async def test_our_commands_say_which_way_a_server_is_reached(folder: Path) -> None:
    pair = str(folder / "server.pem"), str(folder / "server.key")

    def failure(url: str, certificate: str | None = None) -> Exception:
        with server_client.connect(server_client.Address(url, None, certificate)) as client:
            try:
                assert client.get("/health").status_code == 200
            except httpx2.TransportError as error:
                return server_client.transport_error(error, url, 10.0)
        return Exception("")

    async with listening(Certificate(*pair).context) as port, listening(None) as plain:
        url = f"https://127.0.0.1:{port}"
        assert str(await asyncio.to_thread(failure, url, pair[0])) == ""
        refused = await asyncio.to_thread(failure, url)
        assert isinstance(refused, Refused)
        assert "shows a certificate that is not trusted" in str(refused)
        assert "SSL_CERT_FILE" in str(refused)
        assert isinstance(await asyncio.to_thread(failure, url, str(folder / "other.pem")), Refused)
        to_tls = await asyncio.to_thread(failure, f"http://127.0.0.1:{port}")
        assert isinstance(to_tls, Unreachable)
        assert "a server with a certificate is reached at https://" in str(to_tls)
        with pytest.raises(ConfigError, match="cannot be read"):
            server_client.connect(server_client.Address(url, None, str(folder / "missing.pem")))
        to_plain = await asyncio.to_thread(failure, f"https://127.0.0.1:{plain}")
        assert isinstance(to_plain, Unreachable)
        assert "a server without a certificate is reached at http://" in str(to_plain)
