"""Check the bytes of manifests, which are in the database, against their digests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Database
from registry.gc.collector.consistency_check import body_problem
from registry.gc.pace import Pace
from registry.metadata.collector import scrub
from registry.metadata.collector.scrub import ManifestUse, StoredManifest

PAGE: Final = 16
"""Manifests that are read at once: each may have 4 MiB."""
_IMAGES: Final = 500


class FoundManifest(NamedTuple):
    """A damaged manifest, and the images that have it."""

    manifest: StoredManifest
    problem: str
    images: Sequence[ManifestUse]
    """The first 500; none if all are deleted."""


class ManifestCheck:
    """A check of manifests. It marks nothing: every pull hashes the manifest that it reads."""

    def __init__(
        self,
        database: Database,
        pace: Pace,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `tell` after each page."""
        self._database = database
        self._pace = pace
        self._tell = tell
        self.manifest_count = 0
        self.read_bytes = 0

    async def run(
        self, pages: AsyncIterator[Sequence[StoredManifest]]
    ) -> AsyncIterator[FoundManifest]:
        """Check the manifests of all pages; yield the damaged ones.

        Raises:
            ReadingStopped: the pace was stopped.

        """
        async for page in pages:
            for manifest, problem in await self._pace.in_thread(_problems, page, self._pace):
                images = await self._database.read(
                    scrub.images_with, manifest.account_id, manifest.digest, _IMAGES
                )
                yield FoundManifest(manifest, problem, images)
            self.manifest_count += len(page)
            self.read_bytes += sum(len(each.body) for each in page)
            self._tell()


def _problems(page: Sequence[StoredManifest], pace: Pace) -> list[tuple[StoredManifest, str]]:
    """Return the damaged ones, and what is wrong. Blocks."""
    found = []
    for manifest in page:
        problem = body_problem(manifest.body, manifest.digest)
        if problem is not None:
            found.append((manifest, problem))
        pace.spend(len(manifest.body))
    return found


async def all_manifests(database: Database) -> AsyncIterator[Sequence[StoredManifest]]:
    """Yield pages of the manifests of all accounts, of deleted images too."""
    after = ("", "")
    while page := await database.read(scrub.stored_manifests, after, PAGE):
        yield page
        after = page[-1].account_id, page[-1].digest


async def manifests_of(
    database: Database, repository_id: str
) -> AsyncIterator[Sequence[StoredManifest]]:
    """Yield pages of the manifests of a repository."""
    after = ""
    while page := await database.read(scrub.manifests_of_repository, repository_id, after, PAGE):
        yield page
        after = page[-1].digest
