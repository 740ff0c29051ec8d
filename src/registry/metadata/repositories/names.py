"""Names of repositories and tags in byte order, for a search through them."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from registry.metadata.tables import repositories, tags

_r = repositories.c
_t = tags.c

_REPOSITORIES: Final = Statement(
    page(
        select(_r.id, _r.name, _r.tag_count)
        .where(
            _r.account_id == bindparam("account_id"),
            _r.deleted_at.is_(None),
            _r.name > bindparam("after"),
        )
        .order_by(_r.name)
    )
)
_TAGS: Final = Statement(
    page(select(_t.name).where(_t.repository_id == bindparam("repository_id")).order_by(_t.name))
)


class RepositoryName(NamedTuple):
    """A live repository, and how many tags it has."""

    id: str
    name: str
    tag_count: int


def list_names(tx: Connection, account_id: str, after: str, limit: int) -> list[RepositoryName]:
    """Return up to `limit` repositories of an account whose names come after `after`."""
    rows = tx.rows(_REPOSITORIES, account_id=account_id, after=after, limit=limit)
    return [RepositoryName(*row) for row in rows]


def list_first_tags(tx: Connection, repository_id: str, limit: int) -> list[str]:
    """Return the first tags of a repository, `limit` at most."""
    rows = tx.rows(_TAGS, repository_id=repository_id, limit=limit)
    return [row[0] for row in rows]
