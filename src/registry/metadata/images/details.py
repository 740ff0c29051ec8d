"""Images as the control plane lists them: manifests with their tags, newest first.

Whatever the filter, a page is a range of a database index on ids, so its cost does not depend on
its position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ZERO, columns_of, count, find_one, given
from cloudcore.db.statement import Statement, listed, page_planned_once, paged, text_list, unseen
from registry.metadata.control_tables import PIN_HOLDS, image_pins
from registry.metadata.images.manifests import HAS_SUBJECT, IS_OF_TYPE
from registry.metadata.tables import manifest_bodies, manifests, tags

_m = manifests.c
_t = tags.c
_p = image_pins.c

NEWEST: Final = "g"
"""Sorts after every id; the first page begins here."""


class TagStatus(Enum):
    """The filter of an image list: tagged, untagged or any."""

    ANY = "any"
    TAGGED = "tagged"
    UNTAGGED = "untagged"


class ImageRow(NamedTuple):
    """An image: a manifest of one repository.

    An image may have thousands of tags, so read images by a `cloudcore.db.base.Large` query.
    """

    id: str
    digest: str
    media_type: str
    artifact_type: str | None
    config_digest: str | None
    subject_digest: str | None
    manifest_size_bytes: int
    size_bytes: int
    is_index: bool
    pushed_at: int
    last_pulled_at: int | None
    tags: Sequence[str]
    """Every tag that points to the image, in byte order."""


class ManifestDocument(NamedTuple):
    """A manifest's bytes, their sha256, and the media type they were pushed with."""

    digest: str
    media_type: str
    body: bytes


_IMAGES: Final = columns_of(manifests, ImageRow._fields[:-1]).where(
    _m.repository_id == unseen("repository_id", _m.repository_id.type)
)
_NEWEST: Final = _IMAGES.where(_m.id < unseen("before", _m.id.type)).order_by(_m.id.desc())
_IS_TAGGED: Final = _m.tag_count > ZERO  # both repeat the partial index's condition
_IS_UNTAGGED: Final = _m.tag_count == ZERO
_LIST: Final = {
    TagStatus.ANY: Statement(page_planned_once(_NEWEST)),
    TagStatus.TAGGED: Statement(page_planned_once(_NEWEST.where(_IS_TAGGED))),
    TagStatus.UNTAGGED: Statement(page_planned_once(_NEWEST.where(_IS_UNTAGGED))),
}
_BY_IDS: Final = Statement(_IMAGES.where(_m.id.in_(listed("ids"))))
_BY_DIGEST: Final = Statement(_IMAGES.where(given(_m.digest)))
_BY_PREFIX: Final = paged(
    _IMAGES.where(_m.digest > bindparam("prefix"), _m.digest < bindparam("after"))
)
_TAGS: Final = Statement(
    select(_t.manifest_id, _t.name)
    .join(manifests, _m.id == _t.manifest_id)
    .where(given(_m.repository_id), _m.id.in_(listed("ids")))
)
_DOCUMENT: Final = Statement(
    select(_m.digest, _m.media_type, manifest_bodies.c.body)
    .join(
        manifest_bodies,
        (manifest_bodies.c.account_id == _m.account_id) & (manifest_bodies.c.digest == _m.digest),
    )
    .where(given(_m.repository_id), _m.id == bindparam("manifest_id"))
)
_REFERRERS: Final = Statement(page_planned_once(_NEWEST.where(HAS_SUBJECT, IS_OF_TYPE)))
_COUNT_REFERRERS: Final = Statement(
    select(func.count()).where(given(_m.repository_id), HAS_SUBJECT, IS_OF_TYPE)
)
_PINS: Final = Statement(
    select(_p.manifest_id, _p.name).where(
        given(_p.repository_id), _p.manifest_id.in_(listed("ids")), PIN_HOLDS
    )
)


