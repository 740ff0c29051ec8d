"""Cached push targets, and one statement that writes all rows of a small new blob.

A push to a cached target reads nothing beforehand: its transaction only checks that the repository
and the KMS key are the same as at the last push.

On PostgreSQL each statement is a round trip, in which two processes wake up. So the first push of
some bytes to a cached target runs one statement instead of nine: it verifies the target and the
upload session, keeps the KMS key from being disabled, inserts the object, its wrap, its bytes and
its link, and ends the session. The statement changes nothing if the target or session has changed,
the account already has the bytes, or the repository already has the link. The caller then writes
the rows one by one, which handles each of these cases.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_one, given, value
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.objects import LinkTarget, NewObject
from registry.metadata.blobs.upload_quota import FULL, ROOM, LimitParameters, Room, room_of
from registry.metadata.blobs.uploads import (
    FENCED,
    IS_UNWRITTEN,
    ReceivedBytes,
    SessionEnd,
    Upload,
    UploadWrap,
    beginning,
    beginning_parameters,
    has_advanced,
)
from registry.metadata.encryption_bindings import EFFECTIVE_ID
from registry.metadata.quotas import IS_FREE
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    ended_uploads,
    inline_bytes,
    repositories,
    repository_blobs,
    uploads,
)

_r = repositories.c
_k = kms_keys.c
_l = repository_blobs.c


class PushTarget(NamedTuple):
    """A repository that accepts pushes, and the KMS key that it writes under."""

    repository_id: str
    account_id: str
    handle: str
    name: str
    kms_key_id: str | None
    """The key under which new blobs are sealed; None if they are stored plain."""
    key_version: int
    """The version of the KMS key; 0 without a key."""

    @property
    def seals(self) -> bool:
        """Return True if new blobs are sealed in this repository."""
        return self.kms_key_id is not None


_IS_THE_SAME: Final = (
    given(accounts.c.handle),
    _r.id == sa.bindparam("repository_id"),
    given(_r.account_id, _r.name),
    _r.deleted_at.is_(None),
    _r.source != sa.text("'pull_through_cache'"),
)
_IS_SEALED_SO: Final = sa.and_(
    _k.id == sa.bindparam("kms_key_id"),
    given(_k.account_id),
    _k.state == sa.text("'enabled'"),
    _k.current_version == sa.bindparam("key_version"),
    _k.id == EFFECTIVE_ID,
)
HOLDING_PLAIN: Final = (
    sa.select(_l.object_id, _l.kms_key_id)
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(repository_blobs, sa.and_(_l.repository_id == _r.id, given(_l.digest)))
    .where(*_IS_THE_SAME)
)
HOLDING_SEALED: Final = HOLDING_PLAIN.join(kms_keys, _IS_SEALED_SO).with_for_update(
    read=True, of=kms_keys
)
"""Select the object and the KMS key of the link of ``:digest``; prevent the repository's KMS key
from being disabled. No row if the repository or its key has changed; a row of NULL if there is no
link."""
_HOLD: Final = {False: Statement(HOLDING_PLAIN), True: Statement(HOLDING_SEALED)}
_looking: Final = (
    sa.select(*ROOM)
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .where(*_IS_THE_SAME)
)
_LOOKING: Final = {False: _looking, True: _looking.join(kms_keys, _IS_SEALED_SO)}
"""Queries for the columns `ROOM` of a target, by `PushTarget.seals`."""
_LOOK: Final = {seals: Statement(query) for seals, query in _LOOKING.items()}
_NEW: Final = {seals: Statement(query.where(IS_UNWRITTEN)) for seals, query in _LOOKING.items()}
_BEGIN: Final = {
    seals: Statement(beginning(query.where(IS_UNWRITTEN, FULL.is_(None))), is_whole=True)
    for seals, query in _LOOKING.items()
}


def hold_target(tx: Connection, target: PushTarget, digest: str) -> LinkTarget | None:
    """Return the object and KMS key of a digest's link; None if the push target has changed.

    The push target's KMS key cannot be disabled until `tx` ends.
    """
    return find_one(
        tx, LinkTarget, _HOLD[target.seals], digest=digest, **_target_parameters(target)
    )


def find_room_in(
    tx: Connection, target: PushTarget, room: LimitParameters, upload_id: str | None
) -> Room | None:
    """Return the account's stored bytes and their limit if an upload session may begin, else None.

    A session may not begin if the repository or its KMS key differs from `target`, if a maximum of
    sessions or bytes is exhausted, or if the session `upload_id` has ended or already has a row.
    """
    parameters = room._asdict() | _target_parameters(target)
    if upload_id is None:
        row = tx.row(_LOOK[target.seals], **parameters)
    else:
        row = tx.row(_NEW[target.seals], **parameters, upload_id=upload_id)
    return None if row is None or row[0] is not None else room_of(row)


def begin_in_target(
    tx: Connection,
    target: PushTarget,
    room: LimitParameters,
    upload: Upload,
    received: ReceivedBytes,
    expires_at: int,
) -> bool:
    """Insert a session's row, without a lease; return False if the session may not begin.

    `find_room_in` lists when a session may not begin. Idempotent.
    """
    row = beginning_parameters(upload, received, expires_at)
    found = room._asdict() | _target_parameters(target)
    changed = tx.execute(_BEGIN[target.seals], **row, **found)
    return bool(changed) or has_advanced(tx, upload.id, upload.lease_token, received)


def _target_parameters(target: PushTarget) -> dict[str, object]:
    """Return the parameters of the statements that check that a target is unchanged."""
    found = target._asdict()
    if target.kms_key_id is None:
        del found["kms_key_id"], found["key_version"]
    return found


def _values(table: sa.Table, *names: str) -> dict[str, sa.ColumnElement[Any]]:
    """Map column names to the parameters of the same names, for an insertion."""
    return {name: value(name, table.c[name]) for name in names}


class _Session(Enum):
    """The upload session that ends with the push: none, one without a row, or one with a row."""

    NONE = auto()
    UNWRITTEN = auto()
    ROW = auto()


def _statement(session: _Session, *, is_sealed: bool) -> Statement:
    """Build the statement for a push that ends a session of this kind."""
    target = _target_query(session, is_sealed=is_sealed).cte("target")
    now = value("now", _l.touched_at)
    made = {
        **_values(blob_objects, *NewObject._fields, "account_id"),
        "is_current": sa.literal_column("true"),
        "state": sa.literal_column("'live'"),
        "created_at": now,
        "verified_at": now,
    }
    kept = (
        insert(blob_objects)
        .from_select(list(made), sa.select(*made.values()).select_from(target))
        .on_conflict_do_nothing(
            index_elements=["account_id", "digest"], index_where=sa.text("is_current")
        )
        .returning(blob_objects.c.id)
        .cte("kept")
    )
    wrap = {
        **_values(blob_object_keys, "kms_key_id", "account_id", "wrapped_data_key"),
        "object_id": kept.c.id,
    }
    wrapped = insert(blob_object_keys).from_select(list(wrap), sa.select(*wrap.values()))
    body = _values(inline_bytes, "stored_id", "body")
    stored = insert(inline_bytes).from_select(
        list(body), sa.select(*body.values()).select_from(kept)
    )
    link = {
        **_values(repository_blobs, "repository_id", "digest", "account_id", "size", "kms_key_id"),
        "object_id": kept.c.id,
        "manifest_refs": ZERO,
        "touched_at": now,
    }
    if not is_sealed:
        link["kms_key_id"] = sa.literal_column("NULL")
    others: list[sa.CTE] = [stored.cte("stored"), *([wrapped.cte("wrapped")] if is_sealed else [])]
    if session is not _Session.NONE:
        ended = insert(ended_uploads).from_select(["id"], _ended_session(session, kept))
        others.append(ended.cte("ended"))
    return Statement(
        insert(repository_blobs)
        .from_select(list(link), sa.select(*link.values()))
        .add_cte(*others),
        is_whole=True,
    )


def _target_query(session: _Session, *, is_sealed: bool) -> sa.Select[Any]:
    """Build a query for the push target and the session; it finds no row if the link exists.

    The query locks the session's row, if any, and keeps a KMS key from being disabled. It finds no
    row in accounts whose bytes are counted or limited.
    """
    holding = (HOLDING_SEALED if is_sealed else HOLDING_PLAIN).where(
        _l.object_id.is_(None), IS_FREE
    )
    if session is _Session.UNWRITTEN:
        return holding.where(IS_UNWRITTEN)
    if session is _Session.ROW:
        locked = sa.select(uploads.c.id).where(*FENCED).with_for_update().cte("locked")
        return holding.join(locked, sa.literal_column("true"))
    return holding


def _ended_session(session: _Session, kept: sa.CTE) -> sa.Select[Any]:
    """Build a query that deletes the session's row, if an object was `kept`, and returns its id."""
    if session is _Session.UNWRITTEN:
        return sa.select(value("upload_id", uploads.c.id)).select_from(kept)
    is_kept = sa.exists(sa.select(kept.c.id))
    gone = uploads.delete().where(*FENCED, is_kept).returning(uploads.c.id).cte("gone")
    return sa.select(gone.c.id)


_ADD: Final = {
    (session, is_sealed): _statement(session, is_sealed=is_sealed)
    for session in _Session
    for is_sealed in (False, True)
}


def add_new_blob(
    tx: Connection,
    target: PushTarget,
    made: NewObject,
    body: bytes,
    wrap: UploadWrap | None,
    ending: SessionEnd | None,
    now: int,
) -> bool:
    """Insert all rows of a new inline blob in a cached target, and end an upload session.

    Return False, and change nothing, if the blob is not new, or the target or session has changed.
    `wrap` is the data key wrapped under the target's KMS key, which must be enabled. Call this only
    as the first statement of a change, and only if `tx.joins_changes`. After True, the change must
    run no other statement.
    """
    parameters = _target_parameters(target) | made._asdict() | {"body": body, "now": now}
    if wrap is not None:
        parameters["wrapped_data_key"] = wrap.wrapped_data_key
    session = _Session.NONE
    if ending is not None and ending.lease is None:
        session = _Session.UNWRITTEN
        parameters["upload_id"] = ending.upload_id
    elif ending is not None and ending.lease is not None:
        session = _Session.ROW
        parameters |= ending.lease._asdict()
    return tx.execute(_ADD[session, wrap is not None], **parameters) == 1
