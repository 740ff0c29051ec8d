"""Wraps: the data key of an object's stored bytes, encrypted under each KMS key that needs it.

All wraps of an object belong to its current bytes. A transaction that writes or replaces one has
locked the object and holds the KMS key enabled.

A wrap exists for the links and tombstones that read the object through its key. An object without
links and tombstones keeps its wraps, so that a push or a recovery can still read the object; the
wraps move to the quarantine with the object.

An object whose last wrap is gone is *shredded*: nobody can ever read its bytes. The bytes go to the
quarantine without a key, and the next collection removes them. The object's row stays as long as
links and tombstones need it, for sizes and manifests. It has the state 'shredded', no bytes (its
`stored_size` is 0, and its `stored_id` names nothing), and a push does not find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, exists, null, or_, select, text, union

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given, insert_or_change
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.kms.key import KeyState
from cloudcore.kms.rows import kms_keys, lock_key_shared
from registry.metadata.blobs.quarantine import quarantine_bytes
from registry.metadata.control_tables import deleted_manifest_blobs, deleted_manifests
from registry.metadata.quotas import add_bytes
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs

_w = blob_object_keys.c
_k = kms_keys.c
_l = repository_blobs.c
_d = deleted_manifest_blobs.c
_m = deleted_manifests.c
_OF_OBJECT: Final = given(_w.account_id, _w.object_id)


class Wrap(NamedTuple):
    """A wrap of an object's data key."""

    kms_key_id: str
    wrapped_data_key: bytes | None
    """None if the wrap was erased with the KMS key."""
    key_state: KeyState


class ObjectReference(NamedTuple):
    """A repository that uses an object, by a link or a tombstone."""

    repository_id: str
    kms_key_id: str | None
    """The KMS key through which the repository reads the object; None if the object is plain."""


_FIND: Final = Statement(
    select(_w.kms_key_id, _w.wrapped_data_key, _k.state)
    .join(kms_keys, and_(_k.id == _w.kms_key_id, _k.account_id == _w.account_id))
    .where(_OF_OBJECT)
    .order_by(_w.kms_key_id)
)
_PUT: Final = Statement(
    insert_or_change(
        blob_object_keys,
        ("object_id", "kms_key_id", "account_id", "wrapped_data_key"),
        changed=("wrapped_data_key",),
    )
)
_DROP_OTHERS: Final = Statement(
    blob_object_keys.delete().where(_OF_OBJECT, _w.kms_key_id.not_in(listed("kms_key_ids")))
)
_DROP_ALL: Final = Statement(blob_object_keys.delete().where(_OF_OBJECT))
_USES: Final = Statement(
    union(
        select(_l.repository_id, _l.kms_key_id).where(given(_l.account_id, _l.object_id)),
        select(_m.repository_id, _d.kms_key_id)
        .join(deleted_manifests, _m.id == _d.manifest_id)
        .where(given(_d.account_id, _d.object_id)),
    )
)
_USING: Final = (
    (repository_blobs, _l.repository_id.in_(listed("repository_ids"))),
    (
        deleted_manifest_blobs,
        _d.manifest_id.in_(select(_m.id).where(_m.repository_id.in_(listed("repository_ids")))),
    ),
)
"""The tables of links and of tombstones, each with the condition for rows of some repositories."""
_SEAL: Final = tuple(
    Statement(
        table.update()
        .where(given(table.c.account_id, table.c.object_id), is_there, table.c.kms_key_id.is_(None))
        .values(kms_key_id=bindparam("key"))
    )
    for table, is_there in _USING
)
_UNSEAL: Final = tuple(
    Statement(
        table.update()
        .where(given(table.c.account_id, table.c.object_id), table.c.kms_key_id.is_not(None))
        .values(kms_key_id=null())
    )
    for table, _ in _USING
)


def find_wraps(tx: Connection, account_id: str, object_id: str) -> list[Wrap]:
    """Return the wraps of an object, sorted by KMS key, with the keys' states."""
    rows = tx.rows(_FIND, account_id=account_id, object_id=object_id)
    return [Wrap(row[0], None if row[1] is None else bytes(row[1]), row[2]) for row in rows]


def put_wrap(
    tx: Connection, account_id: str, object_id: str, kms_key_id: str, wrapped: bytes
) -> bool:
    """Insert or replace the wrap of an object under a KMS key.

    Return False, and change nothing, if the key is not enabled. An enabled key cannot be disabled
    until `tx` ends. The caller has locked the object.
    """
    if lock_key_shared(tx, account_id, kms_key_id) != "enabled":
        return False
    put_held_wrap(tx, account_id, object_id, kms_key_id, wrapped)
    return True


def put_held_wrap(
    tx: Connection, account_id: str, object_id: str, kms_key_id: str, wrapped: bytes
) -> None:
    """Like `put_wrap`, for a key that `tx` already keeps from being disabled."""
    tx.execute(
        _PUT,
        account_id=account_id,
        object_id=object_id,
        kms_key_id=kms_key_id,
        wrapped_data_key=wrapped,
    )


