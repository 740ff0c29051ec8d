"""Links, and blobs of deleted images, that a run moves to another KMS key of the account.

Both are *uses* of an object. A repository's uses are sorted: first links, by digest, then blobs of
deleted images, by deletion time, image id and digest. Database indexes have the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, count, find_all, given
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.kms.key import KeyState
from cloudcore.kms.rows import kms_keys
from registry.metadata.control_tables import deleted_manifest_blobs, deleted_manifests
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs


class UsePosition(NamedTuple):
    """The sort key of a use among a repository's uses."""

    manifest_id: str
    """The id of the deleted image; empty for a link."""
    digest: str
    deleted_at: int = 0
    """When the image was deleted, in microseconds since the epoch; 0 for a link."""


FIRST: Final = UsePosition("", "")
"""The position before every use."""

_o = blob_objects.c
_l = repository_blobs.c
_d = deleted_manifests.c
_b = deleted_manifest_blobs.c
_k = kms_keys.c
_w = blob_object_keys.c


class BlobUse(NamedTuple):
    """A use (a link, or a deleted image's blob) that is yet to be moved to another KMS key."""

    manifest_id: str
    """The id of the deleted image; empty for a link."""
    digest: str
    object_id: str
    stored_id: str
    kms_key_id: str | None
    """The KMS key through which the use is read now; None if the object is plain."""
    key_state: KeyState | None
    deleted_at: int
    """When the image was deleted; 0 for a link."""

    @property
    def position(self) -> UsePosition:
        """Return the use's sort key."""
        return UsePosition(self.manifest_id, self.digest, self.deleted_at)


class ObjectWrap(NamedTuple):
    """An object's data key, wrapped under a KMS key that is enabled."""

    object_id: str
    kms_key_id: str
    wrapped: bytes


def _is_elsewhere(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.kms_key_id.is_(None), table.c.kms_key_id != sa.bindparam("kms_key_id"))


def _uses(
    table: sa.Table, manifest_id: sa.ColumnElement[Any], deleted_at: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    use = table.c
    of_key = use.kms_key_id, _k.state
    return (
        sa.select(manifest_id, use.digest, use.object_id, _o.stored_id, *of_key, deleted_at)
        .select_from(table)
        .join(blob_objects, _o.id == use.object_id)
        .outerjoin(kms_keys, sa.and_(_k.id == use.kms_key_id, _k.account_id == use.account_id))
        .where(_is_elsewhere(table))
    )


_OF_REPOSITORY: Final = given(_l.repository_id)
_OF_DELETED: Final = given(_d.repository_id)
_LINKS: Final = paged(
    _uses(repository_blobs, sa.literal_column("''"), ZERO)
    .where(_OF_REPOSITORY, _l.digest > sa.bindparam("after"))
    .order_by(_l.digest)
)
_DELETED: Final = paged(
    _uses(deleted_manifest_blobs, _b.manifest_id, _d.deleted_at)
    .join(deleted_manifests, _d.id == _b.manifest_id)
    .where(
        _OF_DELETED,
        sa.tuple_(_d.deleted_at, _d.id)
        >= sa.tuple_(sa.bindparam("after_deletion"), sa.bindparam("after_image")),
        sa.or_(_d.id != sa.bindparam("after_image"), _b.digest > sa.bindparam("after")),
    )
    .order_by(_d.deleted_at, _d.id, _b.digest)
)
_COUNT: Final = Statement(
    sa.select(
        sa.select(sa.func.count())
        .select_from(repository_blobs)
        .where(_OF_REPOSITORY, _is_elsewhere(repository_blobs))
        .scalar_subquery()
        + sa.select(sa.func.count())
        .select_from(deleted_manifest_blobs)
        .join(deleted_manifests, _d.id == _b.manifest_id)
        .where(_OF_DELETED, _is_elsewhere(deleted_manifest_blobs))
        .scalar_subquery()
    )
)
_WRAPS: Final = Statement(
    sa.select(_w.object_id, _w.kms_key_id, _w.wrapped_data_key)
    .join(kms_keys, sa.and_(_k.id == _w.kms_key_id, _k.account_id == _w.account_id))
    .where(
        _w.object_id.in_(listed("ids")),
        given(_w.account_id),
        _w.wrapped_data_key.is_not(None),
        _k.state == sa.literal_column("'enabled'"),
    )
    .order_by(_w.object_id, _w.kms_key_id)
)
_STORED: Final = Statement(
    sa.select(_o.id, _o.stored_id).where(_o.id.in_(listed("ids")), given(_o.account_id))
)
_MOVE_LINK: Final = Statement(
    repository_blobs.update()
    .where(
        _OF_REPOSITORY,
        _l.digest == sa.bindparam("of_digest"),
        _l.object_id == sa.bindparam("of_object"),
        _l.kms_key_id == sa.bindparam("old_key_id"),
    )
    .values(kms_key_id=sa.bindparam("new_key_id"))
)
_MOVE_DELETED: Final = Statement(
    deleted_manifest_blobs.update()
    .where(
        _b.manifest_id == sa.bindparam("of_image"),
        _b.digest == sa.bindparam("of_digest"),
        _b.object_id == sa.bindparam("of_object"),
        _b.kms_key_id == sa.bindparam("old_key_id"),
    )
    .values(kms_key_id=sa.bindparam("new_key_id"))
)


def count_elsewhere(tx: Connection, repository_id: str, kms_key_id: str) -> int:
    """Count a repository's uses that are plain or read through another KMS key than this one."""
    return count(tx, _COUNT, repository_id=repository_id, kms_key_id=kms_key_id)


def uses_elsewhere(
    tx: Connection, repository_id: str, kms_key_id: str, after: UsePosition, limit: int
) -> list[BlobUse]:
    """Return up to `limit` of the uses that `count_elsewhere` counts, after the position `after`.

    If fewer than `limit` are returned, no more follow.
    """
    of = {"repository_id": repository_id, "kms_key_id": kms_key_id}
    image = after.manifest_id
    rows = [] if image else list(tx.rows(_LINKS, **of, after=after.digest, limit=limit))
    if len(rows) < limit:
        behind = after if image else FIRST
        rows += tx.rows(
            _DELETED,
            **of,
            after_deletion=behind.deleted_at,
            after_image=behind.manifest_id,
            after=behind.digest,
            limit=limit - len(rows),
        )
    return [BlobUse(*row) for row in rows]


def usable_wraps(tx: Connection, account_id: str, object_ids: Sequence[str]) -> list[ObjectWrap]:
    """Return the unerased wraps of these objects under enabled KMS keys."""
    return find_all(tx, ObjectWrap, _WRAPS, account_id=account_id, ids=text_list(object_ids))


def stored_ids(tx: Connection, account_id: str, object_ids: Sequence[str]) -> dict[str, str]:
    """Map object ids to the stored ids of their bytes."""
    return dict(tx.rows(_STORED, account_id=account_id, ids=text_list(object_ids)))


def move_use(tx: Connection, repository_id: str, use: BlobUse, kms_key_id: str) -> bool:
    """Change the KMS key through which a use is read.

    The object must be locked and have a wrap under the new key. Return False if the use is gone, or
    has changed since it was read.
    """
    of = {
        "of_digest": use.digest,
        "of_object": use.object_id,
        "old_key_id": use.kms_key_id,
        "new_key_id": kms_key_id,
    }
    if use.manifest_id:
        return tx.execute(_MOVE_DELETED, **of, of_image=use.manifest_id) == 1
    return tx.execute(_MOVE_LINK, **of, repository_id=repository_id) == 1
