"""Identify the client of a request: its address behind trusted proxies, and Basic credentials.

`ProxyWatch` detects a proxy that is not trusted: behind it, all clients count as one address.
Credentials are those of ``Authorization: Basic`` (RFC 7617).
"""

from __future__ import annotations

import binascii
import logging
import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def source_address(
    peer: str | None, forwarded_for: Sequence[bytes], trusted: Sequence[Network]
) -> Address | None:
    """Return the nearest address that is no trusted proxy's; None if the peer has no IP address.

    Each proxy appends its peer to ``X-Forwarded-For``. So the field is read from the right, up to
    the first address that is not a trusted proxy; entries further left can be forged.
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


def rate_subject(address: Address | None) -> str:
    """Return the key by which an address is rate limited; IPv6 clients count as their /64."""
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


ENOUGH: Final = 10
"""Number of forwarded requests, all from one peer, after which the peer counts as a proxy."""
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"})

_log = logging.getLogger(__name__)


class ProxyWatch:
    """Logs one warning per process if all forwarded requests come from one untrusted peer."""

    def __init__(self) -> None:
        self._peer = ""
        self._count = 0
        self._is_over = False

    def note(
        self, peer: str | None, headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]
    ) -> None:
        """Inspect a request; log the warning if the peer looks like an untrusted proxy."""
        if self._is_over or peer is None or not any(name in _FORWARDED for name, _ in headers):
            return
        address = _parse(peer)
        is_trusted = address is not None and _is_inside(address, trusted)
        if is_trusted or (self._peer and peer != self._peer):
            self._is_over = True
            return
        self._peer = peer
        self._count += 1
        if self._count >= ENOUGH:
            self._is_over = True
            _log.warning(
                "all forwarded requests come from %s, which is not among the trusted proxies: "
                "clients behind it count as one address, and can keep one another from signing in; "
                "if it is your proxy, set ENTREPOT_TRUSTED_PROXIES=%s",
                peer,
                peer,
            )


_BASIC: Final = re.compile(rb"basic +([A-Za-z0-9+/]+={0,2}) *", re.IGNORECASE)


def decode_basic(header: bytes) -> tuple[bytes, bytes] | None:
    """Return (user, password) in a header's value, or None if it is no Basic credential."""
    found = _BASIC.fullmatch(header)
    if found is None:
        return None
    try:
        user, colon, password = b64decode(found[1], validate=True).partition(b":")
    except binascii.Error:
        return None
    return (user, password) if colon else None
