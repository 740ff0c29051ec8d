"""Tags: pointed, removed, listed; the rules of immutability and preconditions live here alone.

Every way to move a tag (PUT by tag, several tags at once, the control plane, a cache refresh)
goes through `point_tag`, inside the transaction that holds the repository's lock.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.errors import (
    ManifestUnknown,
    PreconditionFailed,
    TagDeleteForbidden,
    TagImmutable,
)
from registry.metadata import manifests, repositories, tags
from registry.metadata.manifests import ManifestRow
from registry.metadata.repositories import Repository
from registry.oci.reference import Name
from registry.services.context import Context
from registry.services.repositories import Page, find_repository, lock, name_unknown


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
    return repository.is_immutable and not any(
        fnmatchcase(tag, pattern) for pattern in repository.immutable_tag_exclusions
    )


def point_tag(
    tx: Connection,
    repository: Repository,
    tag: str,
    manifest: ManifestRow,
    pushed_digest: str,
    precondition: Precondition | None,
    now: int,
) -> None:
    """Point a tag to a manifest of the repository, whose lock the caller holds.

    Raises:
        TagImmutable: it points elsewhere already and may not move.
        PreconditionFailed: what the client said must hold does not.

    """
    current = tags.find_tag(tx, repository.id, tag)
    digests = frozenset({current.digest, current.pushed_digest} if current else ())
    if precondition is not None and not precondition.holds(digests):
        raise PreconditionFailed(f"the tag {tag} is not what the request expects", tag=tag)
    if current is not None and current.manifest_id == manifest.id:
        if current.pushed_digest != pushed_digest:
            tags.put_tag(tx, repository.id, tag, manifest.id, pushed_digest, now)
        return
    if current is not None:
        if is_immutable(repository, tag):
            raise TagImmutable(
                f"The image tag '{tag}' already exists in the '{repository.name}' repository and "
                "cannot be overwritten because the repository is immutable.",
                tag=tag,
            )
        manifests.add_to_tag_count(tx, current.manifest_id, -1)
    tags.put_tag(tx, repository.id, tag, manifest.id, pushed_digest, now)
    manifests.add_to_tag_count(tx, manifest.id, 1)
    repositories.add_to_counters(tx, repository.id, now, tags=0 if current else 1)


async def list_tags(ctx: Context, name: Name, after: str, limit: int) -> Page:
    """Return a page of tags in byte order after `after`, which need not exist (end-8).

    Raises:
        NameUnknown: there is no such repository.

    """
    names = await ctx.database.read(tags.list_tags, name.handle, name.repository, after, limit + 1)
    if names is None:
        raise name_unknown(name)
    return Page(names[:limit], has_more=len(names) > limit)


async def delete_tag(ctx: Context, name: Name, tag: str) -> None:
    """Remove a tag; its manifest stays, untagged (rule 4, end-9).

    Raises:
        ManifestUnknown: there is no such tag.
        TagDeleteForbidden: the tag is immutable.
        NameUnknown: there is no such repository.

    """
    repository = await find_repository(ctx, name)
    await ctx.database.write(_delete, name, repository.id, tag, ctx.clock())


def _delete(tx: Connection, name: Name, repository_id: str, tag: str, now: int) -> None:
    repository = lock(tx, name, repository_id)
    current = tags.find_tag(tx, repository.id, tag)
    if current is None:
        raise ManifestUnknown(f"{name} has no tag {tag}", reference=tag)
    if is_immutable(repository, tag):
        raise TagDeleteForbidden(
            f"the tag {tag} is immutable; delete its manifest by digest, or exclude the tag",
            tag=tag,
        )
    tags.remove_tag(tx, repository.id, tag)
    manifests.add_to_tag_count(tx, current.manifest_id, -1)
    repositories.add_to_counters(tx, repository.id, now, tags=-1)
