"""Tags of one repository, as the control plane lists, moves and deletes them (C1).

The rules of moving and deleting are those of `services.tags`, as on the data plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.errors import ManifestUnknown
from registry.metadata.repositories.visible import ImageRepository
from registry.metadata.tags import details as tag_records
from registry.metadata.tags.details import TagRecord
from registry.services.changes import Change
from registry.services.events import publish
from registry.services.images.details import find_manifest, lock
from registry.services.tags.pointers import Precondition, drop_tag, point_tag
from registry.services.tags.prefix_index import carriers_under


class TagPage(NamedTuple):
    """Tags in byte order, and how many there are in all."""

    tags: Sequence[TagRecord]
    total: int


class PointedTag(NamedTuple):
    """A tag after it was pointed somewhere."""

    tag: TagRecord
    is_new: bool


def list_tags(
    tx: Connection, found: ImageRepository, prefix: str, after: str, limit: int
) -> TagPage:
    """Return tags after the tag `after` which begin with `prefix`, byte by byte."""
    rows = tag_records.list_tag_records(tx, found.repository.id, prefix, after, limit)
    if not prefix:
        return TagPage(rows, found.tag_count)
    return TagPage(rows, carriers_under(tx, found, prefix).tag_count)


def get_tag(tx: Connection, found: ImageRepository, tag: str) -> TagRecord:
    """Return a tag.

    Raises:
        ManifestUnknown: there is none of this name.

    """
    record = tag_records.find_tag_record(tx, found.repository.id, tag)
    if record is None:
        raise ManifestUnknown("the repository has no such tag", tag=tag[:256])
    return record


def put_tag(
    tx: Connection,
    found: ImageRepository,
    tag: str,
    digest: str,
    precondition: Precondition | None,
    act: Change,
) -> PointedTag:
    """Point a tag to an image of the repository, without a pull or a push.

    Raises:
        TagImmutable: it points elsewhere already and may not move.
        PreconditionFailed: what the client said must hold does not.
        ManifestUnknown: the repository has no such image.

    """
    repository = lock(tx, found)
    manifest = find_manifest(tx, found, digest)
    is_new = tag_records.find_tag_record(tx, repository.id, tag) is None
    event = point_tag(tx, repository, tag, manifest, digest, precondition, act)
    record = get_tag(tx, found, tag)
    publish(tx, act, repository, [event] if event else [])
    return PointedTag(record, is_new)


def delete_tag(
    tx: Connection, found: ImageRepository, tag: str, precondition: Precondition | None, act: Change
) -> None:
    """Remove a tag; its image stays (rule 4).

    Raises:
        TagDeleteForbidden: the tag is immutable.
        PreconditionFailed: what the client said must hold does not.
        ManifestUnknown: there is none of this name.

    """
    repository = lock(tx, found)
    publish(tx, act, repository, [drop_tag(tx, repository, tag, precondition, act)])
