"""Read, store and delete manifests for ``/v2``.

A PUT is one transaction: it writes the manifest, its edges, its tags and the counters, all or none.
It locks the repository's row first, so counters and tags never race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Large
from cloudcore.threads import DOCUMENTS
from registry.errors import ManifestBlobUnknown, ManifestInvalid, ManifestUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.details import find_document
from registry.metadata.images.manifests import (
    BodyComparison,
    ManifestRow,
    NewManifest,
    StoredManifest,
)
from registry.metadata.pull_through import missing
from registry.metadata.pull_through.missing import MissingBlob
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Counts, Repository
from registry.metadata.tags.deleted import attach_deleted_tags
from registry.oci.digest import ALGORITHMS, Digest
from registry.oci.manifest import Manifest, ReadManifest, is_specific, read_manifest
from registry.oci.media_types import MANIFEST_TYPES, is_foreign_layer
from registry.oci.reference import Name
from registry.services.access.decisions import DELETE, PUSH, Rights
from registry.services.changes import Change, record_change
from registry.services.context import ServiceContext
from registry.services.events import IMAGE_CACHED, IMAGE_PUSHED, RegistryEvent, publish
from registry.services.images.deletion import drop_image
from registry.services.images.manifest_damage import is_small_and_whole
from registry.services.pull_through import references
from registry.services.pull_through.references import measured_tree
from registry.services.repositories import names
from registry.services.tags.pointers import Precondition, point_tag

MAX_LISTED_BYTES: Final = 1 << 40
"""The maximum size of a blob that a manifest may list and its repository lacks. Nobody has checked
such sizes, and those of an index are summed."""
MAX_TAGS: Final = 50
"""The maximum number of tags that one PUT sets (end-7b; the specification requires at least 10)."""
INLINE_BYTES: Final = 8 * 1024
"""The size of the largest manifest that is parsed on the event loop, in at most 0.5 ms. The usual
size is 2 KiB."""


@dataclass(frozen=True, slots=True)
class ManifestPut:
    """A manifest to store, and the tags to point to it."""

    body: bytes
    content_type: str | None
    expected: Digest | None = None
    """The digest in the path of a PUT by digest; None for a PUT by tag."""
    tags: tuple[str, ...] = ()
    precondition: Precondition | None = None
    is_fetched: bool = False
    """True if the pull-through cache fetched the manifest; False if a client pushes it."""


class PutResult(NamedTuple):
    """The result of a PUT; `digest` uses the algorithm that the client used."""

    digest: Digest
    subject: str | None
    wrong_sizes: tuple[str, ...]
    """Digests whose descriptor gives a size other than that of the stored blob."""


async def get_whole_manifest(
    ctx: ServiceContext, name: Name, reference: str | Digest
) -> StoredManifest:
    """Return a manifest by tag or digest.

    The bytes are verified before the response. Large ones are read and hashed in threads, which
    accounts share fairly, so that neither the event loop nor a transaction waits.

    Raise `ManifestUnknown` if there is no such tag or manifest, or if its bytes are damaged (until
    it is pushed again); `NameUnknown` if there is no such repository.
    """
    found = await ctx.database.read(_get, name, reference)
    if not is_small_and_whole(found.body, found.digest):
        if not found.body:
            read = Large(name.handle, find_document)
            document = await ctx.database.read(read, found.repository_id, found.id)
            if document is None:  # deleted meanwhile
                raise _unknown(name, reference)
            found = found._replace(body=document.body)
        await ctx.manifest_damage.check(found.body, found.digest, name, ctx.on_damage)
    return found


def read_manifest_state(
    tx: Connection, name: Name, reference: str | Digest
) -> StoredManifest | None:
    """Return the rows on which `get_whole_manifest` depends, without the bytes; None if missing."""
    if not isinstance(reference, Digest):
        return manifests.find_row_by_tag(tx, name.handle, name.repository, reference)
    canonical = blobs.canonical_digest(tx, name.handle, reference)
    if canonical is None:
        return None
    return manifests.find_row_by_digest(tx, name.handle, name.repository, canonical)


def state_of(found: StoredManifest) -> StoredManifest:
    """Return the result that `read_manifest_state` had when `found` was read."""
    return found._replace(body=b"")


async def read_pushed(name: Name, put: ManifestPut) -> ReadManifest:
    """Parse a manifest that will be stored; a large one in a thread.

    Raises:
        DigestMismatch, ManifestInvalid, ManifestTypeUnsupported: see `read_manifest`.

    """
    arguments = (put.body, put.content_type, put.expected)
    if len(put.body) <= INLINE_BYTES:
        return read_manifest(*arguments)
    # The account's id is not known yet; accounts take turns in the thread by their handles.
    return await DOCUMENTS.run(name.handle, read_manifest, *arguments)


async def push_manifest(
    ctx: ServiceContext, name: Name, rights: Rights, put: ManifestPut
) -> PutResult:
    """Store a manifest and point its tags to it (end-7a, end-7b).

    If the manifest exists, its stored bytes are compared, and replaced if they are damaged. The
    manifest is parsed before the transaction; a first push creates the repository in an earlier
    transaction.

    Raises:
        ManifestInvalid: see `read_manifest`; or its tree exceeds `TREE_BOUNDS`, or the same bytes
            are stored with another media type.
        DigestMismatch: the bytes do not match the digest in the path.
        ManifestBlobUnknown: it refers to blobs or manifests that the repository does not have.
        TagImmutable, PreconditionFailed: a tag may not move; nothing is stored.
        NameUnknown: see `repository_for_push`.

    """
    read = await read_pushed(name, put)
    repository = await names.repository_for_push(ctx, name, rights)
    result, kept = await ctx.database.write(
        put_manifest,
        name,
        repository.id,
        put,
        read,
        ctx.new_id(),
        ctx.change_by(rights.principal, rights.source, rights.client),
    )
    if kept is BodyComparison.HEALED:
        ctx.manifest_damage.note_healed(name, read.digest)
    return result


def delete_manifest(tx: Connection, name: Name, digest: Digest, change: Change) -> None:
    """Delete a manifest and every tag that points to it (end-9).

    Raise `ManifestReferenced` if an index in the repository lists it; `ManifestUnknown` or
    `NameUnknown` if the manifest, or the repository, does not exist.
    """
    change.begin()
    repository = names.lock_named_repository(tx, name)
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    manifest = manifests.find_manifest(tx, repository.id, canonical) if canonical else None
    if manifest is None:
        raise _unknown(name, digest)
    events = drop_image(tx, repository, manifest, change)
    record_change(tx, change, DELETE, repository)
    publish(tx, change, repository, events)


def _get(tx: Connection, name: Name, reference: str | Digest) -> StoredManifest:
    found = _find(tx, name, reference)
    if found is None:
        names.get_named_repository(tx, name)
        raise _unknown(name, reference)
    return found


def _find(tx: Connection, name: Name, reference: str | Digest) -> StoredManifest | None:
    if not isinstance(reference, Digest):
        return manifests.find_by_tag(tx, name.handle, name.repository, reference)
    canonical = blobs.canonical_digest(tx, name.handle, reference)
    if canonical is None:
        return None
    return manifests.find_by_digest(tx, name.handle, name.repository, canonical)


def put_manifest(
    tx: Connection,
    name: Name,
    repository_id: str,
    put: ManifestPut,
    read: ReadManifest,
    manifest_id: str,
    change: Change,
) -> tuple[PutResult, BodyComparison]:
    """Store a parsed manifest under this id, unless it exists, and point its tags to it.

    Return the result, and how the body compares with the account's stored copy. The pull-through
    cache may store a manifest before the blobs and children that it lists.

    Raises:
        ManifestInvalid, ManifestBlobUnknown, TagImmutable, PreconditionFailed: see `push_manifest`.
        NameUnknown: the repository was deleted.

    """
    change.begin()
    repository = names.lock_known_repository(tx, name, repository_id)
    asked = repository if put.is_fetched else names.as_pushed_to(tx, repository)
    parsed, digest = read.manifest, read.digest
    pushed = put.expected or digest
    wrong_sizes: tuple[str, ...] = ()
    manifest = manifests.find_manifest(tx, repository.id, digest)
    is_new = manifest is None
    if manifest is None:
        manifest, wrong_sizes, kept = _store(
            tx, repository, parsed, put, digest, manifest_id, change.now
        )
        # A referrer may name its subject by sha512.
        blobs.add_alias(tx, repository.account_id, read.sha512, digest)
        if repository.may_lack_children:
            references.complete_child(tx, manifest_id, repository.id, [digest, read.sha512])
    elif manifest.media_type != parsed.media_type and is_specific(put.content_type):
        raise ManifestInvalid(
            f"{digest} is stored as {manifest.media_type}; push it under that Content-Type"
        )
    else:
        kept = manifests.keep_body(tx, repository.account_id, digest, put.body)
    if pushed not in (digest, read.sha512):
        blobs.add_alias(tx, repository.account_id, pushed, digest)
    pointed = [
        point_tag(tx, asked, tag, manifest, pushed, put.precondition, change) for tag in put.tags
    ]
    events = [event for event in pointed if event]
    if is_new:
        events.insert(0, _stored(asked, digest, parsed, next(iter(put.tags), None)))
    elif events and not put.is_fetched:  # an image that is here was pushed under another tag
        events.insert(0, _stored(asked, digest, parsed, events[0].tag))
    if repository.is_cached and not put.is_fetched:
        references.complete_tree(tx, repository, manifest.id, change.now)
    if events:  # the same again is no change
        record_change(tx, change, PUSH, repository, digest=str(digest))
    publish(tx, change, repository, events)
    return PutResult(pushed, _told_subject(parsed), wrong_sizes), kept


def _told_subject(parsed: Manifest) -> str | None:
    """Return the subject if this registry lists its referrers, else None.

    Clients list the referrers of other subjects by a tag.
    """
    subject = parsed.subject
    return subject if subject and subject.partition(":")[0] in ALGORITHMS else None


def _stored(
    repository: Repository, digest: Digest, parsed: Manifest, tag: str | None
) -> RegistryEvent:
    return RegistryEvent(
        IMAGE_CACHED if repository.is_cached else IMAGE_PUSHED,
        digest=digest,
        tag=tag,
        media_type=parsed.media_type,
        artifact_type=parsed.artifact_type,
        subject=parsed.subject,
    )


def _store(
    tx: Connection,
    repository: Repository,
    parsed: Manifest,
    put: ManifestPut,
    digest: Digest,
    manifest_id: str,
    now: int,
) -> tuple[ManifestRow, tuple[str, ...], BodyComparison]:
    """Insert a manifest with its edges, and update the counters.

    A descriptor, even in an index, refers to the repository's manifest with its digest or, if there
    is none, to the blob. A fetched manifest may list content that its repository does not have yet.
    Return the manifest's row, the digests of descriptors with a wrong size, and how the body
    compares with the account's stored copy.
    """
    listed = {each.digest: each for each in (*parsed.blobs, *parsed.children)}
    canonical = blobs.canonical_digests(tx, repository.account_id, list(listed))
    named = [canonical.get(each.digest, "") for each in parsed.children]
    children = manifests.find_manifests(tx, repository.id, list(dict.fromkeys(named)))
    others = list(set(canonical.values()) - children.keys())
    links = blobs.whole_blobs(tx, repository.id, others) if others else {}
    here = children.keys() | links.keys()
    absent = [
        each
        for digest, each in listed.items()
        if canonical.get(digest) not in here and not is_foreign_layer(each.media_type)
    ]
    if absent and not put.is_fetched:
        raise ManifestBlobUnknown([each.digest for each in absent])
    child_types = MANIFEST_TYPES if parsed.is_index else ()
    absent_children = [
        canonical.get(each.digest, each.digest) for each in absent if each.media_type in child_types
    ]
    lacking = [
        MissingBlob(each.digest, each.size) for each in absent if each.media_type not in child_types
    ]
    if any(each.size > MAX_LISTED_BYTES for each in lacking):
        raise ManifestInvalid(f"it lists a blob of more than {MAX_LISTED_BYTES} bytes")

    size = sum(link.size for link in links.values()) + sum(each.size for each in lacking)
    # Blobs that an index shares with its images count once, so measure such an index by its edges.
    is_measured_last = bool(children) and (repository.is_cached or size > 0)
    if children and not is_measured_last:
        size = measured_tree(tx, manifest_id, [child.id for child in children.values()]).size
    new = NewManifest(
        id=manifest_id,
        repository_id=repository.id,
        account_id=repository.account_id,
        digest=digest,
        media_type=parsed.media_type,
        artifact_type=parsed.artifact_type,
        config_digest=parsed.config.digest if parsed.config else None,
        subject_digest=parsed.subject,
        is_index=parsed.is_index,
        manifest_size_bytes=len(put.body),
        size_bytes=size,
        annotations=parsed.annotations,
    )
    regained = 0
    kept = manifests.add_manifest(tx, new, put.body, now)
    if kept is not BodyComparison.NEW:  # a new body means that there was no tombstone
        regained = attach_deleted_tags(tx, repository.id, digest)
    if links:
        manifests.add_blob_edges(tx, manifest_id, repository.id, list(links))
        blobs.add_references(tx, repository.id, list(links))
    if children:
        manifests.add_child_edges(tx, manifest_id, repository.id, list(children))
    if lacking:
        missing.add_missing_blobs(tx, manifest_id, repository.id, lacking)
    if absent_children:
        missing.add_missing_children(tx, manifest_id, repository.id, absent_children)
    if is_measured_last:
        size = references.measure_index(tx, manifest_id).size
    gained = sum(link.size for link in links.values() if link.manifest_refs == 0)
    repositories.add_to_counters(
        tx, repository.id, now, Counts(images=1, size=gained, deleted_tags=regained)
    )
    wrong = tuple(
        name
        for name, descriptor in listed.items()
        if (link := links.get(canonical.get(name, ""))) and link.size != descriptor.size
    )
    return ManifestRow(manifest_id, digest, size, 0, parsed.media_type), wrong, kept


def _unknown(name: Name, reference: str) -> ManifestUnknown:
    return ManifestUnknown(f"{name} has no manifest {reference}", reference=str(reference))
