"""Conditions of a request on the existing object, such as ``If-Match``; and ``Range``.

The conditions of a write are checked in the transaction that writes.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.storage.errors import ConditionFailed, InvalidRange, NoSuchKey

Outcome = Literal["send", "not_modified"]


class RequestConditions(NamedTuple):
    """The conditions of a request; each is None if absent. ETags are without quotes."""

    if_match: tuple[str, ...] | None = None
    """ETags, or ``*`` for any object."""
    if_none_match: tuple[str, ...] | None = None
    modified_since: int | None = None
    """Seconds since the epoch."""
    unmodified_since: int | None = None
    if_range: str | None = None
    """As received, with quotes."""


NO_CONDITIONS: Final = RequestConditions()


def etags(header: str) -> tuple[str, ...]:
    """Return the ETags in a header, without quotes and ``W/`` prefixes."""
    listed = (each.strip().removeprefix("W/").strip('"') for each in header.split(","))
    return tuple(each for each in listed if each)


def check_read(conditions: RequestConditions, etag: str, created_at: int) -> Outcome:
    """Evaluate the conditions of a read (RFC 9110, 13.2.2) on the object with this ETag.

    `created_at` is in microseconds. Return "not_modified" if the client already has the object.
    Raise `ConditionFailed` if the object must not be sent.
    """
    seconds = created_at // MICROSECONDS
    if conditions.if_match is not None:
        if not _lists(conditions.if_match, etag):
            raise ConditionFailed("If-Match")
    elif conditions.unmodified_since is not None and seconds > conditions.unmodified_since:
        raise ConditionFailed("If-Unmodified-Since")
    if conditions.if_none_match is not None:
        return "not_modified" if _lists(conditions.if_none_match, etag) else "send"
    if conditions.modified_since is not None and seconds <= conditions.modified_since:
        return "not_modified"
    return "send"


def range_applies(conditions: RequestConditions, etag: str) -> bool:
    """Return True if ``If-Range`` lets the ``Range`` apply to this object (RFC 9110, 13.1.5).

    A date in ``If-Range`` never matches: another object may have been stored in the same second.
    """
    return conditions.if_range is None or conditions.if_range.strip() == f'"{etag}"'


def check_copy(conditions: RequestConditions, etag: str, created_at: int) -> None:
    """Evaluate the conditions of a copy on its source, which has this ETag.

    `created_at` is in microseconds. Raise `ConditionFailed` if the object must not be copied, or is
    unmodified.
    """
    if check_read(conditions, etag, created_at) == "not_modified":
        given = conditions.if_none_match is not None
        raise ConditionFailed("If-None-Match" if given else "If-Modified-Since")


def check_write(conditions: RequestConditions, etag: str | None) -> None:
    """Evaluate the conditions of a write; `etag` is the existing object's, or None if none exists.

    Raise `ConditionFailed` if the existing object forbids the write, `NoSuchKey` if ``If-Match``
    requires an object, but none exists.
    """
    if conditions.if_match is not None:
        if etag is None:
            raise NoSuchKey
        if not _lists(conditions.if_match, etag):
            raise ConditionFailed("If-Match")
    if (
        conditions.if_none_match is not None
        and etag is not None
        and _lists(conditions.if_none_match, etag)
    ):
        raise ConditionFailed("If-None-Match")


def _lists(listed: tuple[str, ...], etag: str) -> bool:
    return "*" in listed or etag in listed


_RANGE: Final = re.compile(r"bytes=([0-9]*)-([0-9]*)")
MAX_DIGITS: Final = 19
"""Digits of the largest 63-bit number, which clients send to mean "to the end"."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return ``(start, stop)`` of a ``Range`` header, with `stop` excluded.

    Return None, and the client gets the whole object, if the header is absent or malformed, or has
    several ranges. Raise `InvalidRange` if an object of `size` bytes has no byte in the range.
    """
    found = None if header is None else _RANGE.fullmatch(header.strip().lower())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        count = _number(last)
        if not count or not size:
            raise InvalidRange(size)
        return max(0, size - count), size
    start = _number(first)
    stop = _number(last) + 1 if last else size
    if last and stop <= start:
        return None
    if start >= size:
        raise InvalidRange(size)
    return start, min(stop, size)


def _number(digits: str) -> int:
    """Parse a number; if it has more than `MAX_DIGITS` digits, return one larger than any size."""
    return int(digits) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS
