"""Detect a proxy that is not trusted: behind it, all clients count as one address."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from cloudcore.serving.source_address import Network, is_trusted

ENOUGH: Final = 10
"""Number of forwarded requests, all from one peer, after which the peer counts as a proxy."""
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"})

_log = logging.getLogger(__name__)


class ProxyWatch:
    """Warns once per process; ignores requests that were not forwarded."""

    def __init__(self) -> None:
        self._peer = ""
        self._count = 0
        self._is_over = False

    def note(
        self, peer: str | None, headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]
    ) -> None:
        """Record a request; log the warning when the peer counts as a proxy."""
        if self._is_over or peer is None or not any(name in _FORWARDED for name, _ in headers):
            return
        if is_trusted(peer, trusted) or (self._peer and peer != self._peer):
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
