"""Referrers of images (signatures, SBOMs, attestations), and their other relations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.details import ImageRow, pins_of
from registry.metadata.images.manifests import Referrer
from registry.metadata.images.relations import (
    attached_types,
    existing_tags,
    list_some_parent_digests,
)
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Revision, VisibleRepository
from registry.oci.digest import Digest
from registry.oci.reference import Name

MAX_BYTES: Final = 3 * 1024 * 1024
"""The maximum total size of the manifests on a page, which bounds their annotations; but a page has
at least one manifest. Clients refuse an index over 4 MiB."""
MAX_REFERRERS: Final = 20
"""The number of newest referrers of an image whose types are returned."""
MAX_INDEXES: Final = 20
"""The maximum number of indexes in an image's details."""
SUFFIXES: Final = ("", ".sig", ".att", ".sbom")
"""The suffixes of tags by which older clients attach artifacts to a digest."""


class DescribedReferrer(NamedTuple):
    """A referrer, and its annotations as JSON text."""

    referrer: Referrer
    annotations: str


class ReferrerPage(NamedTuple):
    """A page of referrers, the oldest first; `has_more` is True if more follow."""

    referrers: list[DescribedReferrer]
    has_more: bool
    may_be_upstream: bool = False
    """True if an upstream may have more referrers: the repository is cached, or does not exist."""


class ReferrersState(NamedTuple):
    """The state on which the pages of a subject's referrers depend."""

    revision: Revision
    subjects: tuple[str, ...]
    """The known digests of the subject; a push to any repository of the account may verify another.
    """


def read_referrers_state(tx: Connection, name: Name, subject: Digest) -> ReferrersState | None:
    """Return the state on which `list_described_referrers` depends; None without a repository."""
    revision = repositories.find_revision(tx, name.handle, name.repository)
    if revision is None:
        return None
    subjects = blobs.equivalent_digests(tx, revision.account_id, subject)
    return ReferrersState(revision, tuple(sorted(subjects)))


def list_described_referrers(
    tx: Connection, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> ReferrerPage:
    """Return a page of the manifests with this subject (end-12); it is empty if there are none.

    The page begins after the id `after`. The subject matches by every digest that its content was
    verified with. An empty `artifact_type` means any. A missing repository gives an empty page too,
    as clients ask before the first push.
    """
    repository = repositories.find_repository(tx, name.handle, name.repository)
    if repository is None:
        return ReferrerPage([], has_more=False, may_be_upstream=True)
    subjects = blobs.equivalent_digests(tx, repository.account_id, subject)
    found = manifests.list_referrers(tx, repository.id, subjects, artifact_type, after, limit + 1)
    sizes = accumulate(referrer.size for referrer in found[:limit])
    count = max(1, sum(size <= MAX_BYTES for size in sizes))
    shown = found[:count]
    annotations = (
        manifests.annotations_of(tx, repository.id, [each.id for each in shown]) if shown else {}
    )
    return ReferrerPage(
        [DescribedReferrer(each, annotations[each.id]) for each in shown],
        has_more=len(found) > count,
        may_be_upstream=repository.is_cached,
    )


class Relations(NamedTuple):
    """The relations of one image: referrers, attached tags, indexes that list it, pins."""

    attached_types: Sequence[str]
    """Artifact types of the image's newest referrers."""
    attached_tags: Sequence[str]
    """Tags named after the image's digest, by which older clients attach artifacts."""
    is_pinned: bool
    listed_by: Sequence[str]
    """Digests of the indexes that list the image."""


def read_relations(
    tx: Connection, found: VisibleRepository, rows: Sequence[ImageRow], now: int
) -> dict[str, Relations]:
    """Map the ids of these images to their relations."""
    repository = found.repository
    digests = [row.digest for row in rows]
    types = attached_types(tx, repository.id, repository.account_id, digests, MAX_REFERRERS)
    pins = pins_of(tx, repository.id, [row.id for row in rows], now)
    names = [f"{_spelled(digest)}{suffix}" for digest in digests for suffix in SUFFIXES]
    tags = existing_tags(tx, repository.id, names)
    return {
        row.id: Relations(
            types.get(row.digest, ()),
            [name for suffix in SUFFIXES if (name := f"{_spelled(row.digest)}{suffix}") in tags],
            row.id in pins,
            list_some_parent_digests(tx, repository.id, row.id, MAX_INDEXES),
        )
        for row in rows
    }


def _spelled(digest: str) -> str:
    return digest.replace(":", "-")
