"""Whether a worker is asked, and what is said where it does not answer as one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from tests.fakes.rpc_worker import HANG, answering, devices, framed, greeting, memory

from shepherd.core import ConfigError, EngineDown, ShepherdError
from shepherd.engine.llamacpp import rpc
from shepherd.engine.llamacpp.rpc_worker import address_of, networks_of

OURS = rpc.protocol() or (0, 0, 0)
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def test_the_version_of_the_protocol_is_that_of_the_library_here() -> None:
    assert OURS >= (7, 0, 0)


def test_a_worker_that_answers_says_what_its_devices_have() -> None:
    newer_patch = (*OURS[:2], OURS[2] + 1)
    with answering(greeting(*newer_patch), devices(2), memory(3 << 30, 4 << 30), memory(1 << 30, 1 << 30)) as server:
        assert rpc.probe(server) == rpc.Probed(server, (3 << 30, 1 << 30))


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            [greeting(OURS[0] - 1, 9, 3)],
            rf"speaks version {OURS[0] - 1}\.9\.3 .* and this machine {OURS[0]}\.{OURS[1]}",
        ),
        (
            [greeting(OURS[0], OURS[1] + 1, 0)],
            rf"speaks version {OURS[0]}\.{OURS[1] + 1}\.0 .* install the same version",
        ),
        ([framed(bytes([2, 0, 0]))], r"speaks version 2\.0\.0 of the protocol"),  # before greetings had capabilities
        ([HTTP], "is no RPC worker of llama.cpp: it does not answer as one; check the port"),
        ([framed(b"\7")], "is no RPC worker"),
        ([framed(bytes(300))], "is no RPC worker"),
        ([greeting(*OURS), framed(b"four")[:-1] + b"\0"], r"reports \d+ devices; it needs 1 to 64"),
        ([greeting(*OURS), devices(0)], "reports 0 devices"),
        ([greeting(*OURS), framed(b"")], "is no RPC worker"),
        ([greeting(*OURS), devices(1), framed(bytes(8))], "is no RPC worker"),
        ([], "closes the connection: it does not allow this machine, it serves as many clients as it may"),
        ([greeting(*OURS)], "closes the connection"),
        ([greeting(*OURS)[:20]], "closes the connection"),
    ],
)
def test_what_is_no_worker_of_this_version_is_one_sentence(answers: Sequence[bytes], words: str) -> None:
    with answering(*answers) as server, pytest.raises(EngineDown, match=words) as caught:
        rpc.probe(server)
    assert server in caught.value.message


@pytest.mark.parametrize("answers", [[HANG], [greeting(*OURS), HANG]])
def test_a_worker_that_hangs_is_given_up(answers: Sequence[bytes | None]) -> None:
    with (
        answering(*answers) as server,
        pytest.raises(EngineDown, match=r"does not answer within 0\.05 s: its machine is off"),
    ):
        rpc.probe(server, timeout_s=0.05)


def test_where_nothing_listens_the_sentence_names_the_command() -> None:
    with answering() as server:
        pass
    with pytest.raises(EngineDown, match=rf"nothing listens at {server}; start 'shepherd rpc-worker' there"):
        rpc.probe(server)


@pytest.mark.parametrize(
    ("server", "found", "words"),
    [
        (
            "1.1.1.1:50052",
            ["1.1.1.1"],
            r"the worker 1\.1\.1\.1:50052 is not an address of this machine or of a private",
        ),
        (
            "box.example:50052",
            ["10.0.0.5", "8.8.8.8"],
            r"the worker box\.example:50052 \(8\.8\.8\.8\) is not an address",
        ),
        ("cloud:50052", ["169.254.169.254"], r"\(169\.254\.169\.254\) is not an address"),
        ("all:50052", ["0.0.0.0"], r"\(0\.0\.0\.0\) is not an address"),
        ("six:50052", [], r"the worker six:50052 has no IPv4 address"),
        ("nobody:50052", OSError(-2, "Name or service not known"), r"nobody:50052 is not known \(Name or service not"),
    ],
)
def test_only_a_private_address_is_asked(server: str, found: list[str] | OSError, words: str) -> None:
    def lookup(host: str, port: int) -> list[str]:
        assert f"{host}:{port}" == server
        if isinstance(found, OSError):
            raise found
        return found

    with pytest.raises(ShepherdError, match=words):
        rpc.resolve(server, lookup)


def test_a_name_is_looked_up_once_and_its_address_is_what_the_library_gets() -> None:
    names: list[str] = []

    def lookup(host: str, port: int) -> list[str]:
        names.append(host)
        return ["127.0.0.1"]

    with answering(greeting(*OURS), devices(1), memory(5, 6)) as server:
        port = server.rpartition(":")[2]
        assert rpc.probe(f"box.lan:{port}", lookup=lookup) == rpc.Probed(server, (5,))
    assert names == ["box.lan"]


def test_a_worker_with_two_names_counts_once() -> None:
    with answering(greeting(*OURS), devices(1), memory(5, 6)) as server:
        names = (server, server.replace("127.0.0.1", "box.lan"))
        assert rpc.probe_all(names, lambda host, port: ["127.0.0.1"]) == (rpc.Probed(server, (5,)),)


# -- the other side ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("0.0.0.0", r"--host: 0\.0\.0\.0 is every network of this machine"),
        ("1.1.1.1", r"--host: 1\.1\.1\.1 is no private address"),
        ("169.254.169.254", "is no private address"),
        ("::1", "is no address of this machine"),
    ],
)
def test_a_worker_listens_at_private_addresses_only(host: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        address_of(host, 1)
    assert address_of("localhost", 1) == ("127.0.0.1", 1)
    assert address_of("10.0.0.5", 1) == ("10.0.0.5", 1)


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ([], r"--allow: name the machines that may connect to 10\.0\.0\.5"),
        (["box"], "'box' is neither an address nor a network; write 10.0.0.4 or 10.0.0.0/24"),
        (["10.0.0.0/33"], "is neither an address nor a network"),
        (["fd00::/8"], "is IPv6"),
        (["10.0.0.4", "8.8.8.8"], r"8\.8\.8\.8 holds public addresses"),
        (["0.0.0.0/0"], "holds public addresses"),
        (["10.0.0.0/7"], "holds public addresses"),
    ],
)
def test_clients_are_named_and_private(allow: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        networks_of(allow, "10.0.0.5")


def test_a_worker_at_loopback_serves_its_own_machine_unless_others_are_named() -> None:
    assert [*map(str, networks_of([], "127.0.0.1"))] == ["127.0.0.0/8"]
    assert [*map(str, networks_of(["10.0.0.4", "10.1.2.3/24"], "10.0.0.5"))] == ["10.0.0.4/32", "10.1.2.0/24"]
    assert re.fullmatch(r"127\.0\.0\.2/32", str(networks_of(["127.0.0.2"], "127.0.0.1")[0]))
