"""Upload sessions: the received bytes of each, and the worker process that may append to it.

A session without a row has received nothing; its id contains its state. A session with few bytes
has them in its row (`Upload.body`).

A writer holds the session's lease (`upload_leases`). A change in a single transaction needs no
lease: it requires that the session still has no holder and the same token, and increments the
token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import json_text
from cloudcore.db.statement import Statement, page, paged
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import QuotaUse
from registry.metadata.quotas import read_use, use_of
from registry.metadata.repositories.repository import ID_OF_NAMED, IS_NAMED
from registry.metadata.tables import ended_uploads, repositories, uploads

_u = uploads.c

FIRST_TOKEN: Final = 1
"""The `Upload.lease_token` of a session's first lease: nothing was staged before."""


class Upload(NamedTuple):
    """An open upload session."""

    id: str
    repository_id: str
    account_id: str
    algorithm: str | None
    received_bytes: int
    digests: Mapping[str, str]
    """Hex digests of the received bytes by algorithm; empty if no worker has hashed them all. If
    the bytes are in `body` and sealed, also a checksum of `body` (`registry.blobstore.inline`)."""
    stage_id: str
    """Id under which the received bytes are staged."""
    stage_shared: bool
    """True if a former holder may still write to the staged bytes."""
    lease_holder: str | None
    """The worker process that may append, or None."""
    lease_token: int
    leased_until: int | None
    kms_key_id: str | None = None
    """The KMS key that wraps the data key of the received bytes, or None if they are plain."""
    wrapped_data_key: bytes | None = None
    body: bytes | None = None
    """The received bytes, sealed if there is a data key; None if they are staged."""


class FoundSession(NamedTuple):
    """An upload session as found in a repository, with or without a row."""

    repository_id: str
    account_id: str
    has_ended: bool
    """True if the session is recorded as ended, before its id has expired."""
    has_expired: bool
    """True if the session's row has expired."""
    upload: Upload | None
    """None if the session has no row, or an expired one."""
    use: QuotaUse | None
    """Stored bytes of the account and their limit; None without a limit."""


class UploadWrap(NamedTuple):
    """The data key of received bytes, wrapped under a KMS key."""

    kms_key_id: str
    wrapped_data_key: bytes


class Lease(NamedTuple):
    """A worker process's right to append to a session; `token` proves the right."""

    upload_id: str
    holder: str | None
    """None for a change in one transaction without a lease."""
    token: int


class ReceivedBytes(NamedTuple):
    """The received bytes of a session after a request."""

    size: int
    digests: Mapping[str, str]
    """See `Upload.digests`."""
    stage_id: str
    wrap: UploadWrap | None
    """The wrap of the data key, for `stage_id`; None if the bytes are plain."""
    body: bytes | None = None
    """See `Upload.body`."""


class SessionEnd(NamedTuple):
    """The parameters that end a session."""

    upload_id: str
    lease: Lease | None
    """None if the session has no row."""
    valid_until: int
    """When the session's id expires. If that is past, the end need not be recorded."""


def lease_of(upload: Upload) -> Lease:
    """Return the lease of a session, with the holder and the token in `upload`."""
    return Lease(upload.id, upload.lease_holder, upload.lease_token)


