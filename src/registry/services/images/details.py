"""List, read and delete the images of a repository for ``/v1``.

Deletions follow the rules of `services.images.deletion`, as on the data plane. Here a pin prevents
a deletion too; with `force`, neither a pin nor an index that lists the image does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET, UnsetType

from cloudcore.db.base import Connection
from cloudcore.error_codes import status_and_code
from cloudcore.errors import Conflict, InvalidInput, PlatformError
from cloudcore.resource_names import parse_uuid
from cloudcore.wire import ResponseBody
from registry.errors import DigestInvalid, ManifestUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import details as images
from registry.metadata.images import manifests
from registry.metadata.images.details import ImageRow, ManifestDocument, TagStatus
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.repositories.repository import Repository, VisibleRepository
from registry.metadata.tags.pointers import find_tag_details
from registry.oci.digest import Digest
from registry.services.changes import Change
from registry.services.events import RegistryEvent, publish
from registry.services.images.deletion import (
    IncompleteIndex,
    detach_listed,
    drop_image,
    drop_unlisted,
    referenced,
)
from registry.services.repositories.names import lock_visible_repository
from registry.services.tags.pointers import drop_tag
from registry.services.tags.prefix_index import prefix_index_of

_SHORT: Final = re.compile("(?:sha256:)?[0-9a-f]{6,63}")


class DeletedImage(ResponseBody):
    """An image or tag that was deleted."""

    digest: str
    tags: Sequence[str]
    incomplete_indexes: Sequence[IncompleteIndex] | UnsetType = UNSET
    """Indexes that stay and lack the image now, by digest; the first 20. Restoring the image, or
    pushing it again, makes them whole. Absent if there are none."""


class FailedDeletion(ResponseBody):
    """An item of a batch that was not deleted, and why."""

    digest: str | None
    tag: str | None
    code: str
    message: str
    params: dict[str, Any] | UnsetType = UNSET
    """As in the error of a single deletion: the pins or the indexes that hold an image."""


class BatchDeletion(ResponseBody):
    """The outcome of each item of a batch."""

    deleted: list[DeletedImage]
    failures: list[FailedDeletion]


def _failed(
    error: PlatformError, digest: str | None = None, tag: str | None = None
) -> FailedDeletion:
    """Return the outcome for a failed item, with the digest or tag that the request named."""
    return FailedDeletion(
        digest=digest,
        tag=tag,
        code=status_and_code(type(error))[1],
        message=error.message,
        params=error.params or UNSET,
    )


def list_images(
    tx: Connection,
    found: VisibleRepository,
    status: TagStatus,
    prefix: str | None,
    before: str,
    limit: int,
) -> tuple[Sequence[ImageRow], int]:
    """Return up to `limit` images with ids below `before`, newest first, and how many match in all.

    Images match by `status` or, if set, by `prefix`: a tag must begin with it, byte by byte.
    """
    if prefix is not None and status is TagStatus.UNTAGGED:
        return [], 0
    if prefix:
        return _list_under_prefix(tx, found, prefix, before, limit)
    if prefix is not None:
        status = TagStatus.TAGGED  # every tag starts with the empty prefix
    rows = images.list_image_rows(tx, found.repository.id, status, before, limit)
    return rows, _total(found, status)


def _total(found: VisibleRepository, status: TagStatus) -> int:
    if status is TagStatus.ANY:
        return found.image_count
    if status is TagStatus.TAGGED:
        return found.tagged_image_count
    return found.image_count - found.tagged_image_count


def _list_under_prefix(
    tx: Connection, found: VisibleRepository, prefix: str, before: str, limit: int
) -> tuple[Sequence[ImageRow], int]:
    index = prefix_index_of(tx, found, prefix)
    rows: list[ImageRow] = []
    # Fill up the page if an image was deleted meanwhile: clients take a short page for the last.
    while ids := index.images.before(before, limit - len(rows)):
        rows += images.find_images(tx, found.repository.id, ids)
        before = ids[-1]
    return rows, len(index.images)


def get_image(tx: Connection, found: VisibleRepository, reference: str) -> ImageRow:
    """Return an image by its id, any digest its content was verified with, or a short digest.

    A short digest is the beginning of the sha256: at least 6 hex digits, with or without
    ``sha256:``. No other image of the repository may have it.

    Raise `ManifestUnknown` if there is no such image, or `reference` has another form;
    `InvalidInput` if several images have this short digest.
    """
    if (image_id := parse_uuid(reference)) is not None:
        image = next(iter(images.find_images(tx, found.repository.id, [image_id])), None)
    elif _SHORT.fullmatch(reference):
        image = _find_short(tx, found, reference)
    else:
        digest = _canonical(tx, found, reference)
        image = images.find_image(tx, found.repository.id, digest) if digest else None
    if image is None:
        raise _unknown(reference)
    return image


def _find_short(tx: Connection, found: VisibleRepository, reference: str) -> ImageRow | None:
    prefix = f"sha256:{reference.removeprefix('sha256:')}"
    rows = images.find_by_prefix(tx, found.repository.id, prefix, 2)
    if len(rows) > 1:
        raise InvalidInput(
            f"several images have digests that begin with {reference}; give more of it",
            field="digest",
            reason="ambiguous",
        )
    return rows[0] if rows else None


def get_document(tx: Connection, found: VisibleRepository, reference: str) -> ManifestDocument:
    """Return an image's manifest exactly as pushed; `reference` is as for `get_image`."""
    image = get_image(tx, found, reference)
    document = images.find_document(tx, found.repository.id, image.id)
    if document is None:
        raise _unknown(reference)
    return document


