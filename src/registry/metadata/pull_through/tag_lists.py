"""The tags that upstreams list, to be told again while they are fresh."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from sqlalchemy import func, select

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import given, insert_or_change
from cloudcore.db.statement import Statement
from registry.metadata.pull_through.tables import upstream_tag_lists

MAX_BYTES_OF_RULE: Final = 16 * 1024 * 1024
"""The most bytes of names that are kept for a rule; those that were asked for last."""
_KEPT: Final = 7 * 24 * 3600 * MICROSECONDS
"""For how long a list is kept that is no longer fresh: the upstream may be down."""
_c = upstream_tag_lists.c


class KeptTags(NamedTuple):
    """The tags of a repository as an upstream listed them."""

    names: bytes
    """In byte order, one a line."""
    is_whole: bool
    """False if the upstream has more."""
    checked_at: int
    fresh_until: int

    def after(self, last: str, limit: int) -> list[str]:
        """Return up to `limit` names that sort after `last`."""
        names = self.names.decode().split("\n") if self.names else []
        begin = bisect_right(names, last)
        return names[begin : begin + limit]


_KEY: Final = given(_c.rule_id, _c.repository)
_FIND: Final = Statement(select(*(_c[name] for name in KeptTags._fields)).where(_KEY))
_SIZES: Final = Statement(
    select(_c.repository, func.length(_c.names))
    .where(given(_c.rule_id))
    .order_by(_c.checked_at.desc(), _c.repository)
)
_PUT: Final = Statement(
    insert_or_change(upstream_tag_lists, ("rule_id", "repository", *KeptTags._fields))
)
_REMOVE: Final = Statement(upstream_tag_lists.delete().where(_KEY))
_REMOVE_ALL: Final = Statement(upstream_tag_lists.delete().where(given(_c.rule_id)))
_FORGET: Final = deletion(_c.fresh_until)
_ROW_BYTES: Final = 512
"""What a list costs besides its names, roughly."""


def find_tags(tx: Connection, rule_id: str, repository: str) -> KeptTags | None:
    """Return what an upstream told of the tags of a repository under a rule, or None."""
    row = tx.row(_FIND, rule_id=rule_id, repository=repository)
    return KeptTags(*row)._replace(is_whole=bool(row[1])) if row else None


def keep_tags(tx: Connection, rule_id: str, repository: str, told: KeptTags) -> None:
    """Insert or replace what an upstream told; drop the oldest lists of the rule over the bound."""
    tx.execute(_PUT, rule_id=rule_id, repository=repository, **told._asdict())
    total = 0
    for name, size in tx.rows(_SIZES, rule_id=rule_id):
        total += size + _ROW_BYTES
        if total > MAX_BYTES_OF_RULE:
            tx.execute(_REMOVE, rule_id=rule_id, repository=name)


def remove_tags(tx: Connection, rule_id: str, repository: str) -> None:
    """Forget what an upstream told of a repository."""
    tx.execute(_REMOVE, rule_id=rule_id, repository=repository)


def remove_lists(tx: Connection, rule_id: str) -> None:
    """Forget what was told of all repositories of a rule."""
    tx.execute(_REMOVE_ALL, rule_id=rule_id)


def forget_tags(tx: Connection, now: int) -> int:
    """Delete a batch of the lists that nobody asked for in a long time; return how many."""
    return tx.execute(_FORGET, before=now - _KEPT)
