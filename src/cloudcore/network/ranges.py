"""Parse IP networks in requests: for VPCs, subnets and routes."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from cloudcore.errors import invalid_field

Network = IPv4Network | IPv6Network

PRIVATE: Final = tuple(
    map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
"""Networks of RFC 1918 and RFC 6598, whose addresses no host of the internet has."""
GLOBAL: Final = IPv6Network("2000::/3")
"""All global unicast addresses that IANA assigns (RFC 4291, section 2.4): those of the internet."""
LOCAL: Final = IPv6Network("fd00::/8")
"""Unique local addresses (ULA), which anybody may choose (RFC 4193)."""
GLOBAL_LENGTH: Final = 56
"""The length of the global prefix of a VPC. It is the same for all, so two prefixes are equal or do
not overlap."""
SUBNET_LENGTH: Final = 64
"""The length of the IPv6 prefix of a subnet (RFC 4291 §2.5.4)."""
RESERVED: Final = 4
"""How many addresses at the beginning of a subnet are never assigned; nor is the last address."""
_SIZES: Final = range(16, 29)
"""Lengths of the IPv4 prefixes of VPCs and subnets."""
_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def read_network(field: str, text: str) -> Network:
    """Parse the network in the field of a request.

    Raise `InvalidInput` if it is malformed, or has host bits set.
    """
    address, _, length = text.partition("/")
    is_written_so = _LENGTH.fullmatch(length) is not None and "%" not in address
    try:
        found = ip_network(text if is_written_so else "", strict=False)
    except ValueError:
        raise invalid_field(field, "a network such as 10.0.0.0/16 or 2001:db8::/64") from None
    if found.network_address != ip_address(address):
        raise invalid_field(field, f"{text} has bits behind its prefix; it is in {found}")
    return found


def vpc_ipv4(text: str) -> str:
    """Return the IPv4 network of a VPC in canonical form; raise `InvalidInput` if not allowed."""
    found = read_network("cidr_ipv4", text)
    is_sized = isinstance(found, IPv4Network) and found.prefixlen in _SIZES
    if is_sized and any(lies_in(found, str(each)) for each in PRIVATE):
        return str(found)
    private = ", ".join(map(str, PRIVATE))
    raise invalid_field("cidr_ipv4", f"a network of 16 to 28 bits within {private}")


def vpc_ipv6(text: str) -> str:
    """Return the IPv6 prefix of a VPC in canonical form; raise `InvalidInput` if not allowed."""
    found = read_network("cidr_ipv6", text)
    if isinstance(found, IPv6Network):
        if found.subnet_of(LOCAL) and 48 <= found.prefixlen <= SUBNET_LENGTH:
            return str(found)
        if found.subnet_of(GLOBAL) and found.prefixlen == GLOBAL_LENGTH:
            return str(found)
    raise invalid_field(
        "cidr_ipv6",
        f"a global prefix of {GLOBAL_LENGTH} bits that the operator has for VPCs, or one of 48 to"
        f" {SUBNET_LENGTH} bits within {LOCAL}",
    )


def subnet_range(field: str, text: str) -> str:
    """Return a network for a subnet in canonical form; `field` implies the IP version.

    Raise `InvalidInput` if the network is malformed or of a length that subnets cannot have.
    """
    found = read_network(field, text)
    if field == "cidr_ipv4":
        if isinstance(found, IPv4Network) and found.prefixlen in _SIZES:
            return str(found)
        raise invalid_field(field, "an IPv4 network of 16 to 28 bits")
    if isinstance(found, IPv6Network) and found.prefixlen == SUBNET_LENGTH:
        return str(found)
    raise invalid_field(field, f"an IPv6 prefix of {SUBNET_LENGTH} bits")


def lies_in(inner: Network, outer: str | None) -> bool:
    """Return True if a network lies within `outer`, of the same IP version.

    Return False if `outer` is None.
    """
    if outer is None:
        return False
    found = ip_network(outer)
    return found.version == inner.version and inner.subnet_of(found)  # type: ignore[arg-type]


def overlap(one: str | None, other: str | None) -> bool:
    """Return True if two networks of one IP version have a common address; False if one is None."""
    return one is not None and other is not None and ip_network(one).overlaps(ip_network(other))
