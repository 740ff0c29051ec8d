"""Preview a run: which images would expire now, by which rule, and how many bytes that frees."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Database, Row
from registry.metadata import lifecycle_policies as rows
from registry.metadata.images.details import ImageRow, find_images
from registry.metadata.images.manifests import blobs_of
from registry.services.lifecycle.rules import CompiledPolicy, policy_of
from registry.services.lifecycle.scan import SELECTING, read_all
from registry.services.lifecycle.selection import Expired, Selection, select

_CHUNK: Final = 2000
_LARGE_PART: Final = 4
"""If more than one image in this many is deleted, reading all links in order is faster than looking
up each."""


async def _freed_bytes(
    database: Database, repository_id: str, ids: Sequence[str], images: int
) -> int:
    """Return the bytes freed by deleting the images `ids` of a repository with `images` images.

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


_KEPT: Final = 2
_KEPT_FOR: Final = 300 * MICROSECONDS


class Preview(NamedTuple):
    """Which images a policy would expire at a given time."""

    moment: int
    """Microseconds since the epoch."""
    evaluated: int
    expired: dict[str, Expired]
    ids: list[str]
    """The ids of the expired images, newest first."""
    expired_by_rule: dict[int, int]
    """The number of expired images by the rule's priority."""
    kept_by_rule: dict[int, int]
    """The number of images kept by a keep rule or a `keep_last`, by the rule's priority."""
    freed_bytes: int
    """Bytes of the blobs that nothing references once the images can no longer be restored."""


class ExpiringImage(NamedTuple):
    """An image that would expire."""

    image: ImageRow
    priority: int
    """The priority of the rule that expires the image or its subject."""
    expires_with: str | None
    """The digest of the image's subject, if the image expires because its subject does."""


class Previews:
    """Computes previews one at a time, and caches the last ones for later pages."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Preview] = OrderedDict()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def get(self, database: Database, repository_id: str, document: str, now: int) -> Preview:
        """Return the preview of a policy's document at `now`.

        A request for a first page passes the current time. The page's marker contains this `now`;
        requests for later pages pass it again, and get the cached preview. If the preview is not
        cached, as in another process, it is computed from the current images and their ages at
        `now`.
        """
        key = (repository_id, document, now)
        found = self._kept.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            async with self._turns.setdefault(loop, asyncio.Semaphore()):
                found = self._kept.get(key)  # another request may have computed it meanwhile
                if found is None:
                    found = await preview(database, repository_id, policy_of(document), now)
                    self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str, int], found: Preview) -> None:
        self._kept[key] = found
        outdated = [each for each in self._kept if each[2] <= key[2] - _KEPT_FOR]
        surplus = list(self._kept)[:-_KEPT]
        for each in {*outdated, *surplus}:
            del self._kept[each]


async def preview(
    database: Database, repository_id: str, policy: CompiledPolicy, now: int
) -> Preview:
    """Return the images that a policy would expire in a repository at `now`.

    There are many read transactions; see `read_all`.
    """
    images, children = await read_all(database, repository_id, policy, now)
    selection = await SELECTING.run(repository_id, select, policy, images, children, now)
    expired = selection.expired
    return Preview(
        moment=now,
        evaluated=len(images),
        expired=expired,
        ids=sorted(expired, reverse=True),
        expired_by_rule=_expired_by_rule(policy, selection),
        kept_by_rule={policy.rules[n].priority: count for n, count in selection.kept.items()},
        freed_bytes=await _freed_bytes(database, repository_id, list(expired), len(images)),
    )


def read_expiring(
    tx: Connection, repository_id: str, policy: CompiledPolicy, found: Preview, ids: Sequence[str]
) -> list[ExpiringImage]:
    """Return those of the images `ids` that a preview expires and that still exist."""
    shown = {image.id: image for image in find_images(tx, repository_id, ids)}
    subjects = [subject for each in ids if (subject := found.expired[each].subject) is not None]
    digests = rows.digests_of(tx, repository_id, subjects)
    expiring = []
    for each in ids:
        if each in shown:
            rule, subject = found.expired[each]
            assert rule is not None
            expiring.append(
                ExpiringImage(
                    shown[each],
                    policy.rules[rule].priority,
                    None if subject is None else shown[each].subject_digest or digests.get(subject),
                )
            )
    return expiring


def _expired_by_rule(policy: CompiledPolicy, selection: Selection) -> dict[int, int]:
    counts = Counter(each.rule for each in selection.expired.values())
    return {policy.rules[n].priority: count for n, count in counts.items() if n is not None}
