"""Find the client address of a request: the socket's peer, or the one from a trusted proxy."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def source_address(
    peer: str | None, forwarded_for: Sequence[bytes], trusted: Sequence[Network]
) -> Address | None:
    """Return the nearest address that is not a trusted proxy's, or None without an IP peer.

    Each proxy appends its peer to ``X-Forwarded-For``. So it is read from the right, up to the
    first address that is not a trusted proxy; entries further left can be forged.
    """
    address = _parse(peer or "")
    if address is None or not _is_inside(address, trusted):
        return address
    hops = b",".join(forwarded_for).decode("latin-1").split(",")
    for hop in reversed(hops):
        claimed = _parse(hop.strip())
        if claimed is None:
            break
        address = claimed
        if not _is_inside(address, trusted):
            break
    return address


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    """Return True if this peer is a trusted proxy."""
    address = _parse(peer)
    return address is not None and _is_inside(address, trusted)


def rate_subject(address: Address | None) -> str:
    """Return the rate limit's subject for an address: an IPv6 client has a whole /64."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_inside(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
