"""What goes to the quarantine: stored bytes that no object has any more, and their wraps."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Insert, bindparam, select

from registry.metadata.control_tables import (
    OF_THE_BYTES,
    quarantined_object_keys,
    quarantined_objects,
)
from registry.metadata.tables import blob_object_keys, blob_objects

_o, _k = blob_objects.c, blob_object_keys.c
_q = quarantined_objects.c

NEW_ID: ColumnElement[str] = bindparam("quarantined_id", type_=_q.id.type)
NOW: ColumnElement[int] = bindparam("now", type_=_q.swept_at.type)


def of_bytes(
    quarantined_id: ColumnElement[str],
    swept_at: ColumnElement[int],
    *where: Any,  # noqa: ANN401
) -> Insert:
    """Return the insertion of the bytes of some objects, under these ids."""
    columns = (_o[name] for name in OF_THE_BYTES)
    return quarantined_objects.insert().from_select(
        ["id", "swept_at", *OF_THE_BYTES], select(quarantined_id, swept_at, *columns).where(*where)
    )


def of_wraps(quarantined_id: ColumnElement[str], *where: Any) -> Insert:  # noqa: ANN401
    """Return the insertion of the wraps of some objects, without those that were erased."""
    return quarantined_object_keys.insert().from_select(
        ["quarantined_id", "kms_key_id", "account_id", "wrapped_data_key"],
        select(quarantined_id, _k.kms_key_id, _k.account_id, _k.wrapped_data_key).where(
            *where, _k.wrapped_data_key.is_not(None)
        ),
    )