def hold_enabled(tx: Connection, account_id: str, kms_key_ids: Iterable[str]) -> bool:
    """Prevent KMS keys from being disabled until `tx` ends; return False if one is not enabled."""
    return all(lock_key_shared(tx, account_id, each) == "enabled" for each in sorted(kms_key_ids))


def drop_other_wraps(
    tx: Connection, account_id: str, object_id: str, kms_key_ids: Sequence[str]
) -> None:
    """Delete the wraps of an object except those under these KMS keys.

    Call this after the object got new bytes and wraps under these keys; the other wraps belong to
    the old bytes.
    """
    ids = text_list(kms_key_ids)
    tx.execute(_DROP_OTHERS, account_id=account_id, object_id=object_id, kms_key_ids=ids)


def drop_all_wraps(tx: Connection, account_id: str, object_id: str) -> None:
    """Delete all wraps of an object whose bytes are now plain."""
    tx.execute(_DROP_ALL, account_id=account_id, object_id=object_id)


def find_uses(tx: Connection, account_id: str, object_id: str) -> list[ObjectReference]:
    """Return the repositories that use an object, and the KMS keys they read it through."""
    return find_all(tx, ObjectReference, _USES, account_id=account_id, object_id=object_id)


def seal_uses(
    tx: Connection, account_id: str, object_id: str, repository_ids: Sequence[str], kms_key_id: str
) -> None:
    """Set the KMS key of these repositories' plain links and tombstones of an object.

    The object must have a wrap under the key. Links and tombstones that have a key keep it.
    """
    of = {"account_id": account_id, "object_id": object_id, "key": kms_key_id}
    ids = text_list(sorted(repository_ids))
    for statement in _SEAL:
        tx.execute(statement, **of, repository_ids=ids)


def unseal_uses(tx: Connection, account_id: str, object_id: str) -> None:
    """Set the KMS key of all links and tombstones of an object to null."""
    for statement in _UNSEAL:
        tx.execute(statement, account_id=account_id, object_id=object_id)


_o = blob_objects.c
_OVER: Final[ColumnElement[int]] = ZERO
"""The `swept_at` of shredded bytes: so long ago that their quarantine is over at once."""

_IS_NEEDED: Final = or_(
    exists().where(_l.object_id == _w.object_id, _l.kms_key_id == _w.kms_key_id),
    exists().where(_d.object_id == _w.object_id, _d.kms_key_id == _w.kms_key_id),
)
_IS_REFERRED: Final = or_(
    exists().where(_l.object_id == _w.object_id), exists().where(_d.object_id == _w.object_id)
)
_DROP: Final = Statement(
    blob_object_keys.delete().where(
        _w.object_id.in_(listed("ids")), given(_w.account_id), _IS_REFERRED, ~_IS_NEEDED
    )
)
_IS_UNREADABLE: Final = and_(
    given(_o.account_id),
    _o.id.in_(listed("ids")),
    _o.encoding == text("'sealed'"),
    _o.state != text("'shredded'"),
    ~exists().where(_w.object_id == _o.id, _w.wrapped_data_key.is_not(None)),
)
_FIND_UNREADABLE: Final = Statement(select(_o.id, _o.stored_size, _o.size).where(_IS_UNREADABLE))
_QUARANTINE: Final = Statement(quarantine_bytes(_o.stored_id, _OVER, _IS_UNREADABLE))
_SHRED: Final = Statement(
    blob_objects.update()
    .where(_IS_UNREADABLE)
    .values(
        state=text("'shredded'"),
        is_current=text("false"),
        is_inline=text("false"),
        stored_size=text("0"),
        condemned_at=text("NULL"),
        damage=text("NULL"),
        damaged_at=text("NULL"),
    )
)


def drop_unused_wraps(tx: Connection, account_id: str, object_ids: Iterable[str]) -> None:
    """Delete these objects' wraps that no link or tombstone needs; shred objects without a wrap.

    The caller has locked the objects, and has changed their links, tombstones or wraps. An object
    that has neither links nor tombstones keeps its wraps.
    """
    ids = sorted(object_ids)
    if ids and tx.execute(_DROP, account_id=account_id, ids=text_list(ids)):
        shred_unreadable(tx, account_id, ids)


def shred_unreadable(tx: Connection, account_id: str, object_ids: Sequence[str]) -> tuple[int, int]:
    """Shred those of these objects that are sealed and have no wrap left, or only erased ones.

    Return the number of shredded objects and of their stored bytes. The caller has locked the
    objects.
    """
    of = {"account_id": account_id, "ids": text_list(object_ids)}
    found = tx.rows(_FIND_UNREADABLE, **of)
    if found:
        tx.execute(_QUARANTINE, **of)
        tx.execute(_SHRED, **of)
        add_bytes(tx, account_id, -sum(int(row[2]) for row in found))
    return len(found), sum(int(row[1]) for row in found)
