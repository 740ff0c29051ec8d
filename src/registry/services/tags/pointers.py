"""Point, delete and list tags, by the rules of immutability and preconditions.

Everything that moves a tag (a PUT of one or several tags, the control plane, a cache refresh) calls
`point_tag` inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import PreconditionFailed
from cloudcore.iam.patterns import Patterns
from registry.errors import ManifestUnknown, TagDeleteForbidden, TagImmutable
from registry.metadata.images import manifests
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import (
    Counts,
    Repository,
    Revision,
    VisibleRepository,
)
from registry.metadata.tags import pointers as tags
from registry.metadata.tags.deleted import add_deleted_tags, created_at_of, remove_deleted_tag
from registry.metadata.tags.history import NewTagEvent, add_tag_event
from registry.metadata.tags.pointers import Tag
from registry.oci.reference import Name
from registry.services.access.decisions import DELETE
from registry.services.changes import Change, record_change
from registry.services.events import TAG_DELETED, TAG_MOVED, RegistryEvent, descriptions, publish
from registry.services.images.deletion import restorable_until
from registry.services.repositories.names import (
    NamePage,
    lock_named_repository,
    lock_visible_repository,
    name_unknown,
)


class Precondition(NamedTuple):
    """``If-Match`` and ``If-None-Match`` of a request that changes a tag (RFC 9110 §13)."""

    match: frozenset[str] | None = None
    """The tag must have one of these digests; ``*`` stands for any digest."""
    none_match: frozenset[str] | None = None
    """The tag must have none of these digests; ``*``: the tag must not exist."""

    def holds(self, digests: frozenset[str]) -> bool:
        """Return True if a tag with these digests (none: there is no such tag) may change."""
        met = digests | {"*"} if digests else digests
        if self.match is not None and not met & self.match:
            return False
        return self.none_match is None or not met & self.none_match


def is_immutable(repository: Repository, tag: str) -> bool:
    """Return True if this tag, once set, can neither be moved nor be deleted without its image."""
    return repository.is_immutable and not (
        Patterns(repository.immutable_tag_exclusions).match(tag)
    )


def point_tag(
    tx: Connection,
    repository: Repository,
    tag: str,
    manifest: ManifestRow,
    pushed_digest: str,
    precondition: Precondition | None,
    change: Change,
) -> RegistryEvent | None:
    """Point a tag to a manifest of the repository, whose lock the caller holds.

    Return the event to publish, or None if the tag already points to the manifest.

    Raise `TagImmutable` if the tag points to another manifest and may not move,
    `PreconditionFailed` if the tag does not meet `precondition`.
    """
    current = tags.find_tag(tx, repository.id, tag)
    _require(precondition, tag, current)
    if current is not None and current.manifest_id == manifest.id:
        if current.pushed_digest != pushed_digest:
            tags.set_pushed_digest(tx, repository.id, tag, pushed_digest)
            repositories.add_to_counters(tx, repository.id, change.now, Counts())
        return None
    if current is not None and is_immutable(repository, tag):
        raise TagImmutable(
            f"The image tag '{tag}' already exists in the '{repository.name}' repository and "
            "cannot be overwritten because the repository is immutable.",
            tag=tag,
        )
    action = "created" if current is None else "moved"
    return _point(tx, repository, tag, current, manifest, pushed_digest, action, change)


def _require(precondition: Precondition | None, tag: str, current: Tag | None) -> None:
    digests = frozenset({current.digest, current.pushed_digest} if current else ())
    if precondition is not None and not precondition.holds(digests):
        raise PreconditionFailed(
            f"the tag {tag} is not what the request expects (entity tags are digests in quotes)",
            tag=tag,
        )


def point_restored_tag(
    tx: Connection,
    repository: Repository,
    tag: str,
    manifest: ManifestRow,
    pushed_digest: str,
    change: Change,
) -> RegistryEvent | None:
    """Point a deleted tag to its manifest again; its creation time is restored too.

    Return the event to publish, or None if a tag of this name exists.
    """
    if tags.find_tag(tx, repository.id, tag) is not None:
        return None
    created = created_at_of(tx, repository.id, tag, manifest.digest)
    return _point(tx, repository, tag, None, manifest, pushed_digest, "restored", change, created)


def _point(
    tx: Connection,
    repository: Repository,
    tag: str,
    current: Tag | None,
    manifest: ManifestRow,
    pushed_digest: str,
    action: str,
    change: Change,
    created_at: int | None = None,
) -> RegistryEvent:
    tagged = uncounted = 0
    counted = [(manifest.id, 1)]
    if current is not None:
        counted.append((current.manifest_id, -1))
    # Sorted, as batches of pulls are, so that they lock manifests in one order and never deadlock.
    for manifest_id, more in sorted(counted):
        if manifests.add_to_tag_count(tx, manifest_id, more) == max(more, 0):
            tagged += more
    due = 0 if repository.is_cached else None  # the cache sets it once it has asked the upstream
    of = (repository.id, tag, manifest.id, pushed_digest)
    if tags.upsert_tag(tx, *of, change.now, due, created_at):
        uncounted = remove_deleted_tag(tx, repository.id, tag)
    counts = Counts(tags=0 if current else 1, tagged_images=tagged, deleted_tags=-uncounted)
    repositories.add_to_counters(tx, repository.id, change.now, counts)
    _record(tx, repository, tag, action, current, manifest, change)
    described = descriptions(tx, repository, [manifest.id])
    return RegistryEvent(TAG_MOVED, manifest.digest, tag, *described[manifest.id])


def _record(
    tx: Connection,
    repository: Repository,
    tag: str,
    action: str,
    before: Tag | None,
    after: ManifestRow | None,
    change: Change,
) -> None:
    """Record a tag's change in its history, and as a detail for the audit log."""
    old, new = before and before.digest, after and after.digest
    event = NewTagEvent(
        repository.id,
        tag,
        action,
        digest=new,
        previous_digest=old,
        manifest_id=after and after.id,
        previous_manifest_id=before and before.manifest_id,
        principal=change.principal,
        source=change.stored_source,
        occurred_at=change.now,
    )
    add_tag_event(tx, event)
    change.add_detail("tags", tag, {"from": old, "to": new})


