"""Referrers: the manifests that are about another (signatures, SBOMs, attestations)."""

from __future__ import annotations

from itertools import accumulate
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.blobs import objects as blobs
from registry.metadata.images import manifests
from registry.metadata.images.manifests import Referrer
from registry.metadata.repositories import live as repositories
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.context import ServiceContext

MAX_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of the manifests of a page, which bounds their annotations; a single one may exceed
it. Clients refuse an index over 4 MiB."""


class DescribedReferrer(NamedTuple):
    """A referrer with its annotations, as JSON."""

    referrer: Referrer
    annotations: str


class ReferrerPage(NamedTuple):
    """Referrers, oldest first, and whether more follow the last."""

    referrers: list[DescribedReferrer]
    has_more: bool


async def list_referrers(
    ctx: ServiceContext, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> ReferrerPage:
    """Return a page of the manifests about `subject` (end-12); an unknown subject has none.

    The subject is matched under every digest its content was verified with. An empty
    `artifact_type` does not filter. A repository that is not there has no referrers either:
    clients ask before any push.
    """
    return await ctx.database.read(_list, name, subject, artifact_type, after, limit)


def _list(
    tx: Connection, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> ReferrerPage:
    repository = repositories.find_repository(tx, name.handle, name.repository)
    if repository is None:
        return ReferrerPage([], has_more=False)
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
    )
