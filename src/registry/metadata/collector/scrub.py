"""Queries of the scrub: objects of a repository, manifest bodies, and the oldest verification.

The index ``ix_blob_objects_verified_at`` lists undamaged objects, sorted by the last verification
(0: never, or unknown). So no other record of a scrub's progress is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, case, select, tuple_

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given
from cloudcore.db.statement import paged
from cloudcore.identity.tables import accounts
from cloudcore.objects.stored_rows import ObjectRow
from registry.metadata.blobs.damage import image_text, tags_of
from registry.metadata.blobs.objects import BLOB_ROWS, HAS_BYTES
from registry.metadata.tables import (
    blob_objects,
    manifest_bodies,
    manifests,
    repositories,
    repository_blobs,
)

_o, _l, _b, _m, _r = (
    blob_objects.c,
    repository_blobs.c,
    manifest_bodies.c,
    manifests.c,
    repositories.c,
)


class AccountManifest(NamedTuple):
    """A manifest's body, which all repositories of an account share."""

    account_id: str
    digest: str
    body: bytes


class ManifestUse(NamedTuple):
    """An image that uses a given manifest body."""

    handle: str
    repository: str
    digest: str
    tags: Sequence[str]
    """The image's tags and the tags of indexes that list the image; the first five, sorted."""

    def __str__(self) -> str:
        """Return the image's name, as in pull commands, and its tags."""
        return image_text(self.handle, self.repository, self.digest, self.tags)


_OF_REPOSITORY: Final = paged(
    BLOB_ROWS.rows.join(repository_blobs, _l.object_id == _o.id)
    .where(
        _o.verified_at < bindparam("verified_before"),
        given(_l.repository_id),
        _l.digest > bindparam("after"),
    )
    .order_by(_l.digest)
)
_OLDEST: Final = paged(
    select(case((_o.verified_at == ZERO, _o.created_at), else_=_o.verified_at))
    .where(_o.damage.is_(None), HAS_BYTES, _o.verified_at >= ZERO)
    .order_by(_o.verified_at, _o.id)
)
_BODIES: Final = paged(
    select(_b.account_id, _b.digest, _b.body)
    .where(
        tuple_(_b.account_id, _b.digest)
        > tuple_(bindparam("after_account"), bindparam("after_digest"))
    )
    .order_by(_b.account_id, _b.digest)
)
_BODIES_OF_REPOSITORY: Final = paged(
    select(_b.account_id, _b.digest, _b.body)
    .select_from(manifests)
    .join(manifest_bodies, (_b.account_id == _m.account_id) & (_b.digest == _m.digest))
    .where(given(_m.repository_id), _m.digest > bindparam("after_digest"))
    .order_by(_m.digest)
)
_IMAGES: Final = paged(
    select(accounts.c.handle, _r.name, _m.id)
    .select_from(manifests)
    .join(repositories, _r.id == _m.repository_id)
    .join(accounts, accounts.c.id == _r.account_id)
    .where(given(_m.account_id, _m.digest), _r.deleted_at.is_(None))
)


def objects_of_repository(
    tx: Connection, repository_id: str, verified_before: int, after: str, limit: int
) -> list[ObjectRow]:
    """Return up to `limit` objects of a repository last verified before `verified_before`.

    The objects are sorted by digest, beginning after the digest `after`.
    """
    return find_all(
        tx,
        ObjectRow,
        _OF_REPOSITORY,
        repository_id=repository_id,
        verified_before=verified_before,
        after=after,
        limit=limit,
    )


def oldest_verified_at(tx: Connection) -> int | None:
    """Return the oldest time at which an undamaged object was last verified; None without objects.

    An object that was never verified counts as verified when it was stored.
    """
    rows = tx.rows(_OLDEST, limit=1)
    return int(rows[0][0]) if rows else None


def stored_manifests(tx: Connection, after: tuple[str, str], limit: int) -> list[AccountManifest]:
    """Return up to `limit` manifest bodies, also of deleted images, after (account id, digest).

    The bodies are sorted by account id and digest.
    """
    return find_all(
        tx, AccountManifest, _BODIES, after_account=after[0], after_digest=after[1], limit=limit
    )


def manifests_of_repository(
    tx: Connection, repository_id: str, after: str, limit: int
) -> list[AccountManifest]:
    """Return up to `limit` manifest bodies of a repository after a digest, sorted by digest."""
    return find_all(
        tx,
        AccountManifest,
        _BODIES_OF_REPOSITORY,
        repository_id=repository_id,
        after_digest=after,
        limit=limit,
    )


def images_with(tx: Connection, account_id: str, digest: str, limit: int) -> list[ManifestUse]:
    """Return up to `limit` images with this manifest, in live repositories of an account."""
    rows = tx.rows(_IMAGES, account_id=account_id, digest=digest, limit=limit)
    tags = tags_of(tx, [row[2] for row in rows])
    return sorted(ManifestUse(row[0], row[1], digest, tags[row[2]]) for row in rows)
