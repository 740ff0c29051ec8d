"""What a KMS key protects: repositories, blobs and images. Each query reads at most `MOST` rows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, bindparam, case, exists, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, count, find_all, given, total
from cloudcore.db.statement import Statement, paged
from cloudcore.kms.rows import kms_keys
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    encryption_bindings,
    manifest_blobs,
    manifests,
    repositories,
    repository_blobs,
)

MOST: Final = 10_000
"""The maximum number of rows that a query reads; counts that reach it are lower bounds."""

_b = encryption_bindings.c
_w = blob_object_keys.c
_o = blob_objects.c
_l = repository_blobs.c
_e = manifest_blobs.c
_m = manifests.c
_r = repositories.c
_other = blob_object_keys.alias("other")


class WrappedBlobs(NamedTuple):
    """The number of blobs whose data keys a KMS key opens, and of those that only it opens."""

    total: int
    exclusive_count: int
    """The number of blobs that no other key opens, except keys whose deletion is pending."""
    exclusive_bytes: int


class KeyImage(NamedTuple):
    """An image with blobs that are read through a KMS key."""

    repository_id: str
    repository: str
    digest: str


def _within(query: Select[Any]) -> Select[Any]:
    return query.limit(bindparam("most")).offset(ZERO)


_IS_BOUND: Final = and_(given(_b.account_id, _b.kms_key_id), _b.ended_at.is_(None))
_IS_DEFAULT: Final = Statement(select(_b.id).where(_IS_BOUND, _b.repository_id.is_(None)))
_REPOSITORIES: Final = _within(
    select(_r.id, _r.name)
    .join(encryption_bindings, _b.repository_id == _r.id)
    .where(_IS_BOUND, given(_r.account_id), _r.deleted_at.is_(None))
).subquery("bound")
_LIST_REPOSITORIES: Final = paged(
    select(_REPOSITORIES.c.id, _REPOSITORIES.c.name).order_by(_REPOSITORIES.c.name)
)
_COUNT_REPOSITORIES: Final = Statement(select(func.count()).select_from(_REPOSITORIES))
_IS_WRAPPED: Final = and_(given(_w.account_id, _w.kms_key_id), _w.wrapped_data_key.is_not(None))
_WRAPPED: Final = _within(select(_w.object_id).where(_IS_WRAPPED)).subquery("wrapped")
_IS_SHARED: Final = exists(
    select(ONE)
    .select_from(_other)
    .join(kms_keys, kms_keys.c.id == _other.c.kms_key_id)
    .where(
        _other.c.object_id == _o.id,
        given(_other.c.account_id),
        _other.c.kms_key_id != bindparam("kms_key_id"),
        _other.c.wrapped_data_key.is_not(None),
        given(kms_keys.c.account_id),
        kms_keys.c.state.in_((literal_column("'enabled'"), literal_column("'disabled'"))),
    )
    .correlate(blob_objects)
)
_SUM: Final = Statement(
    select(
        func.count(),
        total(case((_IS_SHARED, ZERO), else_=ONE)),
        total(case((_IS_SHARED, ZERO), else_=_o.size)),
    )
    .select_from(_WRAPPED)
    .join(blob_objects, _o.id == _WRAPPED.c.object_id)
    .where(given(_o.account_id))
)
_LINKS: Final = _within(
    select(_l.repository_id, _l.digest)
    .join(_WRAPPED, _l.object_id == _WRAPPED.c.object_id)
    .where(given(_l.kms_key_id))
).subquery("links")
_USES: Final = _within(
    select(_m.id, _m.digest, _r.id.label("repository_id"), _r.name)
    .select_from(_LINKS)
    .join(repositories, _r.id == _LINKS.c.repository_id)
    .join(manifest_blobs, and_(_e.repository_id == _r.id, _e.digest == _LINKS.c.digest))
    .join(manifests, and_(_m.id == _e.manifest_id, _m.repository_id == _r.id))
    .where(given(_r.account_id), _r.deleted_at.is_(None))
).subquery("uses")
_COUNT_IMAGES: Final = Statement(
    select(func.count(), func.count(_USES.c.id.distinct())).select_from(_USES)
)
_LIST_IMAGES: Final = paged(
    select(_USES.c.repository_id, _USES.c.name, _USES.c.digest)
    .distinct()
    .order_by(_USES.c.name, _USES.c.digest)
)


def is_account_default(tx: Connection, account_id: str, kms_key_id: str) -> bool:
    """Return True if the account's active default binding is to this key."""
    return tx.row(_IS_DEFAULT, account_id=account_id, kms_key_id=kms_key_id) is not None


def list_bound_repositories(
    tx: Connection, account_id: str, kms_key_id: str, limit: int
) -> list[tuple[str, str]]:
    """Return (id, name) of up to `limit` live repositories bound to a key, sorted by name."""
    of = {"account_id": account_id, "kms_key_id": kms_key_id}
    return list(tx.rows(_LIST_REPOSITORIES, **of, limit=limit, most=MOST))


def count_bound_repositories(tx: Connection, account_id: str, kms_key_id: str) -> int:
    """Count the live repositories bound to a key, up to `MOST`."""
    return count(tx, _COUNT_REPOSITORIES, account_id=account_id, kms_key_id=kms_key_id, most=MOST)


def count_wrapped_blobs(tx: Connection, account_id: str, kms_key_id: str) -> WrappedBlobs:
    """Count the blobs that a key opens, or opened before its deletion; at most `MOST` are read."""
    row = tx.row(_SUM, account_id=account_id, kms_key_id=kms_key_id, most=MOST)
    assert row is not None
    return WrappedBlobs(*map(int, row))


def count_key_images(tx: Connection, account_id: str, kms_key_id: str) -> tuple[int, bool]:
    """Return the number of images in live repositories with blobs read through a key.

    The second value is True if the query stopped after `MOST` pairs of image and blob: then the
    number is a lower bound.
    """
    row = tx.row(_COUNT_IMAGES, account_id=account_id, kms_key_id=kms_key_id, most=MOST)
    assert row is not None
    return int(row[1]), int(row[0]) >= MOST


def list_key_images(tx: Connection, account_id: str, kms_key_id: str, limit: int) -> list[KeyImage]:
    """Return up to `limit` images of `count_key_images`, sorted by repository name and digest."""
    return find_all(
        tx,
        KeyImage,
        _LIST_IMAGES,
        account_id=account_id,
        kms_key_id=kms_key_id,
        limit=limit,
        most=MOST,
    )
