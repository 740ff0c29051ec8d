"""The errors for clients when an upstream gives no usable answer."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import Unavailable
from registry.upstream.base import UpstreamFailed, UpstreamLimited

_RETRY_SECONDS: Final = 30


def as_error(failure: UpstreamFailed, now: int) -> Unavailable:
    """Return the error for what an upstream did not answer: 503, with the time to try again.

    A 404 would be taken for the truth, and a 401 for a refusal of the client's own credential.
    """
    retry_after = _RETRY_SECONDS
    if isinstance(failure, UpstreamLimited):
        retry_after = max(1, -((now - failure.retry_at) // MICROSECONDS))
    return Unavailable(f"upstream registry: {failure}", retry_after=retry_after)
