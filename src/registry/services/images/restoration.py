"""Restore deleted images, tags and repositories, completely or not at all.

A restored image has its former id, push time and tags, except for tags that exist again. An index
is restored with its deleted children.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.error_codes import status_and_code
from cloudcore.errors import Conflict, NotFound
from cloudcore.wire import ResponseBody
from registry.metadata.blobs import objects as blobs
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.images import manifests, tombstones
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.pull_through.rules import has_pushed_tag, hold_account
from registry.metadata.repositories import deleted as rows
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.details import RepositoryDetails, find_repository_details
from registry.metadata.repositories.repository import (
    PULL_THROUGH_CACHE,
    Counts,
    Repository,
    lock_repository,
)
from registry.metadata.tags.deleted import attach_deleted_tags, find_deleted_tag
from registry.metadata.tags.pointers import find_tag
from registry.services.changes import Change
from registry.services.events import IMAGE_PUSHED, REPOSITORY_CREATED, RegistryEvent, publish
from registry.services.pull_through import references
from registry.services.repositories import names
from registry.services.repositories.details import get_repository
from registry.services.tags.pointers import point_restored_tag


class RestoredImage(ResponseBody):
    """An image that was restored."""

    digest: str
    tags: list[str]
    """The tags that were restored with it."""


class NotRestored(ResponseBody):
    """An image that was not restored, and why."""

    digest: str  # as it was given
    code: str
    message: str


class RestoreOutcome(ResponseBody):
    """The outcome for each requested image, and for the children restored with it."""

    restored: list[RestoredImage]
    failures: list[NotRestored]


MAX_RESTORED: Final = 200
"""The maximum number of images that one transaction restores. An index may have thousands of
deleted children, and each takes a dozen statements while other writers wait."""


def restore_images(
    tx: Connection, record: RepositoryDetails, digests: Sequence[str], change: Change
) -> RestoreOutcome:
    """Restore images one by one, each by any digest that its content was verified with.

    An image already restored as the child of an earlier index is skipped. Raise `NotFound` if the
    repository was deleted meanwhile; `ManifestInvalid` like `restore_image`, and then none of the
    images is restored.
    """
    repository = names.lock_existing_repository(tx, record.id)
    batch = RestoreOutcome(restored=[], failures=[])
    events: list[RegistryEvent] = []
    for requested in dict.fromkeys(digests):
        digest = blobs.canonical_digest(tx, record.handle, requested) or requested
        if any(each.digest == digest for each in batch.restored):
            continue
        try:
            most = MAX_RESTORED - len(batch.restored)
            images, image_events = restore_image(tx, repository, digest, change, most)
        except (Conflict, NotFound) as error:  # before anything was written
            code = status_and_code(type(error))[1]
            batch.failures.append(NotRestored(digest=requested, code=code, message=error.message))
            continue
        batch.restored.extend(images)
        events += image_events
    publish(tx, change, repository, events)
    return batch


def restore_image(
    tx: Connection, repository: Repository, digest: str, change: Change, most: int = MAX_RESTORED
) -> tuple[list[RestoredImage], list[RegistryEvent]]:
    """Restore the image with this sha256 digest, and the deleted children that it lists.

    Return the restored images, children first, and the events to publish. The caller holds the
    repository's lock.

    Raises:
        NotFound: the repository has no restorable image with this digest.
        Conflict: the image exists, a child of it cannot be restored, or there are more than `most`
            images to restore.
        ManifestInvalid: an index that lacks this image would exceed its bounds with it. Then roll
            back; the other errors are raised before anything is written.

    """
    if manifests.find_manifest(tx, repository.id, digest):
        raise Conflict(f"the image {digest} is not deleted", digest=digest)
    restored: list[RestoredImage] = []
    events: list[RegistryEvent] = []
    for tombstone, children in _plan(tx, repository, digest, change.now, most):
        tags, image_events = _undelete_image(tx, repository, tombstone, children, change)
        restored.append(RestoredImage(digest=tombstone.digest, tags=tags))
        events += image_events
    return restored, events


def _plan(
    tx: Connection, repository: Repository, digest: str, now: int, most: int
) -> list[tuple[tombstones.Tombstone, list[str]]]:
    """Return the tombstones to restore, children first, each with the digests of its children.

    This only reads, so that nothing is half restored if it raises `Conflict`.
    """
    plan: dict[str, tuple[tombstones.Tombstone, list[str]]] = {}
    found: dict[str, tuple[tombstones.Tombstone, list[str]]] = {}
    waiting = [digest]
    while waiting:
        each = waiting[-1]
        if each in plan:
            waiting.pop()
            continue
        if each in found:  # its children are in the plan now
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
) -> tuple[tombstones.Tombstone, list[str]]:
    """Return the tombstone of `digest`, and the digests of its children; [] unless it is an index.

    `asked` is the image that the client wants to restore. Raise `NotFound` if `asked` is not
    restorable, `Conflict` if another image that it lists is not.
    """
    tombstone = _restorable(tx, repository, digest, now)
    if tombstone is None and digest == asked:
        raise NotFound(f"no image {digest} can be restored", digest=digest)
    if tombstone is None:
        raise Conflict(f"{asked} lists {digest}, which cannot be restored any more", digest=digest)
    return tombstone, tombstones.children_of(tx, tombstone.id) if tombstone.is_index else []


def restore_tag(tx: Connection, record: RepositoryDetails, tag: str, change: Change) -> str:
    """Point a deleted tag to its former image; return the image's digest.

    Raise `NotFound` if the repository has no restorable tag of this name, or was deleted meanwhile;
    `Conflict` if a tag of this name exists, or the image is deleted too.
    """
    repository = names.lock_existing_repository(tx, record.id)
    deleted = find_deleted_tag(tx, repository.id, tag, change.now)
    if deleted is None:
        if find_tag(tx, repository.id, tag) is not None:
            raise Conflict(f"the tag {tag} exists", tag=tag)
        raise NotFound(f"no tag {tag} can be restored", tag=tag)
    digest = deleted.digest
    manifest = manifests.find_manifest(tx, repository.id, digest)
    if manifest is None:
        raise Conflict(f"its image was deleted; restore {digest}", digest=digest)
    asked = names.as_restored_in(tx, repository)
    event = point_restored_tag(tx, asked, tag, manifest, deleted.pushed_digest, change)
    # There is no live tag of the same name: setting one removes the deleted one.
    assert event is not None
    publish(tx, change, repository, [event])
    return digest


def name_to_restore(tx: Connection, account_id: str, repository_id: str, now: int) -> str:
    """Return the name of a repository that is restorable or live; else raise `NotFound`."""
    found = rows.find_deleted_repository(
        tx, account_id, repository_id, now
    ) or find_repository_details(tx, account_id, repository_id)
    if found is None:
        raise NotFound("no such repository can be restored")
    return found.name


def restore_repository(
    tx: Connection, account_id: str, repository_id: str, change: Change
) -> RepositoryDetails:
    """Restore a deleted repository with its content, and return it.

    Raises:
        NotFound: the account has no such repository, live or restorable.
        Conflict: it is not deleted, or another repository has its name.
        RepositoryMirrored: a pull-through cache rule now covers its name, and a client has pushed
            to it.

    """
    found = rows.lock_deleted_repository(tx, account_id, repository_id, change.now)
    if found is None:
        name = name_to_restore(tx, account_id, repository_id, change.now)
        raise Conflict("the repository is not deleted", name=name)
    hold_account(tx, account_id)
    if not rows.undelete_repository(tx, found, change.now):
        raise Conflict("there is a repository of this name; delete it first", name=found.name)
    repository = lock_repository(tx, repository_id)
    assert repository is not None
    publish(tx, change, repository, [RegistryEvent(REPOSITORY_CREATED)])
    restored = get_repository(tx, account_id, repository_id)
    if restored.source != PULL_THROUGH_CACHE or has_pushed_tag(tx, repository_id):
        names.check_unmirrored(tx, account_id, restored.name)
    return restored


def _restorable(
    tx: Connection, repository: Repository, digest: str, now: int
) -> tombstones.Tombstone | None:
    found = tombstones.find_tombstone(tx, repository.id, digest)
    return found if found and found.restorable_until > now else None


def _undelete_image(
    tx: Connection,
    repository: Repository,
    tombstone: tombstones.Tombstone,
    children: list[str],
    change: Change,
) -> tuple[list[str], list[RegistryEvent]]:
    """Restore an image whose children exist; return its tags and the events to publish."""
    asked = names.as_restored_in(tx, repository)
    held = tombstones.objects_of(tx, tombstone.id)
    lock_objects(tx, repository.account_id, held)
    digests = tombstones.undelete(tx, tombstone, change.now)
    links = blobs.linked_blobs(tx, repository.id, digests)
    if digests:
        manifests.add_blob_edges(tx, tombstone.id, repository.id, digests)
        blobs.add_references(tx, repository.id, digests)
    if children:
        manifests.add_child_edges(tx, tombstone.id, repository.id, children)
    gained = sum(link.size for link in links.values() if link.manifest_refs == 0)
    if repository.may_lack_children:
        references.restore_references(tx, repository, tombstone.id, tombstone.digest, change.now)
        if tombstone.is_index:  # what is under it may have changed meanwhile
            references.measure_index(tx, tombstone.id)
    regained = attach_deleted_tags(tx, repository.id, tombstone.digest)
    counts = Counts(images=1, size=gained, deleted_images=-1, deleted_tags=regained)
    repositories.add_to_counters(tx, repository.id, change.now, counts)
    manifest = ManifestRow(
        tombstone.id, tombstone.digest, tombstone.size_bytes, 0, tombstone.media_type
    )
    moved = [
        (tag, point_restored_tag(tx, asked, tag, manifest, pushed, change))
        for tag, pushed in tombstone.tags
    ]
    tombstones.remove_tombstone(tx, tombstone.id)
    condemn(tx, repository.account_id, held, change.now)  # those that no link made meanwhile needs
    tags = [tag for tag, event in moved if event]
    change.add_detail("restored", tombstone.digest, tags)
    pushed = RegistryEvent(
        IMAGE_PUSHED,
        digest=tombstone.digest,
        tag=tags[0] if tags else None,
        media_type=tombstone.media_type,
        artifact_type=tombstone.artifact_type,
        subject=tombstone.subject_digest,
    )
    return tags, [pushed, *(event for _, event in moved if event)]
