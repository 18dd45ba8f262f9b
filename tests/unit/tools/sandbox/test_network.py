"""Which addresses may be called: how URLs are read, and where their hosts turn out to be."""

import asyncio
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.network import Address, NetworkPolicy


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://example.com", "example.com", 80, "/"),
        ("  HTTPS://Example.COM./a b?q=ä#part ", "example.com", 443, "/a%20b?q=%C3%A4"),
        ("http://h/%41?a=%2F&b=[1]", "h", 80, "/%41?a=%2F&b=[1]"),
        ("http://[::1]:8080/x", "::1", 8080, "/x"),
        ("http://例え.jp/", "xn--r8jz45g.jp", 80, "/"),
        ("http://①②⑦.0.0.1/", "127.0.0.1", 80, "/"),
        ("http://public.example@inner/", "inner", 80, "/"),
        ("http://inner/#@public.example", "inner", 80, "/"),
    ],
)
def test_a_url_is_read_in_one_way(url: str, host: str, port: int, path: str) -> None:
    target = Address.of(url)
    assert (target.host, target.port, target.path) == (host, port, path)
    assert Address.of(target.url).url == target.url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("example.com/x", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("gopher://x", "must begin with"),
        ("", "must begin with"),
        ("http://", "names no host"),
        ("http://./", "names no host"),
        ("http://a b/", "is not a name"),
        ("http://a%2eb/", "is not a name"),
        ("http://127.0.0.1%00.example/", "is not a name"),
        ("http://[fe80::1%25eth0]/", "is not a name"),
        ("http://h:99999/", "is not a URL"),
        ("http://h:x/", "is not a URL"),
        ("http://h:0/", "port 0"),
        ("http://[::1/", "is not a URL"),
        ("http://public.example\\@127.0.0.1/", "backslash"),
        ("http://h/\r\nHost: other", "control character"),
        ("http://h/\0", "control character"),
        ("http://h/" + "x" * 20_000, "20009 characters; at most 16384"),
        ("http://" + "ä" * 70 + ".example/", "is not a name"),
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        Address.of(url)
    assert says in refused.value.message


@given(st.text(max_size=60).map(lambda text: "http://" + text) | st.text(max_size=30))
def test_any_text_is_a_target_or_a_sentence(url: str) -> None:
    try:
        target = Address.of(url)
    except ToolError:
        return
    f"{target.authority}{target.path}".encode("ascii")
    assert not set(target.authority + target.path) & set("\r\n\0\\ ")


def reach(addresses: Sequence[str], **options: object) -> NetworkPolicy:
    async def lookup(host: str, port: int) -> Sequence[str]:
        return addresses

    return NetworkPolicy(lookup=lookup, **options)  # type: ignore[arg-type]  # a table of options


@pytest.mark.parametrize(
    ("found", "options", "allowed"),
    [
        (["8.8.8.8"], {}, ["8.8.8.8"]),
        (["127.0.0.1"], {}, None),
        (["10.0.0.1", "8.8.8.8", "::1"], {}, ["8.8.8.8"]),
        (["127.0.0.1", "169.254.169.254"], {"allow_private": True}, ["127.0.0.1"]),
        (["169.254.169.254"], {"allow_private": True}, None),
        (["169.254.169.254"], {"allow_hosts": ("h.example",)}, ["169.254.169.254"]),
        (["10.0.0.1"], {"allow_hosts": ("*.EXAMPLE",)}, ["10.0.0.1"]),
        (["10.0.0.1"], {"allow_hosts": ("h.example:8080",)}, ["10.0.0.1"]),
        (["10.0.0.1"], {"allow_hosts": ("h.example:80", "example")}, None),
        ([], {}, None),
    ],
)
async def test_only_addresses_that_may_be_called_are_given(
    found: list[str], options: dict[str, object], allowed: list[str] | None
) -> None:
    target = Address.of("http://h.example:8080/")
    if allowed is not None:
        assert await reach(found, **options).addresses(target) == allowed
        return
    with pytest.raises(ToolError, match="not an address of the public internet") as refused:
        await reach(found, **options).addresses(target)
    assert "tools.http.allow_hosts = ['h.example']" in refused.value.message


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "0", "[::1]", "[::ffff:7f00:1]"]
)
async def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(ToolError) as refused:
        await NetworkPolicy().addresses(Address.of(f"http://{host}/"))
    assert "not an address of the public internet" in refused.value.message
    assert "allow_private" in refused.value.message


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid", "a..b", "1.2.3.4.5"])
async def test_a_host_that_no_name_server_knows_is_named(host: str) -> None:
    with pytest.raises(ToolError, match="is not known"):
        await NetworkPolicy().addresses(Address.of(f"http://{host}/"))


async def test_a_name_server_that_fails_is_named() -> None:
    async def lookup(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(0)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(ToolError, match=r"'h' is not known .Temporary failure"):
        await NetworkPolicy(lookup=lookup).addresses(Address.of("http://h/"))
