"""Parse the response headers of upstreams; ignore malformed ones."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.outbound.http_connection import AnswerHead, BadAnswer, RequestFailed, Unreachable
from registry.errors import DigestInvalid
from registry.oci.digest import Digest
from registry.upstream.base import (
    RateLimit,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)

_TOO_MANY: Final = 429


def origin_name(origin: str) -> str:
    """Return the name of an origin for messages: host and port."""
    return origin.partition("://")[2]


def failure_of(host: str, error: RequestFailed) -> UpstreamFailed:
    """Convert an error of the HTTP client to a failure."""
    if isinstance(error, BadAnswer):
        return UpstreamBroken(f"{host}: {error}")
    failure = UpstreamUnreachable(f"{host} cannot be reached: {error}")
    if isinstance(error, Unreachable):
        failure.stage = "dns" if error.stage == "dns" else "tls"
        if error.stage == "answer":
            failure.stage = "manifest"
    return failure


def failure_of_status(host: str, head: AnswerHead, now: int) -> UpstreamFailed:
    """Convert a response with an unexpected status to a failure."""
    failure: UpstreamFailed
    if head.status == _TOO_MANY:
        failure = UpstreamLimited(f"{host} wants fewer requests (status 429)", retry_at(head, now))
    elif head.status in (401, 403):
        failure = UpstreamRefused(f"{host} refuses the request (status {head.status})")
    else:
        failure = UpstreamBroken(f"{host} answered with status {head.status}")
    failure.http_status = head.status
    return failure


RETRY_SECONDS: Final = 60
"""Pause after a 429 without a ``Retry-After``."""
MAX_RETRY_SECONDS: Final = 24 * 3600

_NUMBER: Final = r"([0-9]{1,18})"
_CONTENT_RANGE: Final = re.compile(rf"bytes {_NUMBER}-{_NUMBER}/(?:{_NUMBER}|\*)")
_RATE: Final = re.compile(r"([0-9]{1,9})(?:\s*;\s*w=([0-9]{1,9}))?")
_ETAG: Final = re.compile(r'(?:W/)?"[!#-~]{0,250}"')
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+_-]{1,100}/[a-z0-9.+_-]{1,150}")


class ContentRange(NamedTuple):
    """The range of a partial response, and the size of the whole."""

    first: int
    last: int
    size: int | None


def content_range(head: AnswerHead) -> ContentRange | None:
    """Return the ``Content-Range`` of a 206, or None if it is missing or malformed."""
    found = _CONTENT_RANGE.fullmatch(head.get("content-range") or "")
    if found is None:
        return None
    first, last, size = (None if text is None else int(text) for text in found.groups())
    assert first is not None
    assert last is not None
    is_sound = first <= last and (size is None or last < size)
    return ContentRange(first, last, size) if is_sound else None


def content_digest(head: AnswerHead) -> Digest | None:
    """Return the ``Docker-Content-Digest``, or None if it is missing or malformed."""
    try:
        return Digest.parse(head.get("docker-content-digest") or "")
    except DigestInvalid:
        return None


def etag(head: AnswerHead) -> str | None:
    """Return the ``ETag``, or None if it is missing or malformed."""
    text = head.get("etag") or ""
    return text if is_etag(text) else None


def is_etag(text: str) -> bool:
    """Return True for an entity tag that a header can hold (RFC 9110 §8.8.3)."""
    return _ETAG.fullmatch(text) is not None


def media_type(head: AnswerHead) -> str | None:
    """Return the lower-case ``Content-Type`` without parameters; None if missing or malformed."""
    text = (head.get("content-type") or "").partition(";")[0].strip().lower()
    return text if _MEDIA_TYPE.fullmatch(text) else None


def is_encoded(head: AnswerHead) -> bool:
    """Return True if the body has a content encoding; no request accepts one."""
    given = ",".join(head.all("content-encoding")).strip().lower()
    return given not in ("", "identity")


def retry_at(head: AnswerHead, now: int) -> int:
    """Return when the next request may be sent after a 429: by ``Retry-After``, within limits."""
    asked = head.retry_after(now)
    seconds = RETRY_SECONDS if asked is None else asked
    return now + min(max(seconds, 1), MAX_RETRY_SECONDS) * MICROSECONDS


def rate_limit(head: AnswerHead) -> RateLimit | None:
    """Return the rate limit in the response headers, or None if they state none."""
    for prefix in ("ratelimit", "x-ratelimit"):
        left = _RATE.fullmatch((head.get(f"{prefix}-remaining") or "").strip())
        if left is not None:
            limit = _RATE.fullmatch((head.get(f"{prefix}-limit") or "").strip())
            window = left[2] or (limit[2] if limit else None)
            return RateLimit(
                int(limit[1]) if limit else None, int(left[1]), int(window) if window else None
            )
    return None
