"""Which addresses belong to the public internet.

`ipaddress.is_global` does not answer that: in Python 3.11 it is true for multicast, for
``64:ff9b::7f00:1`` (127.0.0.1 behind NAT64), ``2002:7f00:1::`` (6to4), ``::127.0.0.1``,
``fec0::1``, ``3fff::1`` and ``192.88.99.1``. So the list is our own.
Source: IANA's special-purpose addresses of IPv4 (RFC 6890) and IPv6.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; also metadata services of some clouds
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that IANA gives out for unicast; outside are loopback, private, link-local, multicast, every
form of ``::a.b.c.d``, and NAT64 of one's own (``64:ff9b:1::/48``)."""
_NOT_PUBLIC_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: stands for an IPv4 address
        "3ffe::/16",  # 6bone, given back
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one reaches (mapped, or by NAT64), or `address`."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & _LAST_32_BITS)
    return address


def is_public(address: Address) -> bool:
    """Return True if an address, or the one that it stands for, is on the public internet.

    6to4, Teredo and addresses with a zone are refused whatever they stand for.
    """
    address = unwrapped(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.scope_id is not None or address not in _GLOBAL_V6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_V6)
