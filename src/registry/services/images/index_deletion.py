"""Delete an index and those manifests under it that nothing else needs.

Only `divide` decides which manifests are deleted with an index. The storage report
(`services.storage_usage`), the preview and the deletion all use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.wire import ResponseBody
from registry.metadata.images import details as images
from registry.metadata.images import manifests
from registry.metadata.images.details import ImageRow
from registry.metadata.images.relations import TreeMember, members_of, parent_edges, referrers_of
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.storage_usage import sum_blobs_of
from registry.services.changes import Change
from registry.services.images.details import BatchDeletion, delete_batch, get_manifest_row
from registry.services.repositories.names import lock_visible_repository

MAX_MEMBERS: Final = 100
"""The maximum number of manifests, including the index, that one request previews or deletes."""

KeptReason = Literal["tagged", "pinned", "listed", "attached"]
"""Why a manifest is kept: it has a tag; it has a pin; a kept index lists it; or it is the subject
of a kept manifest."""


class TreeNeed(NamedTuple):
    """The manifest `by` needs the manifest `id`."""

    by: str
    id: str
    """The manifest that is needed."""
    reason: KeptReason


class Division(NamedTuple):
    """The manifests of an index's tree, divided into those to delete and those to keep."""

    deleted: Sequence[TreeMember]
    """The index first, then other indexes, then images; each after all its parents."""
    kept: Sequence[tuple[TreeMember, KeptReason]]


class TreePreview(NamedTuple):
    """The result that deleting an image with its children would have."""

    deleted: Sequence[ImageRow]
    """The image first, then each child after all its parents."""
    kept: Sequence[tuple[ImageRow, KeptReason]]
    listed_by: Sequence[str]
    """Digests of the indexes in the repository that list the image, at most 20. While one exists,
    the image cannot be deleted."""
    freed_bytes: int
    """Bytes freed on disk once the deleted images can no longer be restored."""


class KeptDigest(ResponseBody):
    """A child that stayed."""

    digest: str
    reason: KeptReason


class IndexDeletion(BatchDeletion):
    """The outcome for the index, and for each child that was to be deleted."""

    kept: list[KeptDigest]
    """Children that stayed because something else needs them."""


def divide(root: str, members: Collection[TreeMember], needs: Iterable[TreeNeed]) -> Division:
    """Decide which `members` of a tree are deleted with its index `root`.

    A member is kept if it has a tag or a pin, or if it is needed by a manifest outside the tree or
    by another kept member. The index itself is always deleted.
    """
    inside = {each.id for each in members}
    needs = [need for need in needs if need.id != root]
    reasons: dict[str, KeptReason] = {
        each.id: "tagged" if each.is_tagged else "pinned"
        for each in members
        if each.id != root and (each.is_tagged or each.is_pinned)
    }
    while found := {
        need.id: need.reason
        for need in needs
        if need.id not in reasons and (need.by not in inside or need.by in reasons)
    }:
        reasons |= found
    going = {each.id: each for each in members if each.id not in reasons}
    deleted = [going[each] for each in _parents_first(root, needs) if each in going]
    return Division(
        sorted(deleted, key=lambda each: not each.is_index),
        [(each, reasons[each.id]) for each in members if each.id in reasons],
    )


def _parents_first(root: str, needs: Iterable[TreeNeed]) -> list[str]:
    """Return the manifests under `root`, each after all its parents.

    Manifests that an index outside the tree lists are left out, and so are those that a left-out
    manifest lists.
    """
    children: defaultdict[str, list[str]] = defaultdict(list)
    waiting: Counter[str] = Counter()
    for need in needs:
        if need.reason == "listed":
            children[need.by].append(need.id)
            waiting[need.id] += 1
    order = [root]
    for parent in order:  # grows while it is read
        for child in children[parent]:
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    return order


def read_division(tx: Connection, repository_id: str, manifest_id: str, now: int) -> Division:
    """Decide which manifests to delete with a manifest, and which to keep.

    The cost is proportional to the size of the manifest's tree.
    """
    members = members_of(tx, repository_id, manifest_id, now)
    if len(members) == 1:
        return Division(members, [])
    ids = [each.id for each in members]
    needs = [TreeNeed(by, child, "listed") for by, child in parent_edges(tx, repository_id, ids)]
    needs += [TreeNeed(by, about, "attached") for by, about in referrers_of(tx, repository_id, ids)]
    return divide(manifest_id, members, needs)


def preview_deletion(
    tx: Connection, found: VisibleRepository, reference: str, now: int
) -> TreePreview:
    """Return what `delete_with_children` would do; `reference` is a digest or an id.

    Raise `ManifestUnknown` if there is no such image, `Conflict` if more than `MAX_MEMBERS`
    manifests are under it.
    """
    account_id, repository_id = found.repository.account_id, found.repository.id
    manifest = get_manifest_row(tx, found, reference)
    deleted, kept = _bounded(read_division(tx, repository_id, manifest.id, now))
    ids = [each.id for each in deleted]
    every = [*ids, *(each.id for each, _ in kept)]
    rows = {row.id: row for row in images.find_images(tx, repository_id, every)}
    sums = sum_blobs_of(tx, account_id, repository_id, ids, now)
    return TreePreview(
        [rows[each] for each in ids],
        [(rows[each.id], reason) for each, reason in kept],
        manifests.list_parent_digests(tx, manifest.id),
        sums.exclusive_bytes,
    )


def delete_with_children(
    tx: Connection,
    found: VisibleRepository,
    reference: str,
    only: Collection[str] | None,
    change: Change,
    *,
    force: bool,
) -> IndexDeletion:
    """Delete an index, and those of its children that nothing else needs.

    With `only`, delete no children except those with these sha256 digests. Manifests that cannot be
    deleted are reported one by one, as in a batch. If the index itself cannot be deleted (it is
    listed or pinned), its children stay too.

    Raise `ManifestUnknown` if there is no such image; `Conflict` if it is not an index, or has more
    than `MAX_MEMBERS` manifests under it.
    """
    repository = lock_visible_repository(tx, found)
    manifest = get_manifest_row(tx, found, reference)
    deleted, kept = _bounded(read_division(tx, repository.id, manifest.id, change.now))
    if not deleted[0].is_index:
        raise Conflict(f"{deleted[0].digest} is no index; delete the image alone")
    wanted = {each.digest for each in deleted if only is None or each.digest in only}
    going = [deleted[0].digest, *(each.digest for each in deleted[1:] if each.digest in wanted)]
    batch = delete_batch(tx, found, going, [], change, force=force)
    return IndexDeletion(
        deleted=batch.deleted,
        failures=batch.failures,
        kept=[
            KeptDigest(digest=each.digest, reason=reason)
            for each, reason in kept
            if only is None or each.digest in only
        ],
    )


def _bounded(division: Division) -> Division:
    count = len(division.deleted) + len(division.kept)
    if count > MAX_MEMBERS:
        raise Conflict(
            f"{count} images are under this index, more than the {MAX_MEMBERS} that one request"
            " deletes; delete the index alone, then its children in batches"
        )
    return division