def list_image_rows(
    tx: Connection, repository_id: str, status: TagStatus, before: str, limit: int
) -> list[ImageRow]:
    """Return up to `limit` images with ids below `before`, newest first."""
    rows = tx.rows(_LIST[status], repository_id=repository_id, before=before, limit=limit)
    return _with_tags(tx, repository_id, rows)


def find_images(tx: Connection, repository_id: str, ids: Iterable[str]) -> list[ImageRow]:
    """Return the repository's images with these ids, newest first."""
    rows = tx.rows(_BY_IDS, repository_id=repository_id, ids=text_list(list(ids)))
    return _with_tags(tx, repository_id, sorted(rows, key=lambda row: str(row[0]), reverse=True))


def find_image(tx: Connection, repository_id: str, digest: str) -> ImageRow | None:
    """Return the repository's image with this sha256 digest, or None."""
    row = tx.row(_BY_DIGEST, repository_id=repository_id, digest=digest)
    return _with_tags(tx, repository_id, [row])[0] if row else None


def find_by_prefix(tx: Connection, repository_id: str, prefix: str, limit: int) -> list[ImageRow]:
    """Return up to `limit` images whose digest begins with `prefix`, which ends in a hex digit."""
    after = f"{prefix}g"  # sorts after every digest with the prefix
    rows = tx.rows(_BY_PREFIX, repository_id=repository_id, prefix=prefix, after=after, limit=limit)
    return _with_tags(tx, repository_id, rows)


def find_document(tx: Connection, repository_id: str, manifest_id: str) -> ManifestDocument | None:
    """Return a manifest's bytes, or None if the repository has no such manifest."""
    return find_one(
        tx, ManifestDocument, _DOCUMENT, repository_id=repository_id, manifest_id=manifest_id
    )


def find_referring_images(
    tx: Connection,
    repository_id: str,
    subjects: Sequence[str],
    artifact_type: str,
    before: str,
    limit: int,
) -> list[ImageRow]:
    """Return up to `limit` images whose subject is one of `subjects`, with ids below `before`.

    The newest come first. An empty `artifact_type` means any.
    """
    rows = [
        row
        for subject in subjects
        for row in tx.rows(
            _REFERRERS,
            repository_id=repository_id,
            subject=subject,
            artifact_type=artifact_type,
            before=before,
            limit=limit,
        )
    ]
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    return _with_tags(tx, repository_id, rows[:limit])


def count_referring_images(
    tx: Connection, repository_id: str, subjects: Sequence[str], artifact_type: str
) -> int:
    """Return the number of images whose subject is one of `subjects`.

    An empty `artifact_type` means any.
    """
    of = {"repository_id": repository_id, "artifact_type": artifact_type}
    return sum(count(tx, _COUNT_REFERRERS, **of, subject=subject) for subject in subjects)


def pins_of(
    tx: Connection, repository_id: str, ids: Sequence[str], now: int
) -> dict[str, list[str]]:
    """Map image ids to the names of their unexpired pins; images without pins are left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    rows = tx.rows(_PINS, repository_id=repository_id, ids=text_list(ids), now=now)
    for manifest_id, name in sorted(rows):
        found[manifest_id].append(name)
    return dict(found)


def tag_names_of(tx: Connection, repository_id: str, ids: Sequence[str]) -> dict[str, list[str]]:
    """Map image ids to their tags, in byte order."""
    found: dict[str, list[str]] = {manifest_id: [] for manifest_id in ids}
    for manifest_id, name in tx.rows(_TAGS, repository_id=repository_id, ids=text_list(ids)):
        found[manifest_id].append(name)
    return {manifest_id: sorted(names) for manifest_id, names in found.items()}


def _with_tags(tx: Connection, repository_id: str, rows: Sequence[Row]) -> list[ImageRow]:
    if not rows:
        return []
    found = tag_names_of(tx, repository_id, [row[0] for row in rows])
    return [ImageRow._make((*row, found[row[0]])) for row in rows]
