"""Read the images that the selection needs: a whole repository, or a few images again.

A whole repository is read page by page, so that it blocks neither the event loop nor other
transactions; the pages need not show the same moment. The transaction that deletes images reads
them again (`read_some`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database, Row
from cloudcore.threads import FairThread
from registry.metadata import lifecycle_policies as rows
from registry.metadata.images.relations import parent_edges
from registry.metadata.lifecycle_policies import ImageColumns
from registry.services.lifecycle.rules import CompiledPolicy
from registry.services.lifecycle.selection import Image

_DIGEST_TAG: Final = re.compile(r"(sha256)-([0-9a-f]{64})(?:\..+)?")


class SubjectImage(NamedTuple):
    """The subject that an image's manifest or tags name."""

    id: str | None
    """The subject's id, if the repository has it."""
    digest: str | None
    is_held: bool = False
    """True if the image names several subjects or has other tags too, and a subject exists. Then
    the image is kept while a subject exists, but does not expire with one."""


class TagFacts:
    """The facts about some images' tags that rules depend on."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._found: dict[str, tuple[int, int]] = {}
        self._named: dict[str, list[str]] = {}
        self._present: dict[str, str] = {}

    def note(self, tags: Iterable[Row]) -> list[str]:
        """Add rows of tags: name, image id, and the time when the tag was pointed to the image.

        Return the digests that occur in tag names; pass those that exist to `note_present`.
        """
        digests = []
        for name, image, moved_at in tags:
            rules, newest = self._found.get(image, (0, 0))
            self._found[image] = (rules | self._policy.of_tag(name), max(newest, moved_at))
            if match := _DIGEST_TAG.fullmatch(name):
                digests.append(":".join(match.groups()))
                self._named.setdefault(image, []).append(digests[-1])
        return digests

    def note_present(self, ids: Mapping[str, str]) -> None:
        """Add existing images: a map of digests to ids."""
        self._present.update(ids)

    def of(self, image: str) -> tuple[int, int]:
        """Return the set of rules that select an image by its tags, and when it last got a tag."""
        return self._found.get(image, (self._policy.of_any, 0))

    def subject_of(self, image: ImageColumns) -> SubjectImage:
        """Return the subject of an image: its manifest's, or the one that its tags name."""
        named = self._named.get(image.id)
        if named is None or image.subject_digest is not None:
            return SubjectImage(image.subject_id, image.subject_digest)
        present = {self._present[each] for each in named if each in self._present} - {image.id}
        if len(set(named)) > 1 or len(named) != image.tag_count:
            return SubjectImage(None, None, is_held=bool(present))
        return SubjectImage(next(iter(present), None), named[0])


PAGE: Final = 2000
SELECTING: Final = FairThread("lifecycle")
"""The thread that selects images for lifecycle policies; repositories take turns."""


class ScannedImages(NamedTuple):
    """Images, and the edges from indexes to children among them."""

    images: list[Image]
    children: dict[str, list[str]]
    """The ids of each index's children, by the index's id."""


async def read_all(
    database: Database,
    repository_id: str,
    policy: CompiledPolicy,
    now: int,
    subjects: Collection[str] = frozenset(),
) -> ScannedImages:
    """Read all images of a repository; `subjects` are digests of already expired images.

    Each page is a transaction of its own, so that other requests run in between.
    """
    tagging = TagFacts(policy)
    after = ""
    while page := await database.read(rows.page_of_tags, repository_id, after, PAGE):
        # Matching patterns may take long, so it runs in a thread.
        digests = await SELECTING.run(repository_id, tagging.note, page)
        if digests:
            tagging.note_present(await database.read(rows.ids_of, repository_id, digests))
        after = page[-1][0]
    found = ScannedImages([], {})
    after = ""
    while page := await database.read(rows.page_of_images, repository_id, after, PAGE, now):
        columns = [ImageColumns(*row) for row in page]
        found.images.extend(_image(each, policy, tagging, subjects) for each in columns)
        indexes = [each.id for each in columns if each.is_index]
        if indexes:
            edges = await database.read(rows.children_of_indexes, repository_id, indexes)
            _add_edges(found.children, edges)
        after = page[-1][0]
        await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop
    return found


def read_some(
    tx: Connection,
    repository_id: str,
    policy: CompiledPolicy,
    ids: Sequence[str],
    now: int,
    *,
    planned_at: int,
    subjects: Collection[str],
) -> ScannedImages:
    """Read again those of the images `ids` that still exist.

    An image counts as held if an image outside `ids` holds it, or if it got a tag since
    `planned_at`. `subjects` are digests of already expired images.
    """
    tagging = TagFacts(policy)
    digests = tagging.note(rows.tags_of_images(tx, repository_id, ids))
    if digests:
        tagging.note_present(rows.ids_of(tx, repository_id, digests))
    columns = [ImageColumns(*row) for row in rows.images_with_ids(tx, repository_id, ids, now)]
    present = {each.id for each in columns}
    found = ScannedImages([], {})
    edges = parent_edges(tx, repository_id, ids)
    _add_edges(found.children, [edge for edge in edges if edge[0] in present])
    held = {child for parent, child in edges if parent not in present}
    for each in columns:
        image = _image(each, policy, tagging, subjects)
        is_held = (
            image.is_held
            or each.id in held
            or (image.subject is not None and image.subject not in present)
            or tagging.of(each.id)[1] >= planned_at
        )
        found.images.append(image._replace(is_held=is_held))
    return found


def _image(
    columns: ImageColumns, policy: CompiledPolicy, tagging: TagFacts, subjects: Collection[str]
) -> Image:
    if columns.tag_count:
        rules, renewed_at = tagging.of(columns.id)
    else:
        rules, renewed_at = policy.of_untagged, columns.untagged_at or 0
    arrived_at = max(columns.pushed_at, columns.restored_at or 0)
    subject = tagging.subject_of(columns)
    return Image(
        id=columns.id,
        rules=rules,
        pushed_at=columns.pushed_at,
        arrived_at=arrived_at,
        renewed_at=max(arrived_at, renewed_at),
        last_pulled_at=columns.last_pulled_at,
        subject=subject.id,
        is_pinned=bool(columns.is_pinned),
        is_held=subject.is_held,
        is_orphan=subject.id is None and subject.digest in subjects,
    )


def _add_edges(children: dict[str, list[str]], edges: Iterable[Row]) -> None:
    for parent, child in edges:
        children.setdefault(parent, []).append(child)
