"""The kinds of IP addresses: public, private, and those that nothing may call. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

WORLD = IPv6Network("2000::/3")
"""The public part of IPv6."""
EMBEDDING = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Where the last four bytes are an IPv4 address: NAT64, and the deprecated form."""

CLOUD = tuple(map(ip_network, ("168.63.129.16", "192.0.0.0/24", "100.100.100.200", "fd00:ec2::254")))
"""Where clouds hand out passwords besides the link-local addresses: Azure, Oracle, Alibaba, Amazon. 192.0.0.0/24 is
reserved for protocols."""

IP = IPv4Address | IPv6Address
AddressClass = Literal["world", "near", "nowhere"]


def classify(text: str) -> AddressClass:
    """Whether an address is public ("world"), private ("near"), or closed to every tool ("nowhere")."""
    try:
        address = ip_address(text)
    except ValueError:
        return "nowhere"
    places = {classify_alone(each) for each in (address, *embedded(address))}
    return "nowhere" if "nowhere" in places else "near" if "near" in places else "world"


def classify_alone(address: IP) -> AddressClass:
    if address.is_unspecified or address.is_loopback:
        return "near"
    is_old = isinstance(address, IPv4Address)
    if any(address in each for each in CLOUD):
        return "nowhere"
    if address.is_link_local or address.is_multicast or (is_old and address.is_reserved):
        return "nowhere"
    return "world" if address.is_global and (is_old or address in WORLD or embedded(address)) else "near"


def embedded(address: IP) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for, or passes through."""
    if isinstance(address, IPv4Address):
        return []
    teredo = address.teredo or ()
    last = [IPv4Address(int(address) & 0xFFFFFFFF)] if any(address in net for net in EMBEDDING) else []
    if address.is_unspecified or address.is_loopback:
        last = []
    return [each for each in (address.ipv4_mapped, address.sixtofour, *teredo, *last) if each is not None]
