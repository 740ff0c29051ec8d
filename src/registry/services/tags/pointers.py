"""Tags: pointed, removed, listed; the rules of immutability and preconditions live here alone.

Every way to move a tag (PUT by tag, several tags at once, the control plane, a cache refresh)
goes through `point_tag`, inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import PreconditionFailed
from cloudcore.iam.patterns import Patterns
from registry.errors import (
    ManifestUnknown,
    TagDeleteForbidden,
    TagImmutable,
)
from registry.metadata.images import manifests
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.repositories import live as repositories
from registry.metadata.repositories.live import Counts, Repository
from registry.metadata.tags import pointers as tags
from registry.metadata.tags.deleted import add_deleted_tags, remove_deleted_tag
from registry.metadata.tags.history import add_tag_event
from registry.metadata.tags.pointers import Tag
from registry.oci.reference import Name
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import TAG_DELETED, TAG_MOVED, RegistryEvent, descriptions, publish
from registry.services.images.deletion import restorable_until
from registry.services.repositories.names import NamePage, find_repository, lock, name_unknown


class Precondition(NamedTuple):
    """What must hold for a tag before it moves (RFC 9110 §13): ``If-Match``, ``If-None-Match``."""

    match: frozenset[str] | None = None
    """Digests of which the tag must have one; ``*`` stands for any."""
    none_match: frozenset[str] | None = None
    """Digests of which the tag must have none; ``*``: the tag must not exist."""

    def holds(self, digests: frozenset[str]) -> bool:
        """Say whether a tag that points to content of these names (none: no tag) may move."""
        if (
            self.match is not None
            and not digests & self.match
            and not (digests and "*" in self.match)
        ):
            return False
        return self.none_match is None or not (
            digests & self.none_match or (digests and "*" in self.none_match)
        )


def is_immutable(repository: Repository, tag: str) -> bool:
    """Say whether a tag of this repository, once set, may not move (rule 2)."""
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
    act: Change,
) -> RegistryEvent | None:
    """Point a tag to a manifest of the repository, whose lock the caller holds.

    Returns what to publish; None when the tag points there already.

    Raises:
        TagImmutable: it points elsewhere already and may not move.
        PreconditionFailed: what the client said must hold does not.

    """
    current = tags.find_tag(tx, repository.id, tag)
    _require(precondition, tag, current)
    if current is not None and current.manifest_id == manifest.id:
        if current.pushed_digest != pushed_digest:
            tags.put_tag(tx, repository.id, tag, manifest.id, pushed_digest, act.now)
        return None
    if current is not None and is_immutable(repository, tag):
        raise TagImmutable(
            f"The image tag '{tag}' already exists in the '{repository.name}' repository and "
            "cannot be overwritten because the repository is immutable.",
            tag=tag,
        )
    action = "created" if current is None else "moved"
    return _point(tx, repository, tag, current, manifest, pushed_digest, action, act)


def _require(precondition: Precondition | None, tag: str, current: Tag | None) -> None:
    digests = frozenset({current.digest, current.pushed_digest} if current else ())
    if precondition is not None and not precondition.holds(digests):
        raise PreconditionFailed(
            f"the tag {tag} is not what the request expects (entity tags are digests in quotes)",
            tag=tag,
        )


def restore_tag(
    tx: Connection,
    repository: Repository,
    tag: str,
    manifest: ManifestRow,
    pushed_digest: str,
    act: Change,
) -> RegistryEvent | None:
    """Point a deleted tag to a manifest again; None when there is a tag of this name by now."""
    if tags.find_tag(tx, repository.id, tag) is not None:
        return None
    return _point(tx, repository, tag, None, manifest, pushed_digest, "restored", act)


def _point(
    tx: Connection,
    repository: Repository,
    tag: str,
    current: Tag | None,
    manifest: ManifestRow,
    pushed_digest: str,
    action: str,
    act: Change,
) -> RegistryEvent:
    tagged = 0
    if current is not None and manifests.add_to_tag_count(tx, current.manifest_id, -1) == 0:
        tagged -= 1
    uncounted = 0
    if tags.put_tag(tx, repository.id, tag, manifest.id, pushed_digest, act.now):
        uncounted = remove_deleted_tag(tx, repository.id, tag)
    if manifests.add_to_tag_count(tx, manifest.id, 1) == 1:
        tagged += 1
    counts = Counts(tags=0 if current else 1, tagged_images=tagged, deleted_tags=-uncounted)
    repositories.add_to_counters(tx, repository.id, act.now, counts)
    add_tag_event(
        tx,
        repository.id,
        tag,
        action=action,
        digest=manifest.digest,
        previous_digest=None if current is None else current.digest,
        manifest_id=manifest.id,
        previous_manifest_id=None if current is None else current.manifest_id,
        principal=act.principal,
        now=act.now,
    )
    described = descriptions(tx, repository, [manifest.id])
    return RegistryEvent(TAG_MOVED, manifest.digest, tag, *described[manifest.id])


async def list_tags(ctx: ServiceContext, name: Name, after: str, limit: int) -> NamePage:
    """Return a page of tags in byte order after `after`, which need not exist (end-8).

    Raises:
        NameUnknown: there is no such repository.

    """
    names = await ctx.database.read(tags.list_tags, name.handle, name.repository, after, limit + 1)
    if names is None:
        raise name_unknown(name)
    return NamePage(names[:limit], has_more=len(names) > limit)


async def delete_tag(
    ctx: ServiceContext, name: Name, tag: str, precondition: Precondition | None, principal: str
) -> None:
    """Remove a tag; its manifest stays, untagged (rule 4, end-9).

    Raises:
        ManifestUnknown: there is no such tag.
        PreconditionFailed: what the client said must hold does not.
        TagDeleteForbidden: the tag is immutable.
        NameUnknown: there is no such repository.

    """
    repository = await find_repository(ctx, name)
    act = ctx.act(principal)
    await ctx.database.write(_delete, name, repository.id, tag, precondition, act)


def _delete(
    tx: Connection,
    name: Name,
    repository_id: str,
    tag: str,
    precondition: Precondition | None,
    act: Change,
) -> None:
    repository = lock(tx, name, repository_id)
    publish(tx, act, repository, [drop_tag(tx, repository, tag, precondition, act)])


def drop_tag(
    tx: Connection, repository: Repository, tag: str, precondition: Precondition | None, act: Change
) -> RegistryEvent:
    """Remove a tag of the repository, whose lock the caller holds, and return what to publish.

    Raises:
        ManifestUnknown: there is no such tag.
        PreconditionFailed: what the client said must hold does not.
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
    add_tag_event(
        tx,
        repository.id,
        tag,
        action="deleted",
        digest=None,
        previous_digest=current.digest,
        manifest_id=None,
        previous_manifest_id=current.manifest_id,
        principal=act.principal,
        now=act.now,
    )
    until = restorable_until(tx, repository.account_id, act.now)
    if until > act.now:
        add_deleted_tags(
            tx,
            repository.id,
            [tag],
            has_image=True,
            principal=act.principal,
            now=act.now,
            restorable_until=until,
        )
    tags.remove_tag(tx, repository.id, tag)
    untagged = manifests.add_to_tag_count(tx, current.manifest_id, -1) == 0
    counts = Counts(tags=-1, tagged_images=-untagged, deleted_tags=int(until > act.now))
    repositories.add_to_counters(tx, repository.id, act.now, counts)
    described = descriptions(tx, repository, [current.manifest_id])
    return RegistryEvent(TAG_DELETED, current.digest, tag, *described[current.manifest_id])
