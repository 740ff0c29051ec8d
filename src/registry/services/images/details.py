"""Images of one repository, as the control plane lists, reads and deletes them (C1).

Deleting follows the rules of `services.deletion`, as on the data plane; here a pin refuses it too,
unless it is forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, PlatformError
from cloudcore.uuids import parse_uuid
from registry.errors import DigestInvalid, ManifestUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import details as images
from registry.metadata.images import manifests
from registry.metadata.images.details import ImageRow, ManifestDocument, TagStatus
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.repositories.live import Repository, lock_repository
from registry.metadata.repositories.visible import ImageRepository
from registry.metadata.tags.details import find_tag_record
from registry.oci.digest import Digest
from registry.services.changes import Change
from registry.services.events import RegistryEvent, publish
from registry.services.images.deletion import delete_image as delete_unpinned
from registry.services.images.deletion import delete_unlisted, referenced
from registry.services.tags.pointers import drop_tag
from registry.services.tags.prefix_index import carriers_under


class ImagePage(NamedTuple):
    """Images, the newest first, and how many there are in all."""

    images: Sequence[ImageRow]
    total: int


class DeletedItem(NamedTuple):
    """What one item of a batch took away: an image with its tags, or a tag of an image."""

    digest: str
    tags: Sequence[str]


class BatchFailure(NamedTuple):
    """Why one item of a batch did nothing: the digest or the tag as it was given."""

    digest: str | None
    tag: str | None
    error: PlatformError


class BatchOutcome(NamedTuple):
    """What became of each item of a batch."""

    deleted: list[DeletedItem]
    failures: list[BatchFailure]


def list_images(
    tx: Connection,
    found: ImageRepository,
    status: TagStatus,
    prefix: str | None,
    before: str,
    limit: int,
) -> ImagePage:
    """Return images older than the id `before`: all, or those of a tag status.

    With a `prefix`, those that carry a tag which begins with it, byte by byte.
    """
    if prefix is not None and status is TagStatus.UNTAGGED:
        return ImagePage([], 0)
    if prefix:
        return _list_carrying(tx, found, prefix, before, limit)
    if prefix is not None:
        status = TagStatus.TAGGED  # every tag begins with nothing
    rows = images.list_images(tx, found.repository.id, status, before, limit)
    return ImagePage(rows, _total(found, status))


def _total(found: ImageRepository, status: TagStatus) -> int:
    if status is TagStatus.ANY:
        return found.image_count
    if status is TagStatus.TAGGED:
        return found.tagged_image_count
    return found.image_count - found.tagged_image_count


def _list_carrying(
    tx: Connection, found: ImageRepository, prefix: str, before: str, limit: int
) -> ImagePage:
    carriers = carriers_under(tx, found, prefix).images
    rows: list[ImageRow] = []
    # Again when one of them was deleted since: a short page would be taken for the last.
    while ids := carriers.before(before, limit - len(rows)):
        rows += images.find_images(tx, found.repository.id, ids)
        before = ids[-1]
    return ImagePage(rows, len(carriers))


def get_image(tx: Connection, found: ImageRepository, reference: str) -> ImageRow:
    """Return an image by its id, or by any digest its content was verified with.

    Raises:
        ManifestUnknown: there is none, nor could be one of that name.

    """
    if (image_id := parse_uuid(reference)) is not None:
        image = next(iter(images.find_images(tx, found.repository.id, [image_id])), None)
    else:
        digest = _canonical(tx, found, reference)
        image = images.find_image(tx, found.repository.id, digest) if digest else None
    if image is None:
        raise _unknown(reference)
    return image


def get_document(tx: Connection, found: ImageRepository, reference: str) -> ManifestDocument:
    """Return the bytes of an image's manifest as they were pushed; see `get_image`."""
    image = get_image(tx, found, reference)
    document = images.find_document(tx, found.repository.id, image.id)
    if document is None:
        raise _unknown(reference)
    return document


def list_referrers(
    tx: Connection,
    found: ImageRepository,
    reference: str,
    artifact_type: str,
    before: str,
    limit: int,
) -> ImagePage:
    """Return the images about another, which need not be here (or be yet); see end-12.

    An empty `artifact_type` does not filter.

    Raises:
        ManifestUnknown: `reference` is neither a digest nor the id of an image here.

    """
    subject = reference
    if parse_uuid(reference) is not None:
        subject = get_image(tx, found, reference).digest
    subjects = blobs.equivalent_digests(tx, found.repository.account_id, _parsed(subject))
    repository_id = found.repository.id
    rows = images.list_images_about(tx, repository_id, subjects, artifact_type, before, limit)
    return ImagePage(rows, images.count_images_about(tx, repository_id, subjects, artifact_type))


def find_manifest(tx: Connection, found: ImageRepository, reference: str) -> ManifestRow:
    """Return a manifest for a change of it; see `get_image`."""
    digest = (
        get_image(tx, found, reference).digest
        if parse_uuid(reference) is not None
        else _canonical(tx, found, reference)
    )
    manifest = manifests.find_manifest(tx, found.repository.id, digest) if digest else None
    if manifest is None:
        raise _unknown(reference)
    return manifest


