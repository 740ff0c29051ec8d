"""Queries of fsck: contradictions between links, wrapped data keys and sealed objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given
from cloudcore.db.statement import Statement, paged
from cloudcore.kms.rows import kms_keys
from registry.metadata.collector.collection import IS_REFERRED
from registry.metadata.control_tables import deleted_manifest_blobs
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs

_o = blob_objects.c
_k = blob_object_keys.c
_l = repository_blobs.c
_b = deleted_manifest_blobs.c
_m = kms_keys.c
_IS_SEALED: Final = _o.encoding == sa.text("'sealed'")
_IS_SHREDDED: Final = _o.state == sa.text("'shredded'")
_HAS_WRAP: Final = sa.exists().where(_k.object_id == _o.id, _k.wrapped_data_key.is_not(None))


class ObjectFault(NamedTuple):
    """An object in a state that should never occur, and the KMS key concerned, if any."""

    object_id: str
    digest: str
    kms_key_id: str | None


class StoredWrap(NamedTuple):
    """A wrapped data key of an object, under a KMS key that is enabled."""

    object_id: str
    kms_key_id: str
    account_id: str
    digest: str
    size: int
    stored_id: str
    is_inline: bool
    wrapped_data_key: bytes
    is_damaged: bool
    """True if the object is marked as damaged."""


def _faulty_uses(uses: sa.Table) -> Statement:
    """Build a query for links or tombstones whose KMS key does not fit their object."""
    u = uses.c
    has_wrap = sa.exists().where(_k.object_id == u.object_id, _k.kms_key_id == u.kms_key_id)
    return paged(
        sa.select(_o.id, _o.digest, u.kms_key_id)
        .select_from(uses)
        .join(blob_objects, _o.id == u.object_id)
        .where(
            sa.or_(
                sa.and_(_IS_SEALED, u.kms_key_id.is_(None)),
                sa.and_(~_IS_SEALED, u.kms_key_id.is_not(None)),
                sa.and_(u.kms_key_id.is_not(None), ~has_wrap),
            )
        )
    )


def _faulty_objects(*where: sa.ColumnElement[bool]) -> Statement:
    none: sa.ColumnElement[Any] = sa.literal_column("NULL")
    return paged(sa.select(_o.id, _o.digest, none).where(*where))


def _faulty_wraps(*where: sa.ColumnElement[bool]) -> Statement:
    wraps = sa.select(_o.id, _o.digest, _k.kms_key_id).select_from(blob_object_keys)
    return paged(wraps.join(blob_objects, _o.id == _k.object_id).where(*where))


_FAULTS: Final[Mapping[str, Statement]] = {
    "a link does not name a key that opens its object, or names one of a plain object": (
        _faulty_uses(repository_blobs)
    ),
    "a deleted image does not name a key that opens its object, or names one of a plain object": (
        _faulty_uses(deleted_manifest_blobs)
    ),
    "it is sealed, and no wrapped data key is left": _faulty_objects(
        _IS_SEALED, ~_IS_SHREDDED, ~_HAS_WRAP
    ),
    "it is plain, and has a wrapped data key": _faulty_wraps(~_IS_SEALED),
    "it has a data key wrapped under a key that nothing reads it through": _faulty_wraps(
        IS_REFERRED,
        ~sa.exists().where(_l.object_id == _o.id, _l.kms_key_id == _k.kms_key_id),
        ~sa.exists().where(_b.object_id == _o.id, _b.kms_key_id == _k.kms_key_id),
    ),
    "it is shredded, and still has bytes, a data key or the place of a whole one": _faulty_objects(
        _IS_SHREDDED, sa.or_(_HAS_WRAP, _o.is_current, _o.is_inline, _o.stored_size > ZERO)
    ),
    "it is shredded, and its row is left though nothing needs it": _faulty_objects(
        _IS_SHREDDED, ~IS_REFERRED
    ),
}
_UNERASED: Final = paged(
    sa.select(_o.id, _o.digest, _k.kms_key_id)
    .select_from(kms_keys)
    .join(blob_object_keys, _k.kms_key_id == _m.id)
    .join(blob_objects, _o.id == _k.object_id)
    .where(sa.text("kms_keys.state = 'deleted'"), _k.wrapped_data_key.is_not(None))
)
_WRAPS: Final = paged(
    sa.select(
        _k.object_id,
        _k.kms_key_id,
        _k.account_id,
        _o.digest,
        _o.size,
        _o.stored_id,
        _o.is_inline,
        _k.wrapped_data_key,
        _o.damage.is_not(None),
    )
    .join(blob_objects, _o.id == _k.object_id)
    .join(kms_keys, _m.id == _k.kms_key_id)
    .where(
        sa.tuple_(_k.object_id, _k.kms_key_id)
        > sa.tuple_(sa.bindparam("after_object"), sa.bindparam("after_key")),
        _k.wrapped_data_key.is_not(None),
        _m.state == sa.text("'enabled'"),
    )
    .order_by(_k.object_id, _k.kms_key_id)
)
_IS_WRAP: Final = Statement(
    sa.select(_k.object_id)
    .join(blob_objects, _o.id == _k.object_id)
    .where(
        given(_k.object_id, _k.kms_key_id),
        _k.wrapped_data_key == sa.bindparam("wrapped"),
        given(_o.stored_id),
    )
)


def key_faults(tx: Connection, limit: int) -> set[tuple[str, ObjectFault]]:
    """Return (problem, object) pairs, up to `limit` for each kind of problem."""
    return {
        (problem, ObjectFault(*row))
        for problem, statement in _FAULTS.items()
        for row in tx.rows(statement, limit=limit)
    }


def unerased_wraps(tx: Connection, limit: int) -> list[ObjectFault]:
    """Return up to `limit` wraps under deleted keys that are still to be erased."""
    return find_all(tx, ObjectFault, _UNERASED, limit=limit)


def stored_wraps(tx: Connection, after: tuple[str, str], limit: int) -> list[StoredWrap]:
    """Return up to `limit` wraps under enabled keys after (object id, key id), in that order."""
    rows = tx.rows(_WRAPS, after_object=after[0], after_key=after[1], limit=limit)
    return [
        StoredWrap(*row)._replace(wrapped_data_key=bytes(row[7]), is_damaged=bool(row[8]))
        for row in rows
    ]


def is_wrap(tx: Connection, wrap: StoredWrap) -> bool:
    """Return True if the wrap exists unchanged, and its object still has the same bytes."""
    found = tx.row(
        _IS_WRAP,
        object_id=wrap.object_id,
        kms_key_id=wrap.kms_key_id,
        wrapped=wrap.wrapped_data_key,
        stored_id=wrap.stored_id,
    )
    return found is not None
