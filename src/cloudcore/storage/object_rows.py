"""Queries of objects, and listings by key in which keys with a common prefix are grouped.

After a common prefix, a listing starts a new search in the index. So the cost grows with the page,
not with the number of keys under the prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns_of, given
from cloudcore.db.statement import Statement, paged
from cloudcore.storage.bucket import DEFAULT_CONTENT_TYPE, Bucket
from cloudcore.storage.tables import storage_objects

_o = storage_objects.c


class ObjectChecksum(NamedTuple):
    """The checksum of an object or a part, by the algorithm that the client has chosen."""

    algorithm: str
    value: str
    """In base64; a composite checksum is followed by ``-`` and the number of parts."""
    kind: str = "FULL_OBJECT"
    """``FULL_OBJECT``, or ``COMPOSITE`` if it covers the checksums of the parts."""


class ObjectAttributes(NamedTuple):
    """The attributes that a client sends with an object."""

    content_type: str = DEFAULT_CONTENT_TYPE
    headers: Mapping[str, str] = {}
    """The `bucket.STORED_HEADERS` that the client sent, by names in lower case."""
    metadata: Mapping[str, str] = {}
    """Names in lower case."""
    tags: Mapping[str, str] = {}
    storage_class: str = "STANDARD"


class StoredObject(NamedTuple):
    """An object of a bucket."""

    id: str
    """The id of this content: another object under the same key has another id."""
    bucket_id: str
    account_id: str
    key: str
    size: int
    etag: str
    """Without quotes."""
    attributes: ObjectAttributes
    checksum: ObjectChecksum | None
    created_at: int

    @property
    def has_parts(self) -> bool:
        """Return True if the object was made from the parts of an upload."""
        return "-" in self.etag


class ObjectEntry(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    etag: str
    storage_class: str
    checksum: ObjectChecksum | None
    created_at: int


_COLUMNS: Final = (
    *("id", "bucket_id", "account_id", "key", "size", "etag"),
    *ObjectAttributes._fields,
    *("checksum", "created_at"),
)
_LISTED: Final = ("key", "size", "etag", "storage_class", "checksum", "created_at")


_IS_OBJECT: Final = given(_o.bucket_id, _o.account_id, _o.key)
_IS_ROW: Final = (_o.id == bindparam("object_id"), given(_o.account_id))

_ADD: Final = Statement(
    insert(storage_objects)
    .values(bound(_COLUMNS))
    .on_conflict_do_nothing(index_elements=["bucket_id", "key"])
)
_FIND: Final = Statement(columns_of(storage_objects, _COLUMNS).where(_IS_OBJECT))
_LOCK: Final = Statement(columns_of(storage_objects, _COLUMNS).where(_IS_OBJECT).with_for_update())
_REPLACE: Final = Statement(
    storage_objects.update()
    .where(_o.id == bindparam("object_id"), _o.account_id == bindparam("of_account"))
    .values(bound(name for name in _COLUMNS if name != "account_id"))
)
_SAVE_TAGS: Final = Statement(storage_objects.update().where(*_IS_ROW).values(bound(["tags"])))
_ERASE: Final = Statement(storage_objects.delete().where(*_IS_ROW))
_LIST: Final = paged(
    columns_of(storage_objects, _LISTED)
    .where(
        given(_o.bucket_id, _o.account_id),
        _o.key >= bindparam("first"),
        _o.key < bindparam("end"),
    )
    .order_by(_o.key)
)


def add_object(tx: Connection, made: StoredObject) -> bool:
    """Insert an object; return False if one with its key exists."""
    return tx.execute(_ADD, **_row(made)) == 1


def replace_object(tx: Connection, before: StoredObject, made: StoredObject) -> None:
    """Overwrite the row of `before` with `made`, which has the same key.

    The caller has condemned the pieces of `before`. The row is updated, not deleted and inserted,
    so that a transaction that waits for the row's lock finds the new object.
    """
    row = _row(made)
    tx.execute(_REPLACE, object_id=before.id, of_account=row.pop("account_id"), **row)


def _row(made: StoredObject) -> dict[str, object]:
    row = made._asdict() | attributes_row(made.attributes)
    del row["attributes"]
    checksum = None if made.checksum is None else encoded(made.checksum)
    return row | {"key": made.key.encode(), "checksum": checksum}


def find_object(
    tx: Connection, bucket: Bucket, key: str, *, locks: bool = False
) -> StoredObject | None:
    """Return the object with this key, or None; with `locks`, lock it until `tx` ends."""
    of = {"account_id": bucket.account_id, "bucket_id": bucket.id}
    return _object(tx.row(_LOCK if locks else _FIND, **of, key=key.encode()))


def save_tags(tx: Connection, found: StoredObject, tags: Mapping[str, str]) -> None:
    """Replace the tags in the row of an object."""
    tx.execute(_SAVE_TAGS, object_id=found.id, account_id=found.account_id, tags=encoded(tags))


def erase_object(tx: Connection, found: StoredObject) -> None:
    """Delete the row of an object whose pieces were condemned."""
    tx.execute(_ERASE, object_id=found.id, account_id=found.account_id)


def list_keys(
    tx: Connection, account_id: str, bucket_id: str, first: bytes, end: bytes, limit: int
) -> list[ObjectEntry]:
    """Return up to `limit` objects sorted by key, from `first` to before `end`."""
    rows = tx.rows(
        _LIST, account_id=account_id, bucket_id=bucket_id, first=first, end=end, limit=limit
    )
    return [_entry(row) for row in rows]


def encoded(value: object) -> str:
    """Encode a value as JSON text for a column."""
    return msgspec.json.encode(value, order="deterministic").decode()


def attributes_row(attributes: ObjectAttributes) -> dict[str, str]:
    """Convert attributes to column values, by column name."""
    return {
        name: value if isinstance(value, str) else encoded(value)
        for name, value in attributes._asdict().items()
    }


def attributes_of(row: Sequence[Any]) -> ObjectAttributes:
    """Convert column values, in the order of the fields, to attributes."""
    content_type, *documents, storage_class = row
    return ObjectAttributes._make((content_type, *map(_decoded_map, documents), storage_class))


def _decoded_map(text: str) -> dict[str, str]:
    return {} if text == "{}" else msgspec.json.decode(text, type=dict[str, str])


def _checksum(text: str | None) -> ObjectChecksum | None:
    return None if text is None else msgspec.json.decode(text, type=ObjectChecksum)


def _object(row: Row | None) -> StoredObject | None:
    if row is None:
        return None
    *ids, key, size, etag = row[:6]
    *about, checksum, created_at = row[6:]
    key, attributes = bytes(key).decode(), attributes_of(about)
    return StoredObject._make((*ids, key, size, etag, attributes, _checksum(checksum), created_at))


def _entry(row: Row) -> ObjectEntry:
    key, size, etag, storage_class, checksum, created_at = row
    return ObjectEntry(
        bytes(key).decode(), size, etag, storage_class, _checksum(checksum), created_at
    )


_FIRST_READ: Final = 16
_BEHIND_ALL: Final = b"\xff"
"""Sorts after every key: UTF-8 has no such byte."""


class Listing(NamedTuple):
    """A page of a listing."""

    entries: list[ObjectEntry]
    prefixes: list[str]
    """Common prefixes, each of which ends in the delimiter."""
    next_after: str | None
    """The key or prefix after which the next page begins; None on the last page."""


def list_page(
    tx: Connection, bucket: Bucket, prefix: str, delimiter: str, after: str, limit: int
) -> Listing:
    """Return objects whose keys begin with `prefix` and sort after `after`.

    With a `delimiter`, keys that contain the delimiter after `prefix` are grouped: only their
    common prefix, up to and including the delimiter, is returned. A page has up to `limit` objects
    and common prefixes together; if `limit` is 0, there is no next page.
    """
    found = Listing([], [], None)
    last = ""
    if limit <= 0:
        return found
    for row in _rows(tx, bucket, prefix, delimiter, after, limit + 1):
        if len(found.entries) + len(found.prefixes) == limit:
            return found._replace(next_after=last)
        if isinstance(row, ObjectEntry):
            found.entries.append(row)
            last = row.key
        else:
            found.prefixes.append(row)
            last = row
    return found


def span_of(prefix: str) -> tuple[bytes, bytes]:
    """Return the half-open range of the keys that begin with `prefix`: (first, end)."""
    first = prefix.encode()
    return first, _behind(first)


def _rows(
    tx: Connection, bucket: Bucket, prefix: str, delimiter: str, after: str, wanted: int
) -> Iterator[ObjectEntry | str]:
    """Yield the objects and common prefixes of a listing, in order.

    `wanted` is the number that the caller expects to take; it limits how many rows are read ahead.
    """

    def common_of(key: str) -> str | None:
        """Return the common prefix of a key, or None."""
        if not delimiter or not key.startswith(prefix):
            return None
        at = key.find(delimiter, len(prefix))
        return None if at < 0 else key[: at + len(delimiter)]

    first, end = span_of(prefix)
    if after:
        is_prefix = common_of(after) == after
        first = max(first, _behind(after.encode()) if is_prefix else after.encode() + b"\0")
    count = _FIRST_READ
    while first < end:
        most = max(min(wanted, count) if delimiter else wanted, 1)
        read = list_keys(tx, bucket.account_id, bucket.id, first, end, most)
        first = read[-1].key.encode() + b"\0" if len(read) == most else end
        count *= 4
        common: str | None = None
        for entry in read:
            if common is None or not entry.key.startswith(common):
                common = common_of(entry.key)
                yield entry if common is None else common
                wanted -= 1
        if common is not None:  # skip the other keys under the common prefix
            first = max(first, _behind(common.encode()))
            count = _FIRST_READ


def _behind(prefix: bytes) -> bytes:
    """Return the first key that sorts after all keys with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else _BEHIND_ALL
