"""Take, extend and release the leases of upload sessions.

The lease of a session is three columns of its row. Each new lease has a `lease_token` greater by
one, and every statement of a holder checks its token, so a holder that lost the lease can change
nothing. Taking a lease locks the row, and so waits for transactions of unknown outcome to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.blobs.uploads import (
    COLUMNS,
    FENCED,
    FREE,
    OPEN_HERE,
    Lease,
    Upload,
    upload_of,
)
from registry.metadata.tables import uploads

_u = uploads.c

_LOCK: Final = Statement(select(*COLUMNS).where(*OPEN_HERE).with_for_update(of=uploads))
_LOCK_EXPIRED: Final = Statement(
    select(*COLUMNS)
    .where(_u.id == bindparam("upload_id"), _u.expires_at <= bindparam("now"))
    .with_for_update()
)
_LOCK_ANY: Final = Statement(
    select(*COLUMNS).where(_u.id == bindparam("upload_id")).with_for_update()
)
_taken: Final = {
    "lease_holder": bindparam("holder"),
    "lease_token": _u.lease_token + ONE,
    "leased_until": bindparam("until"),
}
_TAKE_FREE: Final = Statement(
    uploads.update().where(*OPEN_HERE, _u.lease_holder.is_(None)).values(_taken).returning(*COLUMNS)
)
_TAKE: Final = Statement(
    uploads.update()
    .where(_u.id == bindparam("upload_id"))
    .values(_taken | {"stage_shared": bindparam("shared")})
    .returning(*COLUMNS)
)
_RENEW: Final = Statement(
    uploads.update()
    .where(_u.id.in_(listed("ids")), _u.lease_holder == bindparam("holder"))
    .values(leased_until=bindparam("until"))
)
_RELEASE: Final = Statement(uploads.update().where(*FENCED).values(FREE))
_LOCK_HOLDER: Final = Statement(
    select(_u.lease_holder, _u.lease_token).where(_u.id == bindparam("upload_id")).with_for_update()
)


def take_free(
    tx: Connection, handle: str, name: str, upload_id: str, now: int, holder: str, until: int
) -> Upload | None:
    """Take the lease of an open session; return None if it has a holder or does not exist.

    The returned `Upload` has the new lease.
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
    return upload_of(row)


def lock_upload(tx: Connection, handle: str, name: str, upload_id: str, now: int) -> Upload | None:
    """Lock and return an open session of this repository, or None."""
    return upload_of(tx.row(_LOCK, handle=handle, name=name, upload_id=upload_id, now=now))


def lock_expired_upload(tx: Connection, upload_id: str, now: int) -> Upload | None:
    """Lock and return a session that has expired, or None."""
    return upload_of(tx.row(_LOCK_EXPIRED, upload_id=upload_id, now=now))


def lock_any_upload(tx: Connection, upload_id: str) -> Upload | None:
    """Lock and return a session, open or expired; return None if it has no row."""
    return upload_of(tx.row(_LOCK_ANY, upload_id=upload_id))


def take(tx: Connection, upload_id: str, holder: str, until: int, *, shared: bool) -> Upload:
    """Take the lease of a session whose row is locked, even if it has a holder.

    `shared` means that an earlier holder may still write to the staged bytes.
    """
    upload = upload_of(
        tx.row(_TAKE, upload_id=upload_id, holder=holder, until=until, shared=shared)
    )
    assert upload is not None
    return upload


def renew_leases(tx: Connection, upload_ids: Sequence[str], holder: str, until: int) -> int:
    """Extend a holder's leases on these sessions to `until`; return how many it still holds."""
    return tx.execute(_RENEW, ids=text_list(upload_ids), holder=holder, until=until)


def release_lease(tx: Connection, lease: Lease) -> bool:
    """Release a lease; return False if it was lost."""
    return tx.execute(_RELEASE, **lease._asdict()) == 1


def lock_holder(tx: Connection, upload_id: str) -> tuple[str | None, int] | None:
    """Lock a session; return its holder and the token of its last lease, or None if it has ended.

    This waits for transactions that have changed the session.
    """
    row = tx.row(_LOCK_HOLDER, upload_id=upload_id)
    return None if row is None else (row[0], row[1])
