"""Read the images that the selection needs: a whole repository, or a few images again.

A whole repository is read page by page, so that it blocks neither the event loop nor other
transactions; the pages need not be of one moment. The transaction that deletes images reads them
again (`read_some`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database, Row
from cloudcore.threads import FairThread
from registry.metadata.images.index_members import parent_edges
from registry.metadata.lifecycle import images as rows
from registry.metadata.lifecycle.images import ImageColumns
from registry.services.lifecycle.rules import CompiledPolicy
from registry.services.lifecycle.selection import Image
from registry.services.lifecycle.tagging import Tagging

PAGE: Final = 2000
SELECTING: Final = FairThread("lifecycle")
"""Matches and sorts for lifecycle policies; repositories take turns."""


class Images(NamedTuple):
    """Images, and the edges of the indexes among them."""

    images: list[Image]
    children: dict[str, list[str]]
    """The ids of the children of each index, by the index's id."""


async def read_all(
    database: Database,
    repository_id: str,
    policy: CompiledPolicy,
    now: int,
    subjects: Collection[str] = frozenset(),
) -> Images:
    """Return the images of a repository; `subjects` are digests of images already expired.

    Each page is a transaction of its own, so that other requests run in between.
    """
    tagging = Tagging(policy)
    after = ""
    while page := await database.read(rows.page_of_tags, repository_id, after, PAGE):
        # Matching patterns may take long, so it runs in a thread.
        digests = await SELECTING.run(repository_id, tagging.note, page)
        if digests:
            tagging.note_present(await database.read(rows.ids_of, repository_id, digests))
        after = page[-1][0]
    found = Images([], {})
    after = ""
    while page := await database.read(rows.page_of_images, repository_id, after, PAGE, now):
        columns = [ImageColumns(*row) for row in page]
        for each in columns:
            found.images.append(_image(each, policy, tagging, subjects))
        indexes = [each.id for each in columns if each.is_index]
        if indexes:
            edges = await database.read(rows.children_of_some, repository_id, indexes)
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
) -> Images:
    """Return those of the images `ids` that still exist.

    An image is held if an image outside `ids` holds it, or if it got a tag since `planned_at`.
    """
    tagging = Tagging(policy)
    digests = tagging.note(rows.tags_of_some(tx, repository_id, ids))
    if digests:
        tagging.note_present(rows.ids_of(tx, repository_id, digests))
    columns = [ImageColumns(*row) for row in rows.some_images(tx, repository_id, ids, now)]
    present = {each.id for each in columns}
    found = Images([], {})
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
    columns: ImageColumns, policy: CompiledPolicy, tagging: Tagging, subjects: Collection[str]
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
