"""Switch an object to bytes that were written anew: after damage, or in another encoding."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.metadata.blobs.objects import NewObject
from registry.metadata.collection_tables import (
    OF_THE_BYTES,
    quarantined_object_keys,
    quarantined_objects,
)
from registry.metadata.tables import blob_object_keys, blob_objects

_o = blob_objects.c
_q = quarantined_objects.c
_k = blob_object_keys.c
_qk = quarantined_object_keys.c
_IS_IT: Final = (
    _o.account_id == bindparam("account_id"),
    _o.id == bindparam("object_id"),
    _o.stored_id == bindparam("old_id"),
)
_LOCK: Final = Statement(select(_o.id).where(*_IS_IT).with_for_update())
_QUARANTINE: Final = Statement(
    quarantined_objects.insert().from_select(
        ["id", "swept_at", *OF_THE_BYTES],
        select(
            bindparam("quarantined_id", type_=_q.id.type),
            bindparam("now", type_=_q.swept_at.type),
            *(_o[name] for name in OF_THE_BYTES),
        ).where(*_IS_IT),
    )
)
_QUARANTINE_KEYS: Final = Statement(
    quarantined_object_keys.insert().from_select(
        ["quarantined_id", "kms_key_id", "account_id", "wrapped_data_key"],
        select(
            bindparam("quarantined_id", type_=_qk.quarantined_id.type),
            *(_k.kms_key_id, _k.account_id, _k.wrapped_data_key),
        ).where(
            _k.account_id == bindparam("account_id"),
            _k.object_id == bindparam("object_id"),
            _k.wrapped_data_key.is_not(None),
        ),
    )
)
_SWITCH: Final = Statement(
    blob_objects.update()
    .where(*_IS_IT)
    .values(
        stored_id=bindparam("new_id"),
        stored_size=bindparam("new_stored_size"),
        encoding=bindparam("new_encoding"),
        is_inline=bindparam("new_is_inline"),
        checksum=bindparam("new_checksum"),
        verified_at=bindparam("now"),
        damage=text("NULL"),
        damaged_at=text("NULL"),
    )
)


def switch_bytes(
    tx: Connection, account_id: str, old_id: str, new: NewObject, quarantined_id: str, now: int
) -> bool:
    """Let the object `new.id` have the bytes `new.stored_id`, verified `now`.

    Quarantine the bytes `old_id`, which it has, under the new id `quarantined_id`, with their
    wrapped data keys. Return False, and change nothing, if the object is gone or has other bytes.
    The new bytes are durable already. This locks the object; lock its links after it.
    """
    of = {"account_id": account_id, "object_id": new.id}
    if tx.row(_LOCK, **of, old_id=old_id) is None:
        return False
    tx.execute(_QUARANTINE, **of, old_id=old_id, quarantined_id=quarantined_id, now=now)
    tx.execute(_QUARANTINE_KEYS, **of, quarantined_id=quarantined_id)
    tx.execute(
        _SWITCH,
        **of,
        old_id=old_id,
        new_id=new.stored_id,
        new_stored_size=new.stored_size,
        new_encoding=new.encoding,
        new_is_inline=new.is_inline,
        new_checksum=new.checksum,
        now=now,
    )
    return True
