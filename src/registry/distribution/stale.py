"""The headers of an answer of the pull-through cache that the upstream could not confirm."""

from __future__ import annotations

from cloudcore.clock import MICROSECONDS
from registry.distribution.response import Headers


def stale_headers(age: int) -> Headers:
    """Return the headers that tell how old the answer is, given in microseconds (RFC 9111)."""
    return [
        (b"warning", b'299 - "upstream unreachable"'),
        (b"age", b"%d" % max(0, age // MICROSECONDS)),
    ]
