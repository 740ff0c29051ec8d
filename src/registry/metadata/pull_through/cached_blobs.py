"""The blobs that the repositories of a rule have: what came from its upstream."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from registry.metadata.blobs.objects import OF_ACCOUNT, Link
from registry.metadata.pull_through.rules import CacheRule
from registry.metadata.repositories.live import PULL_THROUGH_CACHE
from registry.metadata.tables import repositories

_repository = repositories.c
_LINKS: Final = Statement(
    page(
        OF_ACCOUNT.where(
            _repository.source == bindparam("source"),
            _repository.created_at >= bindparam("since"),
            _repository.name >= bindparam("first"),
            _repository.name < bindparam("last"),
        )
    )
)


def links_of_rule(tx: Connection, rule: CacheRule, digest: str, limit: int) -> list[Link]:
    """Return up to `limit` links of a blob, by sha256 digest, in the repositories of a rule.

    Nobody has pushed there: the repositories were created by the cache since there is the rule. One
    that an earlier rule has left behind may have taken pushes in between, and is left out.
    """
    rows = tx.rows(
        _LINKS,
        account_id=rule.account_id,
        digest=digest,
        source=PULL_THROUGH_CACHE,
        since=rule.created_at,
        first=f"{rule.prefix}/",
        last=f"{rule.prefix}0",
        limit=limit,
    )
    return [Link(*row[1:]) for row in rows]
