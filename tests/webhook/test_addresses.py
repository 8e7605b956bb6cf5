"""Which addresses are of the public internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from rowsweep.webhook import public_addresses

INSIDE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "fe80::1", "fe80::1%1", "fec0::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1",
    "100::1", "2001::1", "3fff::1", "5f00::1", "64:ff9b:1::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2002:a00:1::1",
]  # fmt: skip
OUTSIDE = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "128.0.0.1", "169.253.255.255",
    "172.15.255.255", "172.32.0.1", "192.167.1.1", "198.20.0.1", "223.255.255.255",
    "2606:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_of_the_inside_is_not_public(address: str) -> None:
    """The guard: loopback, private, link-local (cloud metadata too), multicast, documentation and reserved ranges."""
    assert not public_addresses(ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    """The guard: also right beside what is not, and behind what carries it."""
    assert public_addresses(ip_address(address))
