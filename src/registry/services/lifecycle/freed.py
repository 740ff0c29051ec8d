"""Compute the bytes that deleting images frees: those of blobs that nothing references then.

An account stores each blob once, so a blob that another repository links is not freed. Blobs that
tombstones reference count too; they are freed when the tombstones are purged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from cloudcore.db.base import Database, Row
from registry.metadata.images.manifests import blobs_of
from registry.metadata.lifecycle import images as rows

_CHUNK: Final = 2000
_LARGE_PART: Final = 4
"""If more than one image in this many is deleted, reading all links in order is faster than looking
them up."""


async def freed_bytes(
    database: Database, repository_id: str, ids: Sequence[str], images: int
) -> int:
    """Return the bytes freed by deleting `ids`, out of a repository of `images` images.

    Each chunk is a transaction of its own, so that other requests run in between.
    """
    references: Counter[str] = Counter()
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        references.update(await database.read(blobs_of, chunk))
        await asyncio.sleep(0)
    reads_all = len(ids) * _LARGE_PART > images
    links = (
        _all(database, repository_id) if reads_all else _some(database, repository_id, references)
    )
    freed = 0
    async for page in links:
        for digest, size, manifest_refs, is_shared in page:
            # More references than counted: another image was pushed meanwhile, so the blob stays.
            if 0 < manifest_refs <= references[digest] and not is_shared:
                freed += size
    return freed


async def _all(database: Database, repository_id: str) -> AsyncIterator[Sequence[Row]]:
    after = ""
    while page := await database.read(rows.page_of_links, repository_id, after, _CHUNK):
        yield page
        after = page[-1][0]
        await asyncio.sleep(0)


async def _some(
    database: Database, repository_id: str, digests: Collection[str]
) -> AsyncIterator[Sequence[Row]]:
    ordered = sorted(digests)  # so that one page of the index serves several look-ups
    for start in range(0, len(ordered), _CHUNK):
        chunk = ordered[start : start + _CHUNK]
        yield await database.read(rows.links_of, repository_id, chunk)
        await asyncio.sleep(0)
