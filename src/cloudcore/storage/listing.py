"""Pages of the objects of a bucket, by key; keys with a common prefix are one row.

The index is walked in hops: behind a common prefix it is entered anew, so the cost grows with the
page, not with what the prefixes hold.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.object_rows import Entry, list_keys

_FIRST_READ: Final = 16
_BEHIND_ALL: Final = b"\xff"
"""No key is behind it: UTF-8 has no such byte."""


class Listing(NamedTuple):
    """A page of a listing."""

    entries: list[Entry]
    prefixes: list[str]
    """Common prefixes: each ends in the delimiter."""
    next_after: str | None
    """The last row of the page, with which the next page begins; None if there is no more."""


def list_page(
    tx: Connection, bucket: Bucket, prefix: str, delimiter: str, after: str, limit: int
) -> Listing:
    """Return objects whose keys begin with `prefix` and sort behind `after`.

    With a `delimiter`, keys that have it behind the prefix are rolled up into one common prefix,
    which ends in it. `limit` counts both kinds of rows; with 0 there is no next page.
    """
    walk = _Walk(tx, bucket, prefix, delimiter, after)
    found = Listing([], [], None)
    last = ""
    if limit <= 0:
        return found
    while (row := walk.next(limit - len(found.entries) - len(found.prefixes) + 1)) is not None:
        if len(found.entries) + len(found.prefixes) == limit:
            return found._replace(next_after=last)
        if isinstance(row, Entry):
            found.entries.append(row)
            last = row.key
        else:
            found.prefixes.append(row)
            last = row
    return found


def span_of(prefix: str) -> tuple[bytes, bytes]:
    """Return the first key with a prefix, and the first behind all of them."""
    first = prefix.encode()
    return first, _behind(first)


class _Walk:
    """Reads the rows of a listing in order."""

    def __init__(
        self, tx: Connection, bucket: Bucket, prefix: str, delimiter: str, after: str
    ) -> None:
        self._tx = tx
        self._bucket = bucket
        self._prefix = prefix
        self._delimiter = delimiter
        first, self._end = span_of(prefix)
        self._first = max(first, self._start(after))
        self._read: list[Entry] = []
        self._is_last = False
        self._count = _FIRST_READ

    def next(self, wanted: int) -> Entry | str | None:
        """Return the next object or common prefix; about `wanted` more will be asked for."""
        if not self._read and not self._fill(wanted):
            return None
        entry = self._read.pop()
        common = self._common(entry.key)
        if common is None:
            return entry
        self._skip(common)
        return common

    def _start(self, after: str) -> bytes:
        """Return the first key of a listing behind a key or a common prefix."""
        if not after:
            return b""
        if self._common(after) == after:
            return _behind(after.encode())
        return after.encode() + b"\0"

    def _common(self, key: str) -> str | None:
        """Return the common prefix that a key is rolled up into, or None."""
        if not self._delimiter or not key.startswith(self._prefix):
            return None
        at = key.find(self._delimiter, len(self._prefix))
        return None if at < 0 else key[: at + len(self._delimiter)]

    def _skip(self, common: str) -> None:
        """Go behind the keys of a common prefix."""
        while self._read and self._read[-1].key.startswith(common):
            self._read.pop()
        if not self._read:
            self._first = _behind(common.encode())
            self._count = _FIRST_READ

    def _fill(self, wanted: int) -> bool:
        if self._is_last or self._first >= self._end:
            return False
        count = wanted if not self._delimiter else min(wanted, self._count)
        count = max(count, 1)
        of = self._bucket.account_id, self._bucket.id
        self._read = list_keys(self._tx, *of, self._first, self._end, count)
        self._is_last = len(self._read) < count
        self._count *= 4
        if not self._read:
            return False
        self._first = self._read[-1].key.encode() + b"\0"
        self._read.reverse()
        return True


def _behind(prefix: bytes) -> bytes:
    """Return the first key that sorts behind all keys with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else _BEHIND_ALL
