"""List referrers: manifests with a given subject (signatures, SBOMs, attestations)."""

from __future__ import annotations

from itertools import accumulate
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.manifests import Referrer
from registry.metadata.repositories import live as repositories
from registry.metadata.repositories.live import Revision
from registry.oci.digest import Digest
from registry.oci.reference import Name

MAX_BYTES: Final = 3 * 1024 * 1024
"""The most bytes of all manifests on a page, which bounds their annotations; a page always has at
least one. Clients refuse an index over 4 MiB."""


class DescribedReferrer(NamedTuple):
    """A referrer and its annotations as JSON text."""

    referrer: Referrer
    annotations: str


class ReferrerPage(NamedTuple):
    """A page of referrers, the oldest first; `has_more` is True if more follow."""

    referrers: list[DescribedReferrer]
    has_more: bool
    may_be_upstream: bool = False
    """True if an upstream may know more of them: the repository is cached, or there is none."""


class SeenReferrers(NamedTuple):
    """All that the pages of a subject's referrers depend on."""

    revision: Revision
    subjects: tuple[str, ...]
    """The digests of the subject: another one may be verified in any repository of the account."""


def look_at_referrers(tx: Connection, name: Name, subject: Digest) -> SeenReferrers | None:
    """Return what `list_described_referrers` depends on, or None if there is no repository."""
    revision = repositories.find_revision(tx, name.handle, name.repository)
    if revision is None:
        return None
    subjects = blobs.equivalent_digests(tx, revision.account_id, subject)
    return SeenReferrers(revision, tuple(sorted(subjects)))


def list_described_referrers(
    tx: Connection, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> ReferrerPage:
    """Return a page of the manifests with this subject (end-12); it is empty if there are none.

    The subject matches by every digest its content was verified with. An empty `artifact_type`
    does not filter. A missing repository gives an empty page too, as clients ask before the first
    push.
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
