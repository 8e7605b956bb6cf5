"""Which addresses a delivery may connect to."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Allow = Callable[[Address], bool]

# What the registries of special addresses name (https://www.iana.org/assignments/iana-ipv4-special-registry and
# iana-ipv6-special-registry), told apart by nobody's version of the standard library.
_INSIDE: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48",
        "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7",
        "fe80::/9", "ff00::/8",
    )
)  # fmt: skip
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
_TUNNELLED: Final = IPv6Network("2002::/16")


def public_addresses(address: Address) -> bool:
    """Say whether an address is one of the public internet, also behind the forms of IPv6 that carry one of IPv4."""
    carried = _carried(address)
    if carried is not None:
        return public_addresses(carried)
    return not any(_is_in(address, network) for network in _INSIDE)


def _is_in(address: Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network


def _carried(address: Address) -> IPv4Address | None:
    """Answer the IPv4 address that a mapped, translated (NAT64) or tunnelled (6to4) one leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _TUNNELLED:
        return IPv4Address((int(address) >> 80) & 0xFFFF_FFFF)
    return None
