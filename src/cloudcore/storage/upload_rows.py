"""Queries of multipart uploads."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns_of, count, given
from cloudcore.db.statement import Statement, paged
from cloudcore.storage.object_rows import ObjectAttributes, attributes_of, attributes_row
from cloudcore.storage.tables import storage_uploads

_u = storage_uploads.c


class Upload(NamedTuple):
    """A multipart upload."""

    id: str
    bucket_id: str
    account_id: str
    key: str
    attributes: ObjectAttributes
    """Attributes of the object that the upload becomes."""
    checksum_algorithm: str | None
    checksum_type: str | None
    created_at: int
    ended_at: int | None = None
    """When the upload was completed; None while it is open."""
    completion: str | None = None
    """As JSON, a hash of the listed parts, and the object (`multipart._Done`); None while open."""


_COLUMNS: Final = (
    *("id", "bucket_id", "account_id", "key"),
    *ObjectAttributes._fields,
    *("checksum_algorithm", "checksum_type", "created_at", "ended_at", "completion"),
)


_rows: Final = columns_of(storage_uploads, _COLUMNS)
_IN_BUCKET: Final = given(_u.bucket_id, _u.account_id)
_IS_UPLOAD: Final = given(_u.id, _u.bucket_id, _u.account_id)
_IS_ROW: Final = (_u.id == bindparam("upload_id"), given(_u.account_id))
_IS_OPEN: Final = sql("ended_at IS NULL")
_IN_SPAN: Final = (_u.key >= bindparam("first"), _u.key < bindparam("end"))
_OPEN_IN_SPAN: Final = (_IN_BUCKET, _IS_OPEN, *_IN_SPAN)

_ADD: Final = Statement(insert(storage_uploads).values(bound(_COLUMNS)))
_FIND: Final = Statement(_rows.where(_IS_UPLOAD))
_LOCK: Final = Statement(_rows.where(_IS_UPLOAD).with_for_update())
_END: Final = Statement(
    storage_uploads.update()
    .where(*_IS_ROW)
    .values(ended_at=bindparam("now"), completion=bindparam("completion"))
)
_ERASE: Final = Statement(storage_uploads.delete().where(*_IS_ROW))
_ERASE_ENDED: Final = Statement(
    storage_uploads.delete().where(_IN_BUCKET, sql("ended_at IS NOT NULL"))
)
_LIST: Final = paged(
    _rows.where(
        *_OPEN_IN_SPAN,
        (_u.key > bindparam("key")) | (_u.id > bindparam("after")),
    ).order_by(_u.key, _u.id)
)
_COUNT: Final = Statement(select(func.count()).select_from(storage_uploads).where(*_OPEN_IN_SPAN))
_LIST_ABANDONED: Final = paged(
    _rows.where(_u.created_at < bindparam("before"), _IS_OPEN).order_by(_u.created_at)
)


def add_upload(tx: Connection, upload: Upload) -> None:
    """Insert an upload."""
    row = upload._asdict() | attributes_row(upload.attributes) | {"key": upload.key.encode()}
    del row["attributes"]
    tx.execute(_ADD, **row)


def find_upload(
    tx: Connection, account_id: str, bucket_id: str, upload_id: str, *, locks: bool = False
) -> Upload | None:
    """Return an upload, open or completed, or None; with `locks`, lock its row until `tx` ends."""
    of = {"account_id": account_id, "bucket_id": bucket_id, "id": upload_id}
    return _upload(tx.row(_LOCK if locks else _FIND, **of))


def end_upload(tx: Connection, upload: Upload, completion: str, now: int) -> None:
    """Record that an upload was completed at `now`, with `completion` as its result."""
    of = {"upload_id": upload.id, "account_id": upload.account_id}
    tx.execute(_END, **of, completion=completion, now=now)


def erase_upload(tx: Connection, upload: Upload) -> None:
    """Delete the row of an upload whose parts were condemned."""
    tx.execute(_ERASE, upload_id=upload.id, account_id=upload.account_id)


def erase_ended(tx: Connection, account_id: str, bucket_id: str) -> None:
    """Delete the rows of the completed uploads of a bucket."""
    tx.execute(_ERASE_ENDED, account_id=account_id, bucket_id=bucket_id)


def list_uploads(
    tx: Connection,
    account_id: str,
    bucket_id: str,
    span: tuple[bytes, bytes],
    after: tuple[bytes, str],
    limit: int,
) -> list[Upload]:
    """Return up to `limit` open uploads after `after` (key, id), sorted by key and id.

    `span` is a half-open range of keys, (first, end).
    """
    first, end = span
    key, upload_id = after
    rows = tx.rows(
        _LIST,
        account_id=account_id,
        bucket_id=bucket_id,
        first=max(first, key),
        end=end,
        key=key,
        after=upload_id,
        limit=limit,
    )
    return [found for row in rows if (found := _upload(row))]


def count_uploads(
    tx: Connection, account_id: str, bucket_id: str, span: tuple[bytes, bytes]
) -> int:
    """Count the open uploads whose keys are in the half-open range `span` (first, end)."""
    first, end = span
    return count(tx, _COUNT, account_id=account_id, bucket_id=bucket_id, first=first, end=end)


def list_abandoned(tx: Connection, before: int, limit: int) -> list[Upload]:
    """Return up to `limit` open uploads created before a time, of any account, oldest first."""
    rows = tx.rows(_LIST_ABANDONED, before=before, limit=limit)
    return [found for row in rows if (found := _upload(row))]


def _upload(row: Row | None) -> Upload | None:
    if row is None:
        return None
    *ids, key = row[:4]
    return Upload._make((*ids, bytes(key).decode(), attributes_of(row[4:9]), *row[9:]))
