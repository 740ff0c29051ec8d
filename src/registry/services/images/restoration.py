"""Undo: what was deleted a while ago is had again, as it was, or not at all.

A restored image is the image it was: the same id, the same time of its push, the same tags, but
for those that mean something else by now. An index comes back with those of its children that
were deleted since.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.images.tombstones import (
    Tombstone,
    children_of,
    find_tombstone,
    remove_tombstone,
    undelete,
)
from registry.metadata.repositories import live as repositories
from registry.metadata.repositories.deleted import (
    DeletedRepository,
    find_deleted_repository,
    lock_deleted_repository,
)
from registry.metadata.repositories.deleted import restore_repository as revive
from registry.metadata.repositories.details import find_record
from registry.metadata.repositories.live import Counts, Repository, lock_repository
from registry.metadata.tags.deleted import attach_deleted_tags, find_deleted_tag
from registry.metadata.tags.pointers import find_tag
from registry.services.changes import Change
from registry.services.events import IMAGE_PUSHED, REPOSITORY_CREATED, RegistryEvent, publish
from registry.services.tags.pointers import restore_tag as point_restored


class Restored(NamedTuple):
    """An image that is there again."""

    digest: str
    tags: list[str]
    """Those that point to it again."""


MAX_RESTORED: Final = 200
"""Most images that one transaction restores: an index may have thousands of deleted children, and
each costs the one writer a dozen statements."""


def restore_image(
    tx: Connection, repository: Repository, digest: str, act: Change, most: int = MAX_RESTORED
) -> tuple[list[Restored], list[RegistryEvent]]:
    """Restore the image of this sha256, after the deleted children it needs.

    Return the restored images, children first, and the events to publish. The caller holds the
    repository's lock.

    Raises:
        NotFound: no such image was deleted, or too long ago.
        Conflict: it was pushed again meanwhile, a child it needs cannot be restored, or together
            they are more than `most`.

    """
    if manifests.find_manifest(tx, repository.id, digest):
        raise Conflict(f"the image {digest} is there", digest=digest)
    restored: list[Restored] = []
    events: list[RegistryEvent] = []
    for tombstone, children in _plan(tx, repository, digest, act.now, most):
        tags, told = _raise(tx, repository, tombstone, children, act)
        restored.append(Restored(tombstone.digest, tags))
        events += told
    return restored, events


def _plan(
    tx: Connection, repository: Repository, digest: str, now: int, most: int
) -> list[tuple[Tombstone, list[str]]]:
    """Return what must be put back for an image to be there, each after its children.

    Nothing is written before all of it is known to be possible.
    """
    plan: dict[str, tuple[Tombstone, list[str]]] = {}
    found: dict[str, tuple[Tombstone, list[str]]] = {}
    waiting = [digest]
    while waiting:
        each = waiting[-1]
        if each in plan:
            waiting.pop()
            continue
        if each in found:  # what it needs is in the plan by now
            plan[each] = found[each]
            continue
        found[each] = _with_children(tx, repository, each, digest, now)
        missing = [child for child in found[each][1] if child not in found]
        if missing:
            present = manifests.find_manifests(tx, repository.id, missing)
            waiting += [child for child in missing if child not in present]
        if len(plan.keys() | set(waiting)) > most:
            raise Conflict(
                f"with {digest}, more than {most} images would be restored at once; "
                "restore some of those it lists first",
                digest=digest,
            )
    return list(plan.values())


def _with_children(
    tx: Connection, repository: Repository, digest: str, asked: str, now: int
) -> tuple[Tombstone, list[str]]:
    """Return the tombstone of `asked` or of an image it needs, and the children of that image."""
    tombstone = _restorable(tx, repository, digest, now)
    if tombstone is None and digest == asked:
        raise NotFound(f"no image {digest} can be restored", digest=digest)
    if tombstone is None:
        raise Conflict(f"{asked} lists {digest}, which cannot be restored any more", digest=digest)
    return tombstone, children_of(tx, tombstone.id) if tombstone.is_index else []


def restore_tag(tx: Connection, repository: Repository, tag: str, act: Change) -> RegistryEvent:
    """Point a deleted tag to what it pointed to, and return what to publish.

    Raises:
        NotFound: no such tag was deleted, or too long ago, or with an image that is gone for good.
        Conflict: there is a tag of this name, or its image was deleted too.

    """
    deleted = find_deleted_tag(tx, repository.id, tag, act.now)
    if deleted is None:
        if find_tag(tx, repository.id, tag) is not None:
            raise Conflict(f"the tag {tag} is there", tag=tag)
        raise NotFound(f"no tag {tag} can be restored", tag=tag)
    digest = deleted.digest
    manifest = manifests.find_manifest(tx, repository.id, digest)
    if manifest is None:
        raise Conflict(f"its image was deleted; restore {digest}", digest=digest)
    event = point_restored(tx, repository, tag, manifest, deleted.pushed_digest, act)
    assert event is not None  # what is a tag is not kept as a deleted one
    return event


def name_to_restore(tx: Connection, account_id: str, repository_id: str, now: int) -> str:
    """Return the name of a repository that is to be restored, even if it has been by now.

    Raises:
        NotFound: no such repository was deleted, or too long ago.

    """
    found = find_deleted_repository(tx, account_id, repository_id, now) or find_record(
        tx, account_id, repository_id
    )
    if found is None:
        raise NotFound("no such repository can be restored")
    return found.name


def restore_repository(
    tx: Connection, account_id: str, repository_id: str, act: Change
) -> DeletedRepository:
    """Let a deleted repository live again with all it held.

    Raises:
        NotFound: no such repository was deleted, or too long ago.
        Conflict: it is there, or another has its name by now.

    """
    found = lock_deleted_repository(tx, account_id, repository_id, act.now)
    if found is None:
        name = name_to_restore(tx, account_id, repository_id, act.now)
        raise Conflict("the repository is there", name=name)
    if not revive(tx, found, act.now):
        raise Conflict("there is a repository of this name; delete it first", name=found.name)
    repository = lock_repository(tx, repository_id)
    assert repository is not None
    publish(tx, act, repository, [RegistryEvent(REPOSITORY_CREATED)])
    return found


def _restorable(tx: Connection, repository: Repository, digest: str, now: int) -> Tombstone | None:
    found = find_tombstone(tx, repository.id, digest)
    return found if found and found.restorable_until > now else None


def _raise(
    tx: Connection, repository: Repository, tombstone: Tombstone, children: list[str], act: Change
) -> tuple[list[str], list[RegistryEvent]]:
    """Put an image back whose children are there, and return its tags and what to publish."""
    digests = undelete(tx, tombstone, act.now)
    links = blobs.linked_blobs(tx, repository.id, digests)
    if digests:
        manifests.add_blob_edges(tx, tombstone.id, repository.id, digests)
        blobs.add_references(tx, repository.id, digests)
    if children:
        manifests.add_child_edges(tx, tombstone.id, repository.id, children)
    gained = sum(link.size for link in links.values() if link.manifest_refs == 0)
    regained = attach_deleted_tags(tx, repository.id, tombstone.digest)
    counts = Counts(images=1, size=gained, deleted_images=-1, deleted_tags=regained)
    repositories.add_to_counters(tx, repository.id, act.now, counts)
    manifest = ManifestRow(
        tombstone.id, tombstone.digest, tombstone.size_bytes, 0, tombstone.media_type
    )
    moved = [
        (tag, point_restored(tx, repository, tag, manifest, pushed, act))
        for tag, pushed in tombstone.tags
    ]
    remove_tombstone(tx, tombstone.id)
    tags = [tag for tag, event in moved if event]
    pushed = RegistryEvent(
        IMAGE_PUSHED,
        digest=tombstone.digest,
        tag=tags[0] if tags else None,
        media_type=tombstone.media_type,
        artifact_type=tombstone.artifact_type,
        subject=tombstone.subject_digest,
    )
    return tags, [pushed, *(event for _, event in moved if event)]