def list_referring_images(
    tx: Connection,
    found: VisibleRepository,
    reference: str,
    artifact_type: str,
    before: str,
    limit: int,
) -> tuple[Sequence[ImageRow], int]:
    """Return a page of the images whose subject is `reference`, and their number (end-12).

    The subject need not exist. An empty `artifact_type` means all types. Raise `ManifestUnknown` if
    `reference` is neither a digest nor the id of an image here.
    """
    subject = reference
    if parse_uuid(reference) is not None:
        subject = get_image(tx, found, reference).digest
    subjects = blobs.equivalent_digests(tx, found.repository.account_id, _parsed(subject))
    repository_id = found.repository.id
    rows = images.find_referring_images(tx, repository_id, subjects, artifact_type, before, limit)
    return rows, images.count_referring_images(tx, repository_id, subjects, artifact_type)


def get_manifest_row(tx: Connection, found: VisibleRepository, reference: str) -> ManifestRow:
    """Return the manifest row of an image; `reference` is its id or a digest.

    Raise `ManifestUnknown` if there is no such image.
    """
    digest = (
        get_image(tx, found, reference).digest
        if parse_uuid(reference) is not None
        else _canonical(tx, found, reference)
    )
    manifest = manifests.find_manifest(tx, found.repository.id, digest) if digest else None
    if manifest is None:
        raise _unknown(reference)
    return manifest


def delete_image(
    tx: Connection, found: VisibleRepository, reference: str, change: Change, *, force: bool
) -> DeletedImage:
    """Delete an image and every tag that points to it; return the image.

    With `force`, a pinned or listed image is deleted too; the indexes that list the image stay, and
    lack it. The result has the image's tags only if there are such indexes.

    Raises:
        ManifestReferenced: an index here lists the image, and `force` is False.
        Conflict: the image is pinned, and `force` is False; or too many indexes list the image.
        ManifestUnknown: there is no such image.

    """
    repository = lock_visible_repository(tx, found)
    manifest = get_manifest_row(tx, found, reference)
    pins = {} if force else images.pins_of(tx, repository.id, [manifest.id], change.now)
    if pins:
        raise _pinned(pins[manifest.id])
    incomplete = detach_listed(tx, repository, {manifest.id}) if force else {}
    tags = images.tag_names_of(tx, repository.id, [manifest.id]) if incomplete else {}
    events = drop_image(tx, repository, manifest, change, has_force=True)
    publish(tx, change, repository, events)
    return DeletedImage(
        digest=manifest.digest,
        tags=tags.get(manifest.id, ()),
        incomplete_indexes=incomplete.get(manifest.id, UNSET),
    )


