"""Upload sessions: how far each has come, so that any worker can take it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Exists, bindparam, case, exists, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from cloudcore.identity.tables import accounts
from registry.metadata.tables import repositories, uploads

_u = uploads.c


class Upload(NamedTuple):
    """An open upload session."""

    id: str
    repository_id: str
    account_id: str
    algorithm: str | None
    received_bytes: int
    digests: Mapping[str, str]
    """Hex digests of the received bytes by algorithm; empty when no worker saw them all."""


def _has_open(where: ColumnElement[bool], beyond: str) -> Exists:
    """Return a condition: more sessions are open than the parameter `beyond`."""
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
        created_at=bindparam("now"),
        expires_at=bindparam("expires_at"),
    )
)
_FIND: Final = Statement(
    select(
        _u.id,
        _u.repository_id,
        repositories.c.account_id,
        _u.algorithm,
        _u.received_bytes,
        _u.digests,
    )
    .join(repositories, repositories.c.id == _u.repository_id)
    .join(accounts, accounts.c.id == repositories.c.account_id)
    .where(
        _u.id == bindparam("id"),
        _u.expires_at > bindparam("now"),
        accounts.c.handle == bindparam("handle"),
        repositories.c.name == bindparam("name"),
        repositories.c.deleted_at.is_(None),
    )
)
_ADVANCE: Final = Statement(
    uploads.update()
    .where(_u.id == bindparam("upload_id"))
    .values(
        received_bytes=bindparam("received"),
        digests=bindparam("known_digests"),
        expires_at=bindparam("expires"),
    )
)
_REMOVE: Final = Statement(uploads.delete().where(_u.id == bindparam("id")))
_EXPIRED: Final = Statement(
    page(select(_u.id).where(_u.expires_at <= bindparam("now")).order_by(_u.expires_at))
)

_IS_EXPIRED: Final = Statement(
    select(_u.id).where(_u.id == bindparam("id"), _u.expires_at <= bindparam("now"))
)


def find_full(
    tx: Connection,
    repository_id: str,
    account_id: str,
    now: int,
    of_repository: int,
    of_account: int,
) -> str | None:
    """Return ``"repository"`` or ``"account"`` if that has this many sessions open, else None.

    Read no more than `of_repository` and `of_account` entries of an index.
    """
    row = tx.row(
        _FIND_FULL,
        repository_id=repository_id,
        account_id=account_id,
        now=now,
        of_repository=max(of_repository - 1, 0),
        of_account=max(of_account - 1, 0),
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
    """Open a session with no bytes yet."""
    tx.execute(
        _ADD,
        id=upload_id,
        repository_id=repository_id,
        account_id=account_id,
        algorithm=algorithm,
        received_bytes=0,
        now=now,
        expires_at=expires_at,
    )


def find_upload(tx: Connection, handle: str, name: str, upload_id: str, now: int) -> Upload | None:
    """Return an open session of this repository that has not expired."""
    row = tx.row(_FIND, handle=handle, name=name, id=upload_id, now=now)
    if row is None:
        return None
    digests = msgspec.json.decode(row[5], type=dict[str, str]) if row[5] else {}
    return Upload(row[0], row[1], row[2], row[3], row[4], digests)


def advance_upload(
    tx: Connection, upload_id: str, received_bytes: int, digests: Mapping[str, str], expires_at: int
) -> bool:
    """Record how far a session has come; False when it has ended meanwhile."""
    changed = tx.execute(
        _ADVANCE,
        upload_id=upload_id,
        received=received_bytes,
        known_digests=msgspec.json.encode(digests).decode() if digests else None,
        expires=expires_at,
    )
    return changed == 1


def remove_upload(tx: Connection, upload_id: str) -> bool:
    """End a session; False when it had ended before."""
    return tx.execute(_REMOVE, id=upload_id) == 1


def expired_uploads(tx: Connection, now: int, limit: int) -> list[str]:
    """Return sessions whose time is over, oldest first."""
    return [row[0] for row in tx.rows(_EXPIRED, now=now, limit=limit)]


def is_expired(tx: Connection, upload_id: str, now: int) -> bool:
    """Say whether a session's time is over."""
    return tx.row(_IS_EXPIRED, id=upload_id, now=now) is not None