COLUMNS: Final = tuple(_u[name] for name in Upload._fields)
OPEN_HERE: Final = (
    _u.id == sa.bindparam("upload_id"),
    _u.expires_at > sa.bindparam("now"),
    _u.repository_id == ID_OF_NAMED,
)
_FIND: Final = Statement(sa.select(*COLUMNS).where(*OPEN_HERE))
FENCED: Final = (
    _u.id == sa.bindparam("upload_id"),
    _u.lease_holder.is_not_distinct_from(sa.bindparam("holder", type_=sa.String())),
    _u.lease_token == sa.bindparam("token"),
)
FREE: Final = {"lease_holder": sa.null(), "leased_until": sa.null()}
_RECEIVED: Final[Mapping[str, Any]] = {
    "received_bytes": sa.bindparam("received"),
    "digests": sa.bindparam("known_digests"),
    "stage_id": sa.bindparam("stage"),
    "kms_key_id": sa.bindparam("key"),
    "wrapped_data_key": sa.bindparam("wrapped"),
    "stage_shared": sa.literal_column("false"),
    "expires_at": sa.bindparam("expires"),
}
_NOTE: Final = Statement(uploads.update().where(*FENCED).values(_RECEIVED))
_ADVANCE: Final = Statement(
    uploads.update()
    .where(*FENCED)
    .values(
        {
            **_RECEIVED,
            "body": sa.bindparam("kept"),
            "lease_token": sa.bindparam("next_token"),
            **FREE,
        }
    )
)
_HAS_ADVANCED: Final = Statement(
    sa.select(_u.id).where(
        _u.id == sa.bindparam("upload_id"),
        _u.lease_holder.is_(None),
        _u.lease_token == sa.bindparam("token"),
        sa.func.coalesce(_u.stage_id, _u.id) == sa.bindparam("stage_id"),
        _u.received_bytes == sa.bindparam("received"),
    )
)
_REMOVE: Final = Statement(uploads.delete().where(*FENCED))
_id: Final[sa.ColumnElement[str]] = sa.bindparam("upload_id", type_=sa.String())
_has_ended: Final = sa.exists().where(ended_uploads.c.id == _id)
IS_UNWRITTEN: Final = sa.and_(~_has_ended, ~sa.exists().where(_u.id == _id))
"""The session ``:upload_id`` has no row, and has not ended."""
_MARK_ENDED: Final = Statement(insert(ended_uploads).values(id=_id).on_conflict_do_nothing())
_END_UNWRITTEN: Final = Statement(
    insert(ended_uploads)
    .from_select(["id"], sa.select(_id).where(~sa.exists().where(_u.id == _id)))
    .on_conflict_do_nothing()
)
_FIND_HERE: Final = Statement(
    sa.select(
        repositories.c.id,
        repositories.c.account_id,
        _has_ended,
        _u.expires_at <= sa.bindparam("now"),
        *use_of(repositories.c.account_id),
        *COLUMNS,
    )
    .select_from(repositories)
    .join(accounts, accounts.c.id == repositories.c.account_id)
    .outerjoin(uploads, sa.and_(_u.id == _id, _u.repository_id == repositories.c.id))
    .where(IS_NAMED)
)
_BEGUN: Final[Mapping[str, sa.ColumnElement[Any]]] = {
    "id": _id,
    "repository_id": repositories.c.id,
    "account_id": repositories.c.account_id,
    "algorithm": sa.bindparam("algorithm", type_=sa.String()),
    "received_bytes": sa.bindparam("received", type_=sa.BigInteger()),
    "stage_id": sa.bindparam("stage_id", type_=sa.String()),
    "stage_shared": sa.literal_column("false"),
    "lease_holder": sa.bindparam("holder", type_=sa.String()),
    "lease_token": sa.bindparam("token", type_=sa.BigInteger()),
    "leased_until": sa.bindparam("until", type_=sa.BigInteger()),
    "created_at": sa.bindparam("now", type_=sa.BigInteger()),
    "expires_at": sa.bindparam("expires_at", type_=sa.BigInteger()),
    "kms_key_id": sa.bindparam("key", type_=sa.String()),
    "wrapped_data_key": sa.bindparam("wrapped", type_=sa.LargeBinary()),
    "body": sa.bindparam("kept", type_=sa.LargeBinary()),
    "digests": sa.bindparam("known_digests", type_=sa.String()),
}


def beginning(where: sa.Select[Any]) -> Insert:
    """Build the insertion of a session's row, into the repository that the query `where` finds."""
    found = where.with_only_columns(*_BEGUN.values(), maintain_column_froms=True)
    return insert(uploads).from_select([*_BEGUN], found).on_conflict_do_nothing()


_BEGIN: Final = Statement(
    beginning(
        sa.select(repositories.c.id).where(
            repositories.c.id == sa.bindparam("repository_id"),
            repositories.c.deleted_at.is_(None),
            ~_has_ended,
        )
    )
)
_FORGET_ENDED: Final = Statement(
    ended_uploads.delete().where(
        ended_uploads.c.id.in_(
            page(
                sa.select(ended_uploads.c.id)
                .where(ended_uploads.c.id < sa.bindparam("before"))
                .order_by(ended_uploads.c.id)
            )
        )
    )
)
_EXPIRED: Final = paged(
    sa.select(_u.id).where(_u.expires_at <= sa.bindparam("now")).order_by(_u.expires_at)
)


def find_upload(tx: Connection, handle: str, name: str, upload_id: str, now: int) -> Upload | None:
    """Return an open, unexpired session of this repository, or None."""
    return upload_of(tx.row(_FIND, handle=handle, name=name, upload_id=upload_id, now=now))


def find_session_in(
    tx: Connection, handle: str, name: str, upload_id: str, now: int
) -> FoundSession | None:
    """Return a session of a repository, with or without a row; None if there is no repository."""
    row = tx.row(_FIND_HERE, handle=handle, name=name, upload_id=upload_id, now=now)
    if row is None:
        return None
    has_row = row[6] is not None
    upload = upload_of(row[6:]) if has_row and not row[3] else None
    return FoundSession(row[0], row[1], bool(row[2]), bool(row[3]), upload, read_use(row[4:6]))


