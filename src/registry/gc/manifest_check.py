"""Check manifests: their bytes against their digests, and their edges against their content.

A manifest's bytes list the blobs it needs; edges, links and counters are derived from that list. If
some of these rows were lost (a truncated table, a partly restored backup), a blob in use looks like
garbage. So before the collector unlinks blobs of a repository, it compares some of its manifests
with their edges, and stops if edges are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from registry.errors import ManifestInvalid
from registry.gc.object_check import Pace
from registry.metadata.collector import audit, scrub
from registry.metadata.collector.audit import ManifestBody
from registry.metadata.collector.scrub import AccountManifest, ManifestUse
from registry.oci.digest import digest_of
from registry.oci.manifest import parse_manifest
from registry.oci.media_types import is_foreign_layer

_SAMPLE: Final = 4
"""Manifests of each sort (newest, oldest, last deleted), all of which are read at once; each may
have 4 MiB."""


class IndexIncomplete(Exception):
    """Edges, links or counters contradict the manifests, so nothing may be collected."""


def check_repository(tx: Connection, repository_id: str) -> None:
    """Compare a repository's newest, oldest and last deleted manifests with their edges.

    Raise `IndexIncomplete` if a manifest is damaged, or has fewer edges than it must have.
    """
    for document in audit.sample_manifests(tx, repository_id, _SAMPLE):
        problem = manifest_problem(document)
        if problem:
            raise IndexIncomplete(f"manifest {document.digest} in {document.repository}: {problem}")


def body_problem(body: bytes, digest: str) -> str | None:
    """Return the problem of a manifest's bytes, or None if they have this digest."""
    return None if digest_of(body) == digest else "its bytes hash to something else"


def manifest_problem(document: ManifestBody) -> str | None:
    """Return the problem of a manifest's bytes or edges, or None if there is none."""
    if document.body is None:
        return "its bytes are gone"
    problem = body_problem(document.body, document.digest)
    if problem is not None:
        return problem
    try:
        parsed = parse_manifest(document.body, document.media_type, is_stored=True)
    except ManifestInvalid as error:
        return f"its bytes are no manifest: {error.message}"
    listed = {
        descriptor.digest
        for descriptor in (*parsed.blobs, *parsed.children)
        if not is_foreign_layer(descriptor.media_type)
    }
    # Two digests name one blob or manifest only if their algorithms differ.
    required = max(Counter(digest.partition(":")[0] for digest in listed).values(), default=0)
    # An index may list blobs, so its edges count together.
    held = document.blob_edges + document.child_edges
    if held < required:
        what = "children" if parsed.is_index else "blobs"
        return f"{required} {what} are listed, {held} are held"
    return None


PAGE: Final = 16
"""Manifests that are read at once; each may have 4 MiB."""
_IMAGES: Final = 500


class FoundManifest(NamedTuple):
    """A damaged manifest, and the images that use it."""

    manifest: AccountManifest
    problem: str
    images: Sequence[ManifestUse]
    """The first 500; empty if all are deleted."""


@dataclass
class ManifestCheck:
    """A check of manifests. It sets no marks: every pull verifies the manifest that it reads."""

    database: Database
    pace: Pace
    on_progress: Callable[[], None] = lambda: None
    """Called after each page."""
    manifest_count: int = field(default=0, init=False)
    read_bytes: int = field(default=0, init=False)

    async def run(
        self, pages: AsyncIterator[Sequence[AccountManifest]]
    ) -> AsyncIterator[FoundManifest]:
        """Check the manifests of all pages; yield the damaged ones.

        Raise `ReadingStopped` if `Pace.stop` was called.
        """
        async for page in pages:
            for manifest, problem in await self.pace.in_thread(_problems, page, self.pace):
                images = await self.database.read(
                    scrub.images_with, manifest.account_id, manifest.digest, _IMAGES
                )
                yield FoundManifest(manifest, problem, images)
            self.manifest_count += len(page)
            self.read_bytes += sum(len(each.body) for each in page)
            self.on_progress()


def _problems(page: Sequence[AccountManifest], pace: Pace) -> list[tuple[AccountManifest, str]]:
    """Return the damaged manifests of a page with their problems. Blocks."""
    found = []
    for manifest in page:
        problem = body_problem(manifest.body, manifest.digest)
        if problem is not None:
            found.append((manifest, problem))
        pace.spend(len(manifest.body))
    return found


async def all_manifests(database: Database) -> AsyncIterator[Sequence[AccountManifest]]:
    """Yield pages of the manifests of all accounts, deleted images included."""
    after = ("", "")
    while page := await database.read(scrub.stored_manifests, after, PAGE):
        yield page
        after = page[-1].account_id, page[-1].digest


async def manifests_of(
    database: Database, repository_id: str
) -> AsyncIterator[Sequence[AccountManifest]]:
    """Yield pages of the manifests of a repository."""
    after = ""
    while page := await database.read(scrub.manifests_of_repository, repository_id, after, PAGE):
        yield page
        after = page[-1].digest
