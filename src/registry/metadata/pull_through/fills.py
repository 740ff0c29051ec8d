"""Fills: blobs that are being fetched from an upstream, and their staged bytes.

A fill is an upload session of the platform with a row in `blob_fills`, unique per account and key.
The worker that inserts the row fetches the blob; all others read the bytes it stages. The row is
deleted with the session. The key, in the column `digest`, is a hash of the blob's digest and its
source.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.quotas.limits import QuotaUse
from registry.metadata.blobs.uploads import (
    COLUMNS,
    Lease,
    ReceivedBytes,
    Upload,
    record_received,
    upload_of,
)
from registry.metadata.pull_through.tables import blob_fills
from registry.metadata.quotas import USE, read_use
from registry.metadata.tables import uploads

_f = blob_fills.c
_u = uploads.c


class Fill(NamedTuple):
    """A blob that is being fetched."""

    size: int | None
    """The blob's size; None until the upstream has stated it and the bytes are staged in a file."""
    expires_at: int
    upload: Upload


class NewFill(NamedTuple):
    """The result of inserting a fill."""

    use: QuotaUse | None
    """Stored bytes of the account and their limit; None without a limit."""


_ADD: Final = Statement(
    insert_new(blob_fills, ("account_id", "digest", "upload_id")).returning(*USE)
)
_FIND: Final = Statement(
    select(_f.size, _u.expires_at, *COLUMNS)
    .join_from(blob_fills, uploads, _u.id == _f.upload_id)
    .where(given(_f.account_id, _f.digest))
)
_SET_SIZE: Final = Statement(
    blob_fills.update().where(_f.upload_id == bindparam("id")).values(size=bindparam("bytes"))
)


def add_fill(tx: Connection, account_id: str, key: str, upload_id: str) -> NewFill | None:
    """Insert the row of a fill; return None if the account already has one with this key."""
    row = tx.row(_ADD, account_id=account_id, digest=key, upload_id=upload_id)
    return None if row is None else NewFill(read_use(row))


def find_fill(tx: Connection, account_id: str, key: str) -> Fill | None:
    """Return the account's fill with this key, even if it has expired, or None."""
    row = tx.row(_FIND, account_id=account_id, digest=key)
    if row is None:
        return None
    upload = upload_of(row[2:])
    assert upload is not None
    return Fill(row[0], row[1], upload)


def record_staged_bytes(
    tx: Connection, lease: Lease, received: ReceivedBytes, size: int | None, expires_at: int
) -> bool:
    """Record the durably staged bytes and the blob's size; return False if the lease was lost.

    The lease stays held. Idempotent.
    """
    if not record_received(tx, lease, received, expires_at):
        return False
    tx.execute(_SET_SIZE, id=lease.upload_id, bytes=size)
    return True
