"""Live repositories by id, as the image and tag operations of the control plane need them."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.repositories.live import REPOSITORY_COLUMNS, Repository, repository_of
from registry.metadata.repositories.policies import Target
from registry.metadata.tables import repositories, resource_policies

_r = repositories.c
_p = resource_policies.c


class VisibleRepository(NamedTuple):
    """A live repository of an active account: its settings, its counters, and its policy."""

    repository: Repository
    handle: str
    image_count: int
    tagged_image_count: int
    tag_count: int
    updated_at: int
    target: Target


_FIND: Final = Statement(
    select(
        *REPOSITORY_COLUMNS,
        accounts.c.handle,
        _r.image_count,
        _r.tagged_image_count,
        _r.tag_count,
        _r.updated_at,
        _p.document,
        _p.principal_ids,
    )
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(resource_policies, _p.repository_id == _r.id)
    .where(
        _r.id == bindparam("repository_id"),
        _r.deleted_at.is_(None),
        accounts.c.status == text("'active'"),
    )
)


def find_visible_repository(tx: Connection, repository_id: str) -> VisibleRepository | None:
    """Return a live repository of any active account, or None; the caller checks permissions."""
    row = tx.row(_FIND, repository_id=repository_id)
    if row is None:
        return None
    target = Target(
        account_id=row[1], repository_id=row[0], document=row[13], principal_ids=row[14]
    )
    return VisibleRepository(
        repository=repository_of(row),
        handle=row[8],
        image_count=row[9],
        tagged_image_count=row[10],
        tag_count=row[11],
        updated_at=row[12],
        target=target,
    )
