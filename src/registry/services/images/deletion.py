"""Delete images: they are hidden from every read at once, and restorable until `restorable_until`.

Every deletion (by a client, the control plane or a lifecycle run) calls `drop_image` or
`drop_unlisted` inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.wire import ResponseBody
from registry.errors import ManifestInvalid, ManifestReferenced
from registry.metadata.blobs import objects as blobs
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.images import manifests, tombstones
from registry.metadata.images.details import find_images
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.images.relations import detach_children, parent_edges
from registry.metadata.pull_through.missing import keep_missing
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.daily_usage import DAY
from registry.metadata.repositories.repository import Counts, Repository
from registry.metadata.settings import find_settings
from registry.metadata.tags.deleted import add_deleted_tags, detach_deleted_tags
from registry.metadata.tags.history import add_deletions
from registry.metadata.tags.pointers import tags_of
from registry.services.changes import Change
from registry.services.events import IMAGE_DELETED, TAG_DELETED, RegistryEvent, descriptions
from registry.services.pull_through import references

_MOST_INDEXES: Final = 20
_MOST_TAGS: Final = 20


def drop_image(
    tx: Connection,
    repository: Repository,
    manifest: ManifestRow,
    change: Change,
    *,
    has_force: bool = False,
) -> list[RegistryEvent]:
    """Delete a manifest and every tag that points to it; return the events to publish.

    The caller holds the repository's lock. With `has_force`, the error mentions `force`, which the
    client can use. Raise `ManifestReferenced` if an index of the repository lists the manifest.
    """
    if manifests.ids_with_parents(tx, [manifest.id]):
        raise referenced(tx, repository, manifest, has_force=has_force)
    return drop_unlisted(tx, repository, [manifest], change)


def referenced(
    tx: Connection, repository: Repository, manifest: ManifestRow, *, has_force: bool
) -> ManifestReferenced:
    """Return the error for deleting a manifest that indexes list, with the indexes' digests."""
    way_out = "delete the index first, or force" if has_force else "delete the index first"
    return ManifestReferenced(
        f"an index in {repository.name} lists {manifest.digest}; {way_out}",
        parents=manifests.list_parent_digests(tx, manifest.id),
    )


class IncompleteIndex(ResponseBody):
    """An index that lists an image which was deleted by force: a pull of its platform fails."""

    digest: str
    tags: Sequence[str]
    """The first 20."""


def detach_listed(
    tx: Connection, repository: Repository, ids: Collection[str]
) -> dict[str, list[IncompleteIndex]]:
    """Mark manifests that are about to be deleted as missing in the indexes that stay.

    Map each manifest's id to the indexes that lack the manifest from then on: the first 20, sorted
    by digest. The caller holds the repository's lock.

    Raise `Conflict` if too many indexes would have to be measured again in one transaction.
    """
    edges = parent_edges(tx, repository.id, list(ids))
    kept = [(parent, child) for parent, child in edges if parent not in ids]
    if not kept:
        return {}
    parents = sorted({parent for parent, _ in kept})
    try:
        references.measure_indexes(tx, parents)  # a restoration will have to measure them too
    except ManifestInvalid:
        raise Conflict(
            "so many indexes list it, directly or through others, that they cannot all lack it; "
            "delete some of them first"
        ) from None
    rows = {row.id: row for row in find_images(tx, repository.id, parents)}
    detach_children(tx, repository.id, sorted({child for _, child in kept}), parents)
    repositories.set_sparse(tx, repository.id)
    references.measure_indexes(tx, parents)
    found: defaultdict[str, list[IncompleteIndex]] = defaultdict(list)
    for parent, child in kept:
        row = rows[parent]
        found[child].append(IncompleteIndex(digest=row.digest, tags=row.tags[:_MOST_TAGS]))
    return {
        child: sorted(indexes, key=lambda each: each.digest)[:_MOST_INDEXES]
        for child, indexes in found.items()
    }


