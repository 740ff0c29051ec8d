"""Deleting images: gone from every read at once, and for a while to be had again.

Every way to delete an image (a client's, the control plane's, a lifecycle run's) goes through
`delete_image`, inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from registry.errors import ManifestReferenced
from registry.metadata import blobs, manifests, repositories, tombstones
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
    until = restorable_until(tx, repository.account_id, act.now)
    if until > act.now:
        tombstones.remove_older(tx, repository.id, manifest.digest)
        tombstones.bury(
            tx,
            manifest.id,
            tags,
            principal=act.principal,
            now=act.now,
            restorable_until=until,
        )
    if tags:
        add_deletions(tx, manifest.id, act.principal, act.now)
    drop_manifest(tx, repository, manifest, act.now)
    return [
        Event(IMAGE_DELETED, digest=manifest.digest),
        *(Event(TAG_DELETED, digest=manifest.digest, tag=tag) for tag, _ in tags),
    ]


def restorable_until(tx: Connection, account_id: str, now: int) -> int:
    """Return until when what an account deletes now can be restored."""
    return now + find_settings(tx, account_id).undelete_days * _DAY


def restorable_since(tx: Connection, account_id: str, now: int) -> int:
    """Return since when what an account deleted can be restored now."""
    return now - find_settings(tx, account_id).undelete_days * _DAY


def drop_manifest(tx: Connection, repository: Repository, manifest: ManifestRow, now: int) -> None:
    """Remove a manifest no index lists, with its tags, and settle every count."""
    referenced = manifests.blobs_of(tx, manifest.id)
    links = blobs.linked_blobs(tx, repository.id, referenced)
    manifests.remove_manifest(tx, repository.account_id, manifest)
    if referenced:
        blobs.add_references(tx, repository.id, referenced, -1)
    lost = sum(link.size for link in links.values() if link.manifest_refs == 1)
    counts = Counts(
        images=-1,
        tags=-manifest.tag_count,
        tagged_images=-(manifest.tag_count > 0),
        size=-lost,
    )
    repositories.add_to_counters(tx, repository.id, now, counts)
