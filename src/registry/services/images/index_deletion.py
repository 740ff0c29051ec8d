"""Delete an index with the manifests under it that nothing else needs.

`divide` is the one rule of which manifests go with an index. What an image's deletion would free
(`services.storage`), the preview and the deletion itself all follow it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from registry.metadata.images import details as images
from registry.metadata.images import manifests
from registry.metadata.images.details import ImageRow
from registry.metadata.images.index_members import TreeMember, members_of, parents_of, referrers_of
from registry.metadata.repositories.visible import ImageRepository
from registry.metadata.storage_usage import sum_blobs_of
from registry.services.changes import Change
from registry.services.images.details import BatchOutcome, delete_batch, find_manifest, lock

MAX_MEMBERS: Final = 100
"""How many manifests, the index among them, one request previews or deletes."""

KeptReason = Literal["tagged", "pinned", "listed", "attached"]
"""Why a manifest is kept: it has a tag, it has a pin, another index that stays lists it, or
something that stays is attached to it (has it as its subject)."""


class TreeNeed(NamedTuple):
    """That one manifest needs another."""

    by: str
    id: str
    """The manifest that is needed."""
    reason: KeptReason


class Division(NamedTuple):
    """The manifests of an index's tree, divided by what becomes of them."""

    deleted: Sequence[TreeMember]
    """The index first, then other indexes, then images; each after all that list it."""
    kept: Sequence[tuple[TreeMember, KeptReason]]


class TreePreview(NamedTuple):
    """What deleting an image with its children would do."""

    deleted: Sequence[ImageRow]
    """The image first, then each child after all that list it."""
    kept: Sequence[tuple[ImageRow, KeptReason]]
    listed_by: Sequence[str]
    """Digests of the indexes here that list the image, at most 20. While there is one, it cannot
    be deleted."""
    freed_bytes: int
    """Freed once nothing of it can be restored."""


class TreeOutcome(NamedTuple):
    """What became of an index and of the children that were asked for."""

    batch: BatchOutcome
    kept: Sequence[tuple[TreeMember, KeptReason]]


def divide(root: str, members: Collection[TreeMember], needs: Iterable[TreeNeed]) -> Division:
    """Decide which of an index's `members` go with the index `root`.

    A member stays while it has a tag or a pin, or while something that stays needs it: a manifest
    outside of the tree, or a member that stays itself. The index always goes.
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
    """Return the manifests that `root` reaches through lists alone, each after all its parents.

    Left out are those that an index outside of the tree lists, with what only they list.
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
    """Return what goes with a manifest, and what under it stays; costs as much as its tree."""
    members = members_of(tx, repository_id, manifest_id, now)
    if len(members) == 1:
        return Division(members, [])
    ids = [each.id for each in members]
    needs = [TreeNeed(by, child, "listed") for by, child in parents_of(tx, repository_id, ids)]
    needs += [TreeNeed(by, about, "attached") for by, about in referrers_of(tx, repository_id, ids)]
    return divide(manifest_id, members, needs)


def preview_deletion(
    tx: Connection, found: ImageRepository, reference: str, now: int
) -> TreePreview:
    """Return what `delete_with_children` would do to an image that is named by digest or id.

    Raises:
        ManifestUnknown: there is no such image.
        Conflict: more than `MAX_MEMBERS` manifests are under it.

    """
    account_id, repository_id = found.repository.account_id, found.repository.id
    manifest = find_manifest(tx, found, reference)
    deleted, kept = _bounded(read_division(tx, repository_id, manifest.id, now))
    ids = [each.id for each in deleted]
    every = [*ids, *(each.id for each, _ in kept)]
    rows = {row.id: row for row in images.find_images(tx, repository_id, every)}
    sums = sum_blobs_of(tx, account_id, repository_id, ids, now)
    return TreePreview(
        [rows[each] for each in ids],
        [(rows[each.id], reason) for each, reason in kept],
        manifests.parents_of(tx, manifest.id),
        sums.exclusive_bytes,
    )


def delete_with_children(
    tx: Connection,
    found: ImageRepository,
    reference: str,
    only: Collection[str] | None,
    act: Change,
    *,
    force: bool,
) -> TreeOutcome:
    """Delete an index and those of its children that nothing else needs.

    With `only`, no child but those of these digests (sha256). What cannot be deleted is told one
    by one, as in a batch: the index is listed or pinned, say; then its children stay with it.

    Raises:
        ManifestUnknown: there is no such image.
        Conflict: it is no index, or more than `MAX_MEMBERS` manifests are under it.

    """
    repository = lock(tx, found)
    manifest = find_manifest(tx, found, reference)
    deleted, kept = _bounded(read_division(tx, repository.id, manifest.id, act.now))
    if not deleted[0].is_index:
        raise Conflict(f"{deleted[0].digest} is no index; delete the image alone")
    wanted = {each.digest for each in deleted if only is None or each.digest in only}
    going = [deleted[0].digest, *(each.digest for each in deleted[1:] if each.digest in wanted)]
    batch = delete_batch(tx, found, going, [], act, force=force)
    return TreeOutcome(batch, [each for each in kept if only is None or each[0].digest in only])


def _bounded(division: Division) -> Division:
    count = len(division.deleted) + len(division.kept)
    if count > MAX_MEMBERS:
        raise Conflict(
            f"{count} images are under this index, more than the {MAX_MEMBERS} that one request"
            " deletes; delete the index alone, then its children in batches"
        )
    return division
