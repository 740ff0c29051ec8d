"""What the selection needs to know of images: of a whole repository, or again of a few.

A whole repository is read page by page, so neither the event loop nor a lock waits for it, and
what changes meanwhile may be seen or not. What must be right is read again, in the transaction
that acts on it (`read_some`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database, Row
from registry.metadata.lifecycle import images as rows
from registry.metadata.lifecycle.images import ImageColumns
from registry.services.lifecycle.rules import LifecyclePolicy
from registry.services.lifecycle.selection import Image
from registry.services.lifecycle.tagging import Tagging

PAGE: Final = 2000


class Images(NamedTuple):
    """Images and what ties them."""

    images: list[Image]
    children: dict[str, list[str]]
    """Of each index, by ids."""


async def read_all(
    database: Database,
    repository_id: str,
    policy: LifecyclePolicy,
    now: int,
    subjects: Collection[str] = frozenset(),
) -> Images:
    """Return the images of a repository; `subjects` are digests that have expired already."""
    tagging = Tagging(policy)
    after = ""
    while page := await database.read(rows.page_of_tags, repository_id, after, PAGE):
        # Patterns may take their time, which others have meanwhile.
        digests = await asyncio.to_thread(tagging.note, page)
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
        await asyncio.sleep(0)  # on SQLite nothing else lets others have their turn
    return found


def read_some(
    tx: Connection,
    repository_id: str,
    policy: LifecyclePolicy,
    ids: Sequence[str],
    now: int,
    *,
    planned_at: int,
    subjects: Collection[str],
) -> Images:
    """Return those of some images that are there, as they are now.

    Held is what an image outside of `ids` holds, and what was given a tag since `planned_at`.
    """
    tagging = Tagging(policy)
    digests = tagging.note(rows.tags_of_some(tx, repository_id, ids))
    if digests:
        tagging.note_present(rows.ids_of(tx, repository_id, digests))
    columns = [ImageColumns(*row) for row in rows.some_images(tx, repository_id, ids, now)]
    present = {each.id for each in columns}
    found = Images([], {})
    edges = rows.parents_of_some(tx, repository_id, ids)
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
    columns: ImageColumns, policy: LifecyclePolicy, tagging: Tagging, subjects: Collection[str]
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
