"""Find and detach the links that make blobs visible in a repository."""

from __future__ import annotations

from cloudcore.db.base import Connection
from registry.errors import BlobReferenced, BlobUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import Link, LinkTarget
from registry.metadata.blobs.wraps import drop_unused_wraps
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.repositories import repository as repositories
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access.decisions import DELETE
from registry.services.changes import Change, record_change
from registry.services.repositories.names import lock_named_repository, name_unknown


def get_link(tx: Connection, name: Name, digest: Digest) -> Link:
    """Return the link of a blob in a repository.

    Raise `BlobUnknown` if the repository does not link the blob, `NameUnknown` if there is no such
    repository.
    """
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    link = blobs.find_link(tx, name.handle, name.repository, canonical) if canonical else None
    if link is not None:
        return link
    if repositories.find_repository(tx, name.handle, name.repository) is None:
        raise name_unknown(name)
    raise unknown(name, digest)


def detach_blob(tx: Connection, name: Name, digest: Digest, change: Change) -> None:
    """Unlink a blob from a repository; the collector deletes its bytes (end-10).

    Raises:
        BlobUnknown: the repository does not link the blob.
        BlobReferenced: a manifest of the repository references the blob.
        NameUnknown: there is no such repository.

    """
    repository = lock_named_repository(tx, name)
    link = _lock_link(tx, name, digest)  # after the repository: another request may delete the link
    if not blobs.unlink(tx, link.repository_id, link.digest):
        raise BlobReferenced(
            f"a manifest in {name} references {digest}; delete the manifest first",
            digest=str(digest),
        )
    drop_unused_wraps(tx, link.account_id, [link.object_id])
    condemn(tx, link.account_id, [link.object_id], change.now)
    record_change(tx, change, DELETE, repository, blob=str(digest))


def _lock_link(tx: Connection, name: Name, digest: Digest) -> Link:
    """Return the link of a blob as `get_link` does, with its object locked.

    A push may point the link to another object before the lock, so it is read again.
    """
    link = get_link(tx, name, digest)
    while True:
        lock_objects(tx, link.account_id, [link.object_id])
        locked, link = link.object_id, get_link(tx, name, digest)
        if link.object_id == locked:
            return link


def unknown(name: Name, digest: str) -> BlobUnknown:
    """Return the error for a blob that a repository does not link."""
    return BlobUnknown(f"{name} has no blob {digest}", digest=str(digest))


def leave(tx: Connection, account_id: str, before: LinkTarget, after: LinkTarget, now: int) -> None:
    """Delete the wrap and condemn the object that a moved link has left, unless they are needed."""
    if before.object_id is None or before == after:
        return
    lock_objects(tx, account_id, [before.object_id])
    drop_unused_wraps(tx, account_id, [before.object_id])
    condemn(tx, account_id, [before.object_id], now)
