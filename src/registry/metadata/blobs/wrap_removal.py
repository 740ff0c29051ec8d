"""Delete wrapped data keys that nothing needs, and shred objects that no key can open any more.

A wrap belongs to a link or a tombstone: it is there so that these can be read through their key.
An object that has neither keeps its wraps, so that a push or a recovery finds it readable; they go
to the quarantine with it.

An object whose last wrap is gone is *shredded*: nobody can ever read its bytes. They go to the
quarantine as bytes without a key, to be removed by the next collection. The row stays as long as
links and tombstones need it, for sizes and manifests. It has the state 'shredded', no bytes (its
`stored_size` is 0, and its `stored_id` names nothing), and a push does not find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, and_, bindparam, exists, literal_column, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.control_tables import (
    OF_THE_BYTES,
    deleted_manifest_blobs,
    quarantined_objects,
)
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs

_o = blob_objects.c
_k = blob_object_keys.c
_l = repository_blobs.c
_b = deleted_manifest_blobs.c
_q = quarantined_objects.c
_OVER: Final[ColumnElement[int]] = literal_column("0")
"""When shredded bytes were swept: so long ago that their quarantine is over."""

_IS_NEEDED: Final = or_(
    exists().where(_l.object_id == _k.object_id, _l.kms_key_id == _k.kms_key_id),
    exists().where(_b.object_id == _k.object_id, _b.kms_key_id == _k.kms_key_id),
)
_IS_REFERRED: Final = or_(
    exists().where(_l.object_id == _k.object_id), exists().where(_b.object_id == _k.object_id)
)
_DROP: Final = Statement(
    blob_object_keys.delete().where(
        _k.object_id.in_(listed("ids")),
        _k.account_id == bindparam("account_id"),
        _IS_REFERRED,
        ~_IS_NEEDED,
    )
)
_IS_UNREADABLE: Final = and_(
    _o.account_id == bindparam("account_id"),
    _o.id.in_(listed("ids")),
    _o.encoding == text("'sealed'"),
    _o.state != text("'shredded'"),
    ~exists().where(_k.object_id == _o.id, _k.wrapped_data_key.is_not(None)),
)
_FIND_UNREADABLE: Final = Statement(select(_o.id, _o.stored_size).where(_IS_UNREADABLE))
_QUARANTINE: Final = Statement(
    quarantined_objects.insert().from_select(
        ["id", "swept_at", *OF_THE_BYTES],
        select(_o.stored_id, _OVER, *(_o[name] for name in OF_THE_BYTES)).where(_IS_UNREADABLE),
    )
)
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
    """Delete the wraps of these objects that no link or tombstone needs; shred what none can open.

    The caller has locked the objects, and has changed their links, tombstones or wraps. An object
    that has neither links nor tombstones keeps its wraps.
    """
    ids = sorted(object_ids)
    if ids and tx.execute(_DROP, account_id=account_id, ids=text_list(ids)):
        shred_unreadable(tx, account_id, ids)


def shred_unreadable(tx: Connection, account_id: str, object_ids: Sequence[str]) -> tuple[int, int]:
    """Shred those of the objects that are sealed and have no wrap that is not erased.

    Return how many, and their stored bytes. The caller has locked the objects.
    """
    of = {"account_id": account_id, "ids": text_list(object_ids)}
    found = tx.rows(_FIND_UNREADABLE, **of)
    if found:
        tx.execute(_QUARANTINE, **of)
        tx.execute(_SHRED, **of)
    return len(found), sum(int(row[1]) for row in found)