def lock(tx: Connection, found: ImageRepository) -> Repository:
    """Return the repository locked for a change.

    Raises:
        ManifestUnknown: it was deleted meanwhile.

    """
    repository = lock_repository(tx, found.repository.id)
    if repository is None:
        raise ManifestUnknown("there is no such repository")
    return repository


def delete_image(
    tx: Connection, found: ImageRepository, reference: str, act: Change, *, force: bool
) -> None:
    """Delete an image and every tag that points to it (rule 3).

    Raises:
        ManifestReferenced: an index here lists it.
        Conflict: pins hold it, and `force` is not given.
        ManifestUnknown.

    """
    repository = lock(tx, found)
    manifest = find_manifest(tx, found, reference)
    pins = {} if force else images.pins_of(tx, repository.id, [manifest.id], act.now)
    if pins:
        raise _pinned(pins[manifest.id])
    publish(tx, act, repository, delete_unpinned(tx, repository, manifest, act))


def delete_batch(
    tx: Connection,
    found: ImageRepository,
    digests: Sequence[str],
    tags: Sequence[str],
    act: Change,
    *,
    force: bool,
) -> BatchOutcome:
    """Delete images by digest, then tags by name; what can go goes, and the rest is told.

    Children may stand before their index. A tag that goes with its image needs nothing more.
    """
    repository = lock(tx, found)
    outcome = BatchOutcome([], [])
    events = _delete_images(tx, found, repository, digests, act, outcome, force=force)
    gone = {tag for each in outcome.deleted for tag in each.tags}
    for tag in dict.fromkeys(tags):
        if tag in gone:
            continue
        record = find_tag_record(tx, repository.id, tag)
        try:
            events.append(drop_tag(tx, repository, tag, None, act))
        except (ManifestUnknown, Conflict) as error:
            outcome.failures.append(BatchFailure(None, tag, error))
        else:
            assert record is not None
            outcome.deleted.append(DeletedItem(record.digest, [tag]))
    publish(tx, act, repository, events)
    return outcome


def _delete_images(
    tx: Connection,
    found: ImageRepository,
    repository: Repository,
    digests: Sequence[str],
    act: Change,
    outcome: BatchOutcome,
    *,
    force: bool,
) -> list[RegistryEvent]:
    asked = _find_asked(tx, found, digests, outcome)
    ids = sorted(asked, reverse=True)
    tags = images.tags_of(tx, repository.id, ids)
    pins = {} if force else images.pins_of(tx, repository.id, ids, act.now)
    events: list[RegistryEvent] = []
    waiting = [each for each in ids if each not in pins]
    # In turns: what an index of this turn lists can go in the next.
    while waiting:
        kept = manifests.listed_of(tx, waiting)
        free = [each for each in waiting if each not in kept]
        if not free:
            break
        events += delete_unlisted(tx, repository, [asked[each][1] for each in free], act)
        outcome.deleted.extend(DeletedItem(asked[each][1].digest, tags[each]) for each in free)
        waiting = [each for each in waiting if each in kept]
    for each in ids:
        digest, manifest = asked[each]
        if each in pins:
            outcome.failures.append(BatchFailure(digest, None, _pinned(pins[each])))
        elif each in waiting:
            outcome.failures.append(
                BatchFailure(digest, None, referenced(tx, repository, manifest))
            )
    return events


def _find_asked(
    tx: Connection, found: ImageRepository, digests: Sequence[str], outcome: BatchOutcome
) -> dict[str, tuple[str, ManifestRow]]:
    """Return the images a batch asks for, by id, each with the digest it was asked by."""
    names = {digest: _name(tx, found, digest) for digest in digests}
    rows = manifests.find_manifests(tx, found.repository.id, list(names.values()))
    asked: dict[str, tuple[str, ManifestRow]] = {}
    for digest, name in names.items():
        if name in rows:
            asked.setdefault(rows[name].id, (digest, rows[name]))
        else:
            outcome.failures.append(BatchFailure(digest, None, _unknown(digest)))
    return asked


def _name(tx: Connection, found: ImageRepository, digest: str) -> str:
    """Return the sha256 of what a digest names; nothing when it can name nothing."""
    try:
        return str(_canonical(tx, found, digest) or "")
    except ManifestUnknown:
        return ""


def _pinned(pins: Sequence[str]) -> Conflict:
    return Conflict("pins hold the image; take them away, or force", pins=pins)


def _canonical(tx: Connection, found: ImageRepository, reference: str) -> str | None:
    return blobs.canonical_digest(tx, found.handle, _parsed(reference))


def _parsed(reference: str) -> Digest:
    try:
        return Digest.parse(reference)
    except DigestInvalid:
        raise _unknown(reference) from None


def _unknown(reference: str) -> ManifestUnknown:
    return ManifestUnknown("the repository has no such image", reference=reference[:256])