def delete_batch(
    tx: Connection,
    found: VisibleRepository,
    digests: Sequence[str],
    tags: Sequence[str],
    change: Change,
    *,
    force: bool,
) -> BatchDeletion:
    """Delete images by digest, then tags by name; return the result of each item.

    With `force`, pinned and listed images are deleted too; indexes that stay then lack them. An
    item that fails does not affect the others. Children may come before their index. A tag that was
    deleted with its image is skipped.

    Raise `Conflict` if, with `force`, too many indexes list images of the batch; nothing is
    deleted.
    """
    repository = lock_visible_repository(tx, found)
    outcome = BatchDeletion(deleted=[], failures=[])
    events = _delete_images(tx, found, repository, digests, change, outcome, force=force)
    gone = {tag for each in outcome.deleted for tag in each.tags}
    for tag in dict.fromkeys(tags):
        if tag in gone:
            continue
        record = find_tag_details(tx, repository.id, tag)
        try:
            events.append(drop_tag(tx, repository, tag, None, change))
        except (ManifestUnknown, Conflict) as error:
            outcome.failures.append(_failed(error, tag=tag))
        else:
            assert record is not None
            outcome.deleted.append(DeletedImage(digest=record.digest, tags=[tag]))
    publish(tx, change, repository, events)
    return outcome


def _delete_images(
    tx: Connection,
    found: VisibleRepository,
    repository: Repository,
    digests: Sequence[str],
    change: Change,
    outcome: BatchDeletion,
    *,
    force: bool,
) -> list[RegistryEvent]:
    requested = _find_requested(tx, found, digests, outcome)
    ids = sorted(requested, reverse=True)
    tags = images.tag_names_of(tx, repository.id, ids)
    pins = {} if force else images.pins_of(tx, repository.id, ids, change.now)
    events: list[RegistryEvent] = []
    waiting = [each for each in ids if each not in pins]
    incomplete = detach_listed(tx, repository, set(ids)) if force else {}
    # In rounds: the children of an index can be deleted in the round after it.
    while waiting:
        kept = manifests.ids_with_parents(tx, waiting)
        free = [each for each in waiting if each not in kept]
        if not free:
            break
        events += drop_unlisted(tx, repository, [requested[each][1] for each in free], change)
        outcome.deleted.extend(
            DeletedImage(
                digest=requested[each][1].digest,
                tags=tags[each],
                incomplete_indexes=incomplete.get(each, UNSET),
            )
            for each in free
        )
        waiting = [each for each in waiting if each in kept]
    for each in ids:
        digest, manifest = requested[each]
        if each in pins:
            outcome.failures.append(_failed(_pinned(pins[each]), digest))
        elif each in waiting:
            outcome.failures.append(
                _failed(referenced(tx, repository, manifest, has_force=True), digest)
            )
    return events


def _find_requested(
    tx: Connection, found: VisibleRepository, digests: Sequence[str], outcome: BatchDeletion
) -> dict[str, tuple[str, ManifestRow]]:
    """Map ids of the batch's images to the requested digest and the row.

    Images that do not exist become failures of `outcome`.
    """
    names = {digest: _name(tx, found, digest) for digest in digests}
    rows = manifests.find_manifests(tx, found.repository.id, list(names.values()))
    requested: dict[str, tuple[str, ManifestRow]] = {}
    for digest, name in names.items():
        if name in rows:
            requested.setdefault(rows[name].id, (digest, rows[name]))
        else:
            outcome.failures.append(_failed(_unknown(digest), digest))
    return requested


def _name(tx: Connection, found: VisibleRepository, digest: str) -> str:
    """Return the sha256 of the content with this digest, or "" if there is none."""
    try:
        return str(_canonical(tx, found, digest) or "")
    except ManifestUnknown:
        return ""


def _pinned(pins: Sequence[str]) -> Conflict:
    return Conflict("the image is pinned; remove its pins, or force", pins=pins)


def _canonical(tx: Connection, found: VisibleRepository, reference: str) -> str | None:
    return blobs.canonical_digest(tx, found.handle, _parsed(reference))


def _parsed(reference: str) -> Digest:
    try:
        return Digest.parse(reference)
    except DigestInvalid:
        raise _unknown(reference) from None


def _unknown(reference: str) -> ManifestUnknown:
    return ManifestUnknown("the repository has no such image", reference=reference[:256])