def list_tag_names(tx: Connection, name: Name, after: str, limit: int) -> NamePage:
    """Return a page of tag names that sort after `after`, in byte order (end-8).

    The tag `after` need not exist. Raise `NameUnknown` if there is no such repository.
    """
    found = tags.list_tags(tx, name.handle, name.repository, after, limit + 1)
    if found is None:
        raise name_unknown(name)
    names, is_cached = found
    return NamePage(names[:limit], len(names) > limit, is_cached)


def read_revision(tx: Connection, name: Name) -> Revision | None:
    """Return the revision of a repository, or None if there is no such repository.

    Responses about its tags and manifests depend on the revision.
    """
    return repositories.find_revision(tx, name.handle, name.repository)


def delete_tag(
    tx: Connection,
    place: Name | VisibleRepository,
    tag: str,
    precondition: Precondition | None,
    change: Change,
) -> None:
    """Delete a tag; its manifest stays, even if this was its last tag (end-9).

    `place` is the repository's name, or the repository for which the caller was authorized.

    Raises:
        ManifestUnknown: there is no such tag, or the authorized repository was deleted meanwhile.
        PreconditionFailed: the tag does not meet `precondition`.
        TagDeleteForbidden: the tag is immutable.
        NameUnknown: there is no repository of this name.

    """
    change.begin()
    if isinstance(place, Name):
        repository = lock_named_repository(tx, place)
    else:
        repository = lock_visible_repository(tx, place)
    event = drop_tag(tx, repository, tag, precondition, change)
    record_change(tx, change, DELETE, repository)
    publish(tx, change, repository, [event])


def drop_tag(
    tx: Connection,
    repository: Repository,
    tag: str,
    precondition: Precondition | None,
    change: Change,
) -> RegistryEvent:
    """Delete a tag of the repository, whose lock the caller holds; return the event to publish.

    Raises:
        ManifestUnknown: there is no such tag.
        PreconditionFailed: the tag does not meet `precondition`.
        TagDeleteForbidden: the tag is immutable.

    """
    current = tags.find_tag(tx, repository.id, tag)
    if current is None:
        raise ManifestUnknown(f"{repository.name} has no tag {tag}", reference=tag)
    _require(precondition, tag, current)
    if is_immutable(repository, tag):
        raise TagDeleteForbidden(
            f"the tag {tag} is immutable; delete its manifest by digest, or exclude the tag",
            tag=tag,
        )
    _record(tx, repository, tag, "deleted", current, None, change)
    until = restorable_until(tx, repository.account_id, change.now)
    if until > change.now:
        add_deleted_tags(tx, repository.id, [tag], change.deletion(until), has_image=True)
    tags.remove_tag(tx, repository.id, tag)
    untagged = manifests.add_to_tag_count(tx, current.manifest_id, -1) == 0
    counts = Counts(tags=-1, tagged_images=-untagged, deleted_tags=int(until > change.now))
    repositories.add_to_counters(tx, repository.id, change.now, counts)
    described = descriptions(tx, repository, [current.manifest_id])
    return RegistryEvent(TAG_DELETED, current.digest, tag, *described[current.manifest_id])
