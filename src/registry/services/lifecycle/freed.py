"""The bytes that deleting images frees: of blobs that nothing references any more.

Bytes are held once per account, so a blob that another repository links is not freed. What
tombstones hold meanwhile is freed when they go.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from cloudcore.db.base import Database, Row
from registry.metadata.lifecycle import images as rows

_CHUNK: Final = 2000
_LARGE_PART: Final = 4
"""From one link in so many on, reading all of them in order is faster than looking them up."""


async def freed_bytes(
    database: Database, repository_id: str, ids: Sequence[str], images: int
) -> int:
    """Return what is freed when these go, of the `images` of a repository."""
    references: Counter[str] = Counter()
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        references.update(await database.read(rows.references_of, chunk))
        await asyncio.sleep(0)
    reads_all = len(ids) * _LARGE_PART > images
    links = (
        _all(database, repository_id) if reads_all else _some(database, repository_id, references)
    )
    freed = 0
    async for page in links:
        for digest, size, manifest_refs, is_shared in page:
            # One more than known: another image was pushed meanwhile.
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
    ordered = sorted(digests)  # neighbours are read together
    for start in range(0, len(ordered), _CHUNK):
        chunk = ordered[start : start + _CHUNK]
        yield await database.read(rows.links_of, repository_id, chunk)
        await asyncio.sleep(0)
