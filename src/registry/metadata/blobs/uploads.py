"""Upload sessions: what each has received, and which worker process may append to it.

The lease of a session is three columns of its row. Each new lease has a `lease_token` greater by
one, and every statement of a holder checks its token, so a holder that lost the lease changes
nothing. Taking a lease locks the row, so it waits for transactions of unknown outcome to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Exists, bindparam, case, exists, literal_column, null, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.tables import repositories, uploads

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
    """Hex digests of the received bytes by algorithm; empty if no worker has hashed them all."""
    stage_id: str
    """Id under which the received bytes are staged."""
    stage_shared: bool
    """True if a former holder may still write there."""
    lease_holder: str | None
    """The worker process that may append, or None."""
    lease_token: int
    leased_until: int | None
    kms_key_id: str | None = None
    """The KMS key that wraps the data key of the received bytes, or None if they are plain."""
    wrapped_data_key: bytes | None = None


class UploadWrap(NamedTuple):
    """The data key of received bytes, wrapped under a KMS key."""

    kms_key_id: str
    wrapped_data_key: bytes


class Lease(NamedTuple):
    """The right of a worker process to append to a session."""

    upload_id: str
    holder: str
    token: int


def lease_of(upload: Upload) -> Lease:
    """Return the lease of a session that has a holder."""
    assert upload.lease_holder is not None
    return Lease(upload.id, upload.lease_holder, upload.lease_token)


def _has_open(where: ColumnElement[bool], beyond: str) -> Exists:
    """Return the condition that more than `beyond` (a parameter's name) sessions are open."""
    found = select(_u.expires_at).where(where, _u.expires_at > bindparam("now"))
    return exists(found.limit(literal_column("1")).offset(bindparam(beyond)))


_FIND_FULL: Final = Statement(
    select(
        case(
            (
                _has_open(_u.repository_id == bindparam("repository_id"), "of_repository"),
                literal_column("'repository'"),
            ),
            (
                _has_open(_u.account_id == bindparam("account_id"), "of_account"),
                literal_column("'account'"),
            ),
        )
    )
)
_ADD: Final = Statement(
    uploads.insert().values(
        id=bindparam("id"),
        repository_id=bindparam("repository_id"),
        account_id=bindparam("account_id"),
        algorithm=bindparam("algorithm"),
        received_bytes=bindparam("received_bytes"),
        stage_shared=literal_column("false"),
        lease_token=bindparam("lease_token"),
        created_at=bindparam("now"),
        expires_at=bindparam("expires_at"),
    )
)
_COLUMNS: Final = (
    _u.id,
    _u.repository_id,
    _u.account_id,
    _u.algorithm,
    _u.received_bytes,
    _u.digests,
    _u.stage_id,
    _u.stage_shared,
    _u.lease_holder,
    _u.lease_token,
    _u.leased_until,
    _u.kms_key_id,
    _u.wrapped_data_key,
)
_repository: Final = (
    select(repositories.c.id)
    .join(accounts, accounts.c.id == repositories.c.account_id)
    .where(
        accounts.c.handle == bindparam("handle"),
        repositories.c.name == bindparam("name"),
        repositories.c.deleted_at.is_(None),
    )
    .scalar_subquery()
)
_open_here: Final = (
    _u.id == bindparam("upload_id"),
    _u.expires_at > bindparam("now"),
    _u.repository_id == _repository,
)
_FIND: Final = Statement(select(*_COLUMNS).where(*_open_here))
_LOCK: Final = Statement(select(*_COLUMNS).where(*_open_here).with_for_update(of=uploads))
_LOCK_EXPIRED: Final = Statement(
    select(*_COLUMNS)
    .where(_u.id == bindparam("upload_id"), _u.expires_at <= bindparam("now"))
    .with_for_update()
)
_taken: Final = {
    "lease_holder": bindparam("holder"),
    "lease_token": _u.lease_token + literal_column("1"),
    "leased_until": bindparam("until"),
}
_TAKE_FREE: Final = Statement(
    uploads.update()
    .where(*_open_here, _u.lease_holder.is_(None))
    .values(_taken)
    .returning(*_COLUMNS)
)
_TAKE: Final = Statement(
    uploads.update()
    .where(_u.id == bindparam("upload_id"))
    .values(_taken | {"stage_shared": bindparam("shared")})
    .returning(*_COLUMNS)
)
_RENEW: Final = Statement(
    uploads.update()
    .where(_u.id.in_(listed("ids")), _u.lease_holder == bindparam("holder"))
    .values(leased_until=bindparam("until"))
)
_fenced: Final = (
    _u.id == bindparam("upload_id"),
    _u.lease_holder == bindparam("holder"),
    _u.lease_token == bindparam("token"),
)
_free: Final = {"lease_holder": null(), "leased_until": null()}
_RELEASE: Final = Statement(uploads.update().where(*_fenced).values(_free))
_ADVANCE: Final = Statement(
    uploads.update()
    .where(*_fenced)
    .values(
        received_bytes=bindparam("received"),
        digests=bindparam("known_digests"),
        stage_id=bindparam("stage"),
        kms_key_id=bindparam("key"),
        wrapped_data_key=bindparam("wrapped"),
        stage_shared=literal_column("false"),
        expires_at=bindparam("expires"),
        **_free,
    )
)
_HAS_ADVANCED: Final = Statement(
    select(_u.id).where(
        _u.id == bindparam("upload_id"),
        _u.lease_holder.is_(None),
        _u.lease_token == bindparam("token"),
        _u.received_bytes == bindparam("received"),
    )
)
_LOCK_HOLDER: Final = Statement(
    select(_u.lease_holder, _u.lease_token).where(_u.id == bindparam("upload_id")).with_for_update()
)
_REMOVE: Final = Statement(uploads.delete().where(*_fenced))
_EXPIRED: Final = Statement(
    page(select(_u.id).where(_u.expires_at <= bindparam("now")).order_by(_u.expires_at))
)


def find_full(
    tx: Connection,
    repository_id: str,
    account_id: str,
    now: int,
    of_repository: int,
    of_account: int,
) -> str | None:
    """Return ``"repository"`` or ``"account"`` if that has its maximum of open sessions, else None.

    The maxima are `of_repository` and `of_account`; no more index entries than that are read.
    """
    if of_repository <= 0 or of_account <= 0:
        return "repository" if of_repository <= 0 else "account"
    row = tx.row(
        _FIND_FULL,
        repository_id=repository_id,
        account_id=account_id,
        now=now,
        of_repository=of_repository - 1,
        of_account=of_account - 1,
    )
    return None if row is None else row[0]


def add_upload(
    tx: Connection,
    upload_id: str,
    repository_id: str,
    account_id: str,
    algorithm: str | None,
    now: int,
    expires_at: int,
) -> None:
    """Insert a session that has received nothing."""
    tx.execute(
        _ADD,
        id=upload_id,
        repository_id=repository_id,
        account_id=account_id,
        algorithm=algorithm,
        received_bytes=0,
        lease_token=FIRST_TOKEN - 1,
        now=now,
        expires_at=expires_at,
    )


def find_upload(tx: Connection, handle: str, name: str, upload_id: str, now: int) -> Upload | None:
    """Return an open session of this repository, or None if there is none or it has expired."""
    return _upload(tx.row(_FIND, handle=handle, name=name, upload_id=upload_id, now=now))


def take_free(
    tx: Connection, handle: str, name: str, upload_id: str, now: int, holder: str, until: int
) -> Upload | None:
    """Take the lease of an open session; return None if it has a holder or does not exist.

    The `Upload` has the new lease.
    """
    row = tx.row(
        _TAKE_FREE,
        handle=handle,
        name=name,
        upload_id=upload_id,
        now=now,
        holder=holder,
        until=until,
    )
    return _upload(row)


def lock_upload(tx: Connection, handle: str, name: str, upload_id: str, now: int) -> Upload | None:
    """Lock and return an open session, or None."""
    return _upload(tx.row(_LOCK, handle=handle, name=name, upload_id=upload_id, now=now))


def lock_expired_upload(tx: Connection, upload_id: str, now: int) -> Upload | None:
    """Lock and return a session that has expired, or None."""
    return _upload(tx.row(_LOCK_EXPIRED, upload_id=upload_id, now=now))


def take(tx: Connection, upload_id: str, holder: str, until: int, *, shared: bool) -> Upload:
    """Take the lease of a session whose row is locked, even if it has a holder.

    `shared`: a former holder may still write to the staged bytes.
    """
    upload = _upload(tx.row(_TAKE, upload_id=upload_id, holder=holder, until=until, shared=shared))
    assert upload is not None
    return upload


def renew_leases(tx: Connection, upload_ids: Sequence[str], holder: str, until: int) -> int:
    """Extend the leases of a holder to `until`; return how many of them it still has."""
    return tx.execute(_RENEW, ids=text_list(upload_ids), holder=holder, until=until)


def release_lease(tx: Connection, lease: Lease) -> bool:
    """Release a lease; return False if it was lost."""
    return tx.execute(_RELEASE, **lease._asdict()) == 1


def advance_upload(
    tx: Connection,
    lease: Lease,
    received_bytes: int,
    digests: Mapping[str, str],
    stage_id: str,
    wrap: UploadWrap | None,
    expires_at: int,
) -> bool:
    """Set what a session has received and release its lease; return False if the lease was lost.

    `wrap` is that of the data key of what is staged; None if that is plain.
    Idempotent: run it again if its outcome is unknown.
    """
    changed = tx.execute(
        _ADVANCE,
        **lease._asdict(),
        received=received_bytes,
        known_digests=msgspec.json.encode(digests).decode() if digests else None,
        stage=None if stage_id == lease.upload_id else stage_id,
        key=None if wrap is None else wrap.kms_key_id,
        wrapped=None if wrap is None else wrap.wrapped_data_key,
        expires=expires_at,
    )
    if changed:
        return True
    return (
        tx.row(_HAS_ADVANCED, upload_id=lease.upload_id, token=lease.token, received=received_bytes)
        is not None
    )


def lock_holder(tx: Connection, upload_id: str) -> tuple[str | None, int] | None:
    """Lock a session; return its holder and the token of its last lease, or None if it has ended.

    This waits for transactions that have changed the session.
    """
    row = tx.row(_LOCK_HOLDER, upload_id=upload_id)
    return None if row is None else (row[0], row[1])


def remove_upload(tx: Connection, lease: Lease) -> bool:
    """Delete a session; return False if its lease was lost."""
    return tx.execute(_REMOVE, **lease._asdict()) == 1


def expired_uploads(tx: Connection, now: int, limit: int) -> list[str]:
    """Return the ids of up to `limit` expired sessions, oldest first."""
    return [row[0] for row in tx.rows(_EXPIRED, now=now, limit=limit)]


def _upload(row: Row | None) -> Upload | None:
    if row is None:
        return None
    digests = msgspec.json.decode(row[5], type=dict[str, str]) if row[5] else {}
    return Upload(
        id=row[0],
        repository_id=row[1],
        account_id=row[2],
        algorithm=row[3],
        received_bytes=row[4],
        digests=digests,
        stage_id=row[6] or row[0],
        stage_shared=bool(row[7]),
        lease_holder=row[8],
        lease_token=row[9],
        leased_until=row[10],
        kms_key_id=row[11],
        wrapped_data_key=row[12],
    )
