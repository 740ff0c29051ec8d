"""Whether a push still writes where, and under the KMS key, that it did the last time.

One look in the push's own transaction stands for all that it would have to read before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.objects import Target
from registry.metadata.blobs.uploads import (
    FULL,
    IS_UNWRITTEN,
    FullParameters,
    Received,
    Upload,
    beginning,
    beginning_parameters,
    has_advanced,
)
from registry.metadata.encryption_bindings import EFFECTIVE_ID
from registry.metadata.tables import repositories, repository_blobs

_r = repositories.c
_k = kms_keys.c
_l = repository_blobs.c


class Place(NamedTuple):
    """A repository that takes pushes, and what new bytes in it are sealed under."""

    repository_id: str
    account_id: str
    handle: str
    name: str
    kms_key_id: str | None
    """None if they are stored plain."""
    key_version: int
    """Of the KMS key; 0 without one."""


_IS_THE_SAME: Final = (
    accounts.c.handle == bindparam("handle"),
    _r.id == bindparam("repository_id"),
    _r.account_id == bindparam("account_id"),
    _r.name == bindparam("name"),
    _r.deleted_at.is_(None),
    _r.source != text("'pull_through_cache'"),
)
_IS_SEALED_SO: Final = and_(
    _k.id == bindparam("kms_key_id"),
    _k.account_id == bindparam("account_id"),
    _k.state == text("'enabled'"),
    _k.current_version == bindparam("key_version"),
    _k.id == EFFECTIVE_ID,
)
_HOLDING: Final = (
    select(_l.object_id, _l.kms_key_id)
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(repository_blobs, and_(_l.repository_id == _r.id, _l.digest == bindparam("digest")))
    .where(*_IS_THE_SAME)
)
HOLDING_PLAIN: Final = _HOLDING
HOLDING_SEALED: Final = _HOLDING.join(kms_keys, _IS_SEALED_SO).with_for_update(
    read=True, of=kms_keys
)
"""The object and the KMS key of the link of ``:digest`` in a place that is as it was.

Nothing if it is not; an object of NULL if there is no link. The KMS key of the place is held.
"""
_HOLD_PLAIN: Final = Statement(HOLDING_PLAIN)
_HOLD_SEALED: Final = Statement(HOLDING_SEALED)
_LOOKING: Final = (
    select(FULL)
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .where(*_IS_THE_SAME)
)
_LOOK_PLAIN: Final = Statement(_LOOKING)
_LOOK_SEALED: Final = Statement(_LOOKING.join(kms_keys, _IS_SEALED_SO))
_NEW_PLAIN: Final = Statement(_LOOKING.where(IS_UNWRITTEN))
_NEW_SEALED: Final = Statement(_LOOKING.join(kms_keys, _IS_SEALED_SO).where(IS_UNWRITTEN))
_ROOM: Final = _LOOKING.where(IS_UNWRITTEN, FULL.is_(None))
_BEGIN_PLAIN: Final = Statement(beginning(_ROOM), is_whole=True)
_BEGIN_SEALED: Final = Statement(beginning(_ROOM.join(kms_keys, _IS_SEALED_SO)), is_whole=True)


def hold_place(tx: Connection, place: Place, digest: str) -> Target | None:
    """Return what the link of a digest names in a place, or None if the place is not as it was.

    Its KMS key is held enabled until `tx` ends.
    """
    row = tx.row(
        _HOLD_PLAIN if place.kms_key_id is None else _HOLD_SEALED,
        digest=digest,
        **place_parameters(place),
    )
    return None if row is None else Target(*row)


def takes_more(tx: Connection, place: Place, room: FullParameters, upload_id: str | None) -> bool:
    """Return True if a place is as it was, and has room for the row of one more upload session.

    With `upload_id`, also that this one has no row and has not ended. False says nothing: look at
    each.
    """
    parameters = room._asdict() | place_parameters(place)
    if upload_id is None:
        statement = _LOOK_PLAIN if place.kms_key_id is None else _LOOK_SEALED
    else:
        statement = _NEW_PLAIN if place.kms_key_id is None else _NEW_SEALED
        parameters["upload_id"] = upload_id
    row = tx.row(statement, **parameters)
    return row is not None and row[0] is None


def begin_there(
    tx: Connection,
    place: Place,
    room: FullParameters,
    upload: Upload,
    received: Received,
    expires_at: int,
) -> bool:
    """Insert the row of a session that nobody holds, if `takes_more`; return False if not.

    Idempotent.
    """
    row = beginning_parameters(upload, received, expires_at)
    statement = _BEGIN_PLAIN if place.kms_key_id is None else _BEGIN_SEALED
    changed = tx.execute(statement, **row, **room._asdict(), **place_parameters(place))
    return bool(changed) or has_advanced(tx, upload.id, upload.lease_token, received)


def place_parameters(place: Place) -> dict[str, object]:
    """Return the parameters of the statements above for a place."""
    found = place._asdict()
    if place.kms_key_id is None:
        del found["kms_key_id"], found["key_version"]
    return found
