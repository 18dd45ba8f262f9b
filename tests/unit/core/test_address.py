"""Which addresses are public, private, or closed to all."""

import pytest

from shepherd.core.address import classify

PLACES = {
    "world": [
        "1.1.1.1",
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "168.63.129.15",
        "168.63.129.17",
        "191.255.255.255",
        "192.0.1.0",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "2002:808:808::1",
        "64:ff9b::808:808",
    ],
    "near": [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "100.100.100.201",
        "fd00:ec2::253",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "fc00::1",
        "fd12::1",
        "fec0::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
    ],
    "nowhere": [
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.0",
        "192.0.0.9",
        "192.0.0.10",
        "192.0.0.192",
        "192.0.0.255",
        "100.100.100.200",
        "fd00:ec2::254",
        "::ffff:168.63.129.16",
        "64:ff9b::a83f:8110",
        "2002:c000:c0::1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "not an address",
    ],
}


@pytest.mark.parametrize(("place", "address"), [(place, each) for place, all_ in PLACES.items() for each in all_])
def test_an_address_is_out_in_the_world_near_us_or_closed_to_all(place: str, address: str) -> None:
    assert classify(address) == place
