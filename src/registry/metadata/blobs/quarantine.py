"""The quarantine: stored bytes that no object uses any more, with their wraps."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Insert, select

from cloudcore.db.rows import value
from registry.metadata.control_tables import (
    OF_THE_BYTES,
    quarantined_object_keys,
    quarantined_objects,
)
from registry.metadata.tables import blob_object_keys, blob_objects

_objects, _wraps = blob_objects.c, blob_object_keys.c
_quarantined = quarantined_objects.c

QUARANTINED_ID: Final[ColumnElement[str]] = value("quarantined_id", _quarantined.id)
NOW: Final[ColumnElement[int]] = value("now", _quarantined.swept_at)


def quarantine_bytes(
    quarantined_id: ColumnElement[str],
    swept_at: ColumnElement[int],
    *where: Any,  # noqa: ANN401
) -> Insert:
    """Build the statement that inserts the bytes of some objects into the quarantine's table.

    `quarantined_id` is the id of the row in quarantine; `where` selects the objects.
    """
    columns = (_objects[name] for name in OF_THE_BYTES)
    return quarantined_objects.insert().from_select(
        ["id", "swept_at", *OF_THE_BYTES], select(quarantined_id, swept_at, *columns).where(*where)
    )


def quarantine_wraps(quarantined_id: ColumnElement[str], *where: Any) -> Insert:  # noqa: ANN401
    """Build the statement that inserts the unerased wraps of some objects into the quarantine."""
    return quarantined_object_keys.insert().from_select(
        ["quarantined_id", "kms_key_id", "account_id", "wrapped_data_key"],
        select(quarantined_id, _wraps.kms_key_id, _wraps.account_id, _wraps.wrapped_data_key).where(
            *where, _wraps.wrapped_data_key.is_not(None)
        ),
    )
