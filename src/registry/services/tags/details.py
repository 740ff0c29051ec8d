"""List, read and move the tags of a repository for ``/v1``; read a move's preconditions.

Moves follow the rules of `services.tags.pointers`, as on the data plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.web.revisions import tags_named
from registry.errors import ManifestUnknown
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.tags import pointers as tag_rows
from registry.metadata.tags.pointers import TagDetails
from registry.services.changes import Change
from registry.services.events import publish
from registry.services.images.details import get_manifest_row
from registry.services.repositories.names import as_pushed_to, lock_visible_repository
from registry.services.tags.pointers import Precondition, point_tag
from registry.services.tags.prefix_index import prefix_index_of


def tag_precondition(match: str | None, none_match: str | None) -> Precondition | None:
    """Return the precondition in ``If-Match`` and ``If-None-Match``, or None without either.

    A header without a valid entity tag (no quotes, or ``"*"`` in quotes) fails for every existing
    tag, as the client wanted some condition.
    """
    if match is None and none_match is None:
        return None
    return Precondition(
        None if match is None else tags_named(match, strongly=True),
        None if none_match is None else tags_named(none_match) or frozenset({"*"}),
    )


class PointedTag(NamedTuple):
    """A tag that `put_tag` has set; `is_new` is True if the tag did not exist before."""

    tag: TagDetails
    is_new: bool


def list_tag_page(
    tx: Connection, found: VisibleRepository, prefix: str, after: str, limit: int
) -> tuple[Sequence[TagDetails], int]:
    """Return tags that begin with `prefix`, after the tag `after` in byte order, and their number.

    The number is that of the tags on all pages.
    """
    rows = tag_rows.list_tag_details(tx, found.repository.id, prefix, after, limit)
    if not prefix:
        return rows, found.tag_count
    return rows, prefix_index_of(tx, found, prefix).tag_count


def get_tag(tx: Connection, found: VisibleRepository, tag: str) -> TagDetails:
    """Return a tag; raise `ManifestUnknown` if there is none."""
    record = tag_rows.find_tag_details(tx, found.repository.id, tag)
    if record is None:
        raise ManifestUnknown("the repository has no such tag", tag=tag[:256])
    return record


def put_tag(
    tx: Connection,
    found: VisibleRepository,
    tag: str,
    digest: str,
    precondition: Precondition | None,
    change: Change,
) -> PointedTag:
    """Point a tag to an image that the repository already has.

    Raises:
        TagImmutable: the tag points to another image and may not move.
        PreconditionFailed: the tag does not meet `precondition`.
        ManifestUnknown: the repository has no such image, or is gone.
        RepositoryMirrored: the pull-through cache fills the repository.

    """
    repository = as_pushed_to(tx, lock_visible_repository(tx, found))
    manifest = get_manifest_row(tx, found, digest)
    is_new = tag_rows.find_tag_details(tx, repository.id, tag) is None
    event = point_tag(tx, repository, tag, manifest, digest, precondition, change)
    record = get_tag(tx, found, tag)
    publish(tx, change, repository, [event] if event else [])
    return PointedTag(record, is_new)
