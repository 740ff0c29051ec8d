"""From what went wrong with a request to what is said of an upstream."""

from __future__ import annotations

from typing import Final

from cloudcore.outbound.answer_parser import Head
from cloudcore.outbound.failures import BadAnswer, RequestFailed, Unreachable
from registry.upstream.answers import retry_at
from registry.upstream.base import (
    UpstreamBroken,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)

_TOO_MANY: Final = 429


def told(origin: str) -> str:
    """Return how messages name an origin: by host and port."""
    return origin.partition("://")[2]


def failure_of(host: str, error: RequestFailed) -> UpstreamFailed:
    """Return the failure that an error of the HTTP client is."""
    if isinstance(error, BadAnswer):
        return UpstreamBroken(f"{host}: {error}")
    failure = UpstreamUnreachable(f"{host} cannot be reached: {error}")
    if isinstance(error, Unreachable):
        failure.stage = "dns" if error.stage == "dns" else "tls"
        if error.stage == "answer":
            failure.stage = "manifest"
    return failure


def failure_of_status(host: str, head: Head, now: int) -> UpstreamFailed:
    """Return the failure that an answer with an unexpected status is."""
    failure: UpstreamFailed
    if head.status == _TOO_MANY:
        failure = UpstreamLimited(f"{host} wants fewer requests (status 429)", retry_at(head, now))
    elif head.status in (401, 403):
        failure = UpstreamRefused(f"{host} refuses the request (status {head.status})")
    else:
        failure = UpstreamBroken(f"{host} answered with status {head.status}")
    failure.http_status = head.status
    return failure
