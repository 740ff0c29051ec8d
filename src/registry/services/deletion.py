"""Deleting images: gone from every read at once, and for a while to be had again.

Every way to delete an image (a client's, the control plane's, a lifecycle run's) goes through
`delete_image`, inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from registry.errors import ManifestReferenced
from registry.metadata import blobs, manifests, repositories, tombstones
from registry.metadata.collection import condemn, lock_objects
from registry.metadata.deleted_tags import add_deleted_tags, lose_image
from registry.metadata.manifests import ManifestRow
from registry.metadata.repositories import Counts, Repository
from registry.metadata.settings import find_settings
from registry.metadata.tag_history import add_deletions
from registry.metadata.tags import tags_of
from registry.services.acts import Act
from registry.services.events import IMAGE_DELETED, TAG_DELETED, Event

_DAY: Final = 24 * 3600 * MICROSECONDS


def delete_image(
    tx: Connection, repository: Repository, manifest: ManifestRow, act: Act
) -> list[Event]:
    """Delete a manifest and every tag that points to it, and return what to publish (rule 3).

    Raises:
        ManifestReferenced: an index here lists it.

    """
    parents = manifests.parents_of(tx, manifest.id)
    if parents:
        raise ManifestReferenced(
            f"an index in {repository.name} lists {manifest.digest}; delete the index first",
            parents=parents,
        )
    tags = tags_of(tx, manifest.id)
    if tags:
        add_deletions(tx, manifest.id, act.principal, act.now)
    buried = _bury(tx, repository, manifest, tags, act)
    drop_manifest(tx, repository, manifest, act.now, buried)
    return [
        Event(IMAGE_DELETED, digest=manifest.digest),
        *(Event(TAG_DELETED, digest=manifest.digest, tag=tag) for tag, _ in tags),
    ]


def _bury(
    tx: Connection,
    repository: Repository,
    manifest: ManifestRow,
    tags: Sequence[tuple[str, str]],
    act: Act,
) -> Counts:
    """Keep what a restoration of an image and its tags needs; return what that counts."""
    until = restorable_until(tx, repository.account_id, act.now)
    if until <= act.now:
        return _forget_tags(tx, repository, manifest)
    uncounted = lose_image(tx, repository.id, manifest.digest, until)
    principal, now = act.principal, act.now
    older = tombstones.find_tombstone(tx, repository.id, manifest.digest)
    held = tombstones.objects_of(tx, older.id) if older else []
    lock_objects(tx, repository.account_id, held)
    if older:
        tombstones.remove_older(tx, repository.id, manifest.digest)
    tombstones.bury(tx, manifest.id, tags, principal=principal, now=now, restorable_until=until)
    condemn(tx, repository.account_id, held, now)  # what only the older one still held
    if tags:
        add_deleted_tags(
            tx,
            repository.id,
            [tag for tag, _ in tags],
            has_image=False,
            principal=principal,
            now=now,
            restorable_until=until,
        )
    return Counts(deleted_images=int(older is None), deleted_tags=-uncounted)


def _forget_tags(tx: Connection, repository: Repository, manifest: ManifestRow) -> Counts:
    """Let deleted tags go with an image that cannot be restored; return what that counts."""
    return Counts(deleted_tags=-lose_image(tx, repository.id, manifest.digest, None))


def restorable_until(tx: Connection, account_id: str, now: int) -> int:
    """Return until when what an account deletes now can be restored."""
    return now + find_settings(tx, account_id).undelete_days * _DAY


def drop_manifest(
    tx: Connection,
    repository: Repository,
    manifest: ManifestRow,
    now: int,
    buried: Counts | None = None,
) -> None:
    """Remove a manifest no index lists, with its tags, and settle every count.

    `buried` is what was kept of it for a restoration; by default nothing is.
    """
    if buried is None:
        buried = _forget_tags(tx, repository, manifest)
    referenced = manifests.blobs_of(tx, manifest.id)
    links = blobs.linked_blobs(tx, repository.id, referenced)
    manifests.remove_manifest(tx, repository.account_id, manifest)
    if referenced:
        blobs.release_references(tx, repository.id, referenced, now)
    lost = sum(link.size for link in links.values() if link.manifest_refs == 1)
    counts = Counts(
        images=-1,
        tags=-manifest.tag_count,
        tagged_images=-(manifest.tag_count > 0),
        size=-lost,
        deleted_images=buried.deleted_images,
        deleted_tags=buried.deleted_tags,
    )
    repositories.add_to_counters(tx, repository.id, now, counts)