def advance_upload(tx: Connection, lease: Lease, received: ReceivedBytes, expires_at: int) -> bool:
    """Write `received` to a session's row and release the session's lease.

    Return False if the lease was lost. Idempotent: run it again if its outcome is unknown.
    """
    token = lease.token + (lease.holder is None)
    row = _received(lease, received, expires_at)
    changed = tx.execute(_ADVANCE, **row, kept=received.body, next_token=token)
    return bool(changed) or has_advanced(tx, lease.upload_id, token, received)


def record_received(tx: Connection, lease: Lease, received: ReceivedBytes, expires_at: int) -> bool:
    """Write `received`, whose bytes are staged, to a session's row, and keep the lease.

    Return False if the lease was lost. Idempotent.
    """
    return tx.execute(_NOTE, **_received(lease, received, expires_at)) == 1


def _received(lease: Lease, received: ReceivedBytes, expires_at: int) -> dict[str, object]:
    return {
        **lease._asdict(),
        "received": received.size,
        "stage": None if received.stage_id == lease.upload_id else received.stage_id,
        "expires": expires_at,
        **_digests_and_key(received),
    }


def begin_upload(
    tx: Connection, upload: Upload, received: ReceivedBytes, now: int, expires_at: int
) -> bool:
    """Insert the row of a session that has none.

    Return False if the session has a row or has ended, or the repository is deleted. If `upload`
    has a lease, the row is inserted with it. Idempotent without a lease.
    """
    row = beginning_parameters(upload, received, expires_at)
    changed = tx.execute(_BEGIN, **row, repository_id=upload.repository_id, now=now)
    return bool(changed) or has_advanced(tx, upload.id, upload.lease_token, received)


def beginning_parameters(
    upload: Upload, received: ReceivedBytes, expires_at: int
) -> dict[str, object]:
    """Return the parameters of `beginning`, except ``:now`` and the parameters of `where`."""
    return {
        "upload_id": upload.id,
        "algorithm": upload.algorithm,
        "received": received.size,
        "stage_id": received.stage_id,
        "holder": upload.lease_holder,
        "token": upload.lease_token,
        "until": upload.leased_until,
        "expires_at": expires_at,
        "kept": received.body,
        **_digests_and_key(received),
    }


def _digests_and_key(received: ReceivedBytes) -> dict[str, object]:
    wrap, digests = received.wrap, received.digests
    return {
        "known_digests": json_text(digests) if digests else None,
        "key": None if wrap is None else wrap.kms_key_id,
        "wrapped": None if wrap is None else wrap.wrapped_data_key,
    }


def has_advanced(tx: Connection, upload_id: str, token: int, received: ReceivedBytes) -> bool:
    """Return True if a session has this token and these received bytes, and nobody holds it."""
    found = tx.row(
        _HAS_ADVANCED,
        upload_id=upload_id,
        token=token,
        stage_id=received.stage_id,
        received=received.size,
    )
    return found is not None


def remove_upload(tx: Connection, ending: SessionEnd, now: int) -> bool:
    """End a session; delete its row, and keep a record of the end until the session's id expires.

    Return False if the lease was lost or, for a session without a row (`ending.lease` is None), if
    the session has ended or has a row by now.
    """
    upload_id, lease, valid_until = ending
    if lease is None:
        return tx.execute(_END_UNWRITTEN, upload_id=upload_id) == 1
    if tx.execute(_REMOVE, **lease._asdict()) != 1:
        return False
    if valid_until > now:
        tx.execute(_MARK_ENDED, upload_id=upload_id)
    return True


def forget_ended(tx: Connection, before: str, limit: int) -> int:
    """Delete up to `limit` records of ended sessions with ids below `before`; return how many."""
    return tx.execute(_FORGET_ENDED, before=before, limit=limit)


def expired_uploads(tx: Connection, now: int, limit: int) -> list[str]:
    """Return the ids of up to `limit` expired sessions, oldest first."""
    return [row[0] for row in tx.rows(_EXPIRED, now=now, limit=limit)]


def upload_of(row: Row | None) -> Upload | None:
    """Convert a row of `COLUMNS` to a session; None without a row."""
    if row is None:
        return None
    digests = msgspec.json.decode(row[5], type=dict[str, str]) if row[5] else {}
    body = None if row[13] is None else bytes(row[13])
    stage = row[6] or row[0], bool(row[7])
    return Upload._make((*row[:5], digests, *stage, *row[8:13], body))
