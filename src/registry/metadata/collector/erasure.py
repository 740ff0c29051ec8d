"""Erase the wraps under deleted KMS keys, of objects and of bytes in quarantine.

The material of a KMS key is erased when it is deleted, so nothing can open these wraps any more.
Erasing them as well shreds objects without another wrap, which frees their bytes.

Two indexes list the remaining work: deleted keys, and unerased wraps. So no other record of
progress is needed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.wraps import drop_unused_wraps, shred_unreadable
from registry.metadata.collector.collection import forget_shredded, lock_objects
from registry.metadata.control_tables import quarantined_object_keys, quarantined_objects
from registry.metadata.tables import blob_object_keys

_m = kms_keys.c
_k = blob_object_keys.c
_q = quarantined_objects.c
_qk = quarantined_object_keys.c


class DeletedKey(NamedTuple):
    """A deleted KMS key that still has unerased wraps."""

    account_id: str
    id: str


class Erased(NamedTuple):
    """The number of objects that lost a wrap under a key, and how many were thereby shredded.

    `shredded_bytes` is the size of the shredded objects' stored bytes.
    """

    objects: int = 0
    shredded: int = 0
    shredded_bytes: int = 0


_OF_KEY: Final = (given(_k.kms_key_id), _k.wrapped_data_key.is_not(None))
_FIND_KEYS: Final = paged(
    select(_m.account_id, _m.id)
    .where(
        text("kms_keys.state = 'deleted'"),
        _m.id > bindparam("after"),
        or_(
            exists().where(_k.kms_key_id == _m.id, _k.wrapped_data_key.is_not(None)),
            exists().where(_qk.kms_key_id == _m.id),
        ),
    )
    .order_by(_m.id)
)
_LIST: Final = paged(select(_k.object_id).where(*_OF_KEY).order_by(_k.object_id))
_ERASE: Final = Statement(
    blob_object_keys.update()
    .where(_k.object_id.in_(listed("ids")), *_OF_KEY)
    .values(wrapped_data_key=text("NULL"))
)
_LIST_QUARANTINED: Final = paged(
    select(_qk.quarantined_id).where(given(_qk.kms_key_id)).order_by(_qk.quarantined_id)
)
_LOCK_QUARANTINED: Final = Statement(
    select(_q.id).where(_q.id.in_(listed("ids"))).order_by(_q.id).with_for_update()
)
_ERASE_QUARANTINED: Final = Statement(
    quarantined_object_keys.delete().where(
        _qk.quarantined_id.in_(listed("ids")), given(_qk.kms_key_id)
    )
)
_END_QUARANTINE: Final = Statement(
    quarantined_objects.update()
    .where(
        _q.id.in_(listed("ids")),
        _q.encoding == text("'sealed'"),
        ~exists().where(_qk.quarantined_id == _q.id),
    )
    .values(swept_at=ZERO)
)


def keys_to_erase(tx: Connection, after: str, limit: int) -> list[DeletedKey]:
    """Return up to `limit` deleted keys with wraps to erase, sorted by id, after the id `after`."""
    return find_all(tx, DeletedKey, _FIND_KEYS, after=after, limit=limit)


def erase_wraps(tx: Connection, key: DeletedKey, limit: int) -> Erased:
    """Erase up to `limit` wraps under a deleted key; shred the objects that no other key opens.

    A row that a link or tombstone needs is kept, without its wrapped key. Return zeros if no wrap
    is left.
    """
    ids = [row[0] for row in tx.rows(_LIST, kms_key_id=key.id, limit=limit)]
    if not ids:
        return Erased()
    lock_objects(tx, key.account_id, ids)
    tx.execute(_ERASE, kms_key_id=key.id, ids=text_list(ids))
    shredded = shred_unreadable(tx, key.account_id, ids)
    drop_unused_wraps(tx, key.account_id, ids)
    forget_shredded(tx, key.account_id, ids)
    return Erased(len(ids), *shredded)


def erase_quarantined_wraps(tx: Connection, key: DeletedKey, limit: int) -> int:
    """Delete up to `limit` wraps in quarantine under a deleted key; return how many.

    Objects in quarantine that no other key opens become due for removal, since nobody can recover
    them.
    """
    ids = [row[0] for row in tx.rows(_LIST_QUARANTINED, kms_key_id=key.id, limit=limit)]
    if ids:
        listed_ids = text_list(ids)
        tx.rows(_LOCK_QUARANTINED, ids=listed_ids)
        tx.execute(_ERASE_QUARANTINED, ids=listed_ids, kms_key_id=key.id)
        tx.execute(_END_QUARANTINE, ids=listed_ids)
    return len(ids)
