"""What upstreams told of the referrers of manifests, to be told again while it is fresh."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import bound
from cloudcore.db.statement import Statement
from registry.metadata.pull_through.image_tables import cached_referrers

_c = cached_referrers.c
_KEPT: Final = 7 * 24 * 3600 * MICROSECONDS
"""For how long an answer is kept that is no longer fresh: the upstream may be down."""


class CachedReferrers(NamedTuple):
    """An index of referrers as it was told."""

    body: bytes
    checked_at: int
    fresh_until: int


_FIND: Final = Statement(
    select(_c.body, _c.checked_at, _c.fresh_until).where(
        _c.repository_id == bindparam("repository_id"), _c.subject == bindparam("subject")
    )
)
_new = insert(cached_referrers).values(
    bound(("repository_id", "subject", *CachedReferrers._fields))
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["repository_id", "subject"],
        set_={name: _new.excluded[name] for name in CachedReferrers._fields},
    )
)
_FORGET: Final = deletion(_c.fresh_until)


def find_referrers(tx: Connection, repository_id: str, subject: str) -> CachedReferrers | None:
    """Return what an upstream told of the referrers of a digest, or None."""
    row = tx.row(_FIND, repository_id=repository_id, subject=subject)
    return CachedReferrers(*row) if row else None


def put_referrers(tx: Connection, repository_id: str, subject: str, told: CachedReferrers) -> None:
    """Insert or replace what an upstream told; the repository is locked."""
    tx.execute(_PUT, repository_id=repository_id, subject=subject, **told._asdict())


def forget_referrers(tx: Connection, now: int) -> int:
    """Delete a batch of the answers that nobody asked for in a long time; return how many."""
    return tx.execute(_FORGET, before=now - _KEPT)
