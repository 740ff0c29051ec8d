"""The headers of an answer of the pull-through cache that the upstream could not confirm."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from registry.distribution.response import Headers

CUT: Final = (b"warning", b'299 - "the upstream has more tags than are listed"')


def stale_headers(now: int, told_at: int | None) -> Headers:
    """Return `Age` and `Warning` for a cached answer of an upstream that is stale (RFC 9111).

    Times are in microseconds.
    """
    headers = [(b"warning", b'299 - "upstream unreachable"')]
    if told_at is not None:
        headers.append((b"age", b"%d" % max(0, (now - told_at) // MICROSECONDS)))
    return headers
