"""Referrers: the manifests that are about another (signatures, SBOMs, attestations)."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.metadata import blobs, manifests, repositories
from registry.metadata.manifests import Referrer
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.context import Context


class ReferrerPage(NamedTuple):
    """Referrers, oldest first, and whether more follow the last."""

    referrers: list[Referrer]
    has_more: bool


async def list_referrers(
    ctx: Context, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> ReferrerPage:
    """Return a page of the manifests about `subject` (end-12); an unknown subject has none.

    The subject is matched under every digest its content was verified with. An empty
    `artifact_type` does not filter. A repository that is not there has no referrers either:
    clients ask before any push.
    """
    found = await ctx.database.read(_list, name, subject, artifact_type, after, limit + 1)
    return ReferrerPage(found[:limit], has_more=len(found) > limit)


def _list(
    tx: Connection, name: Name, subject: Digest, artifact_type: str, after: str, limit: int
) -> list[Referrer]:
    repository = repositories.find_repository(tx, name.handle, name.repository)
    if repository is None:
        return []
    subjects = blobs.equivalent_digests(tx, repository.account_id, subject)
    return manifests.list_referrers(tx, repository.id, subjects, artifact_type, after, limit)