def drop_unlisted(
    tx: Connection,
    repository: Repository,
    images: Sequence[ManifestRow],
    change: Change,
    *,
    is_restorable: bool = True,
) -> list[RegistryEvent]:
    """Delete manifests that no index lists, and their tags; return the events to publish.

    The caller holds the repository's lock. Without `is_restorable`, the images are removed at once,
    regardless of the account's undelete period. Cost: one statement for each image, and a fixed
    number for all of them.
    """
    ids = [each.id for each in images]
    tags, described = tags_of(tx, ids), descriptions(tx, repository, ids)
    if any(tags.values()):
        add_deletions(tx, list(tags), change.principal, change.stored_source, change.now)
    for each in images:
        change.add_detail("deleted", each.digest, [tag for tag, _ in tags[each.id]])
    until = restorable_until(tx, repository.account_id, change.now)
    restorable = (
        _soft_delete(tx, repository, images, tags, until, change)
        if is_restorable and until > change.now
        else None
    )
    remove_unlisted(tx, repository, images, change.now, restorable)
    return [
        event
        for each in images
        for event in (
            RegistryEvent(IMAGE_DELETED, each.digest, None, *described[each.id]),
            *(
                RegistryEvent(TAG_DELETED, each.digest, tag, *described[each.id])
                for tag, _ in tags[each.id]
            ),
        )
    ]


def _soft_delete(
    tx: Connection,
    repository: Repository,
    images: Sequence[ManifestRow],
    tags: Mapping[str, Sequence[tuple[str, str]]],
    until: int,
    change: Change,
) -> Counts:
    """Insert tombstones of images and their deleted tags; return the changes of counters."""
    digests = [each.digest for each in images]
    uncounted = detach_deleted_tags(tx, repository.id, digests, until)
    older = tombstones.find_older(tx, repository.id, digests)
    held = {object_id for each in older for object_id in tombstones.objects_of(tx, each)}
    _lock_objects(tx, repository, list(tags), held)
    if older:
        tombstones.remove_older(tx, repository.id, digests)
    deletion = change.deletion(until)
    tombstones.soft_delete(tx, tags, deletion)
    if repository.is_cached:
        keep_missing(tx, list(tags))
    if held:
        condemn(tx, repository.account_id, held, change.now)  # if only older tombstones held them
    names = [tag for pairs in tags.values() for tag, _ in pairs]
    if names:
        add_deleted_tags(tx, repository.id, names, deletion, has_image=False)
    return Counts(deleted_images=len(images) - len(older), deleted_tags=-uncounted)


def _lock_objects(
    tx: Connection, repository: Repository, manifest_ids: Sequence[str], held: set[str]
) -> None:
    """Lock the objects of these manifests, and the objects `held` by older tombstones.

    While this waits for locks, links may change their object, so the links are read again until
    they match the locked objects.
    """
    locked: set[str] = set()
    wanted = held | tombstones.objects_to_hold(tx, manifest_ids)
    while not wanted <= locked:
        lock_objects(tx, repository.account_id, wanted - locked)
        locked |= wanted
        wanted = tombstones.objects_to_hold(tx, manifest_ids)


def restorable_until(tx: Connection, account_id: str, now: int) -> int:
    """Return until when (microseconds) something deleted at `now` can be restored."""
    return now + find_settings(tx, account_id).undelete_days * DAY


def remove_unlisted(
    tx: Connection,
    repository: Repository,
    images: Sequence[ManifestRow],
    now: int,
    restorable: Counts | None = None,
) -> None:
    """Delete the rows of manifests that no index lists, with their tags, and update all counters.

    `restorable` is the result of `_soft_delete`; None means that the images cannot be restored.
    """
    ids = [each.id for each in images]
    references = Counter(manifests.blobs_of(tx, ids))
    links = blobs.linked_blobs(tx, repository.id, list(references))
    manifests.remove_manifests(tx, ids)
    if restorable is None:
        digests = [each.digest for each in images]
        restorable = Counts(deleted_tags=-detach_deleted_tags(tx, repository.id, digests, None))
        for digest in digests:
            manifests.remove_body(tx, repository.account_id, digest)
    for count in sorted(set(references.values())):
        released = [digest for digest in references if references[digest] == count]
        blobs.release_references(tx, repository.id, released, count, now)
    gone = (link for link in links.values() if link.manifest_refs == references[link.digest])
    counts = restorable._replace(
        images=-len(images),
        tags=-sum(each.tag_count for each in images),
        tagged_images=-sum(each.tag_count > 0 for each in images),
        size=-sum(link.size for link in gone),
    )
    repositories.add_to_counters(tx, repository.id, now, counts)
