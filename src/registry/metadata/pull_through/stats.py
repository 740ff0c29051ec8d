"""What each rule of the pull-through cache has saved so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.pull_through.tables import pull_through_cache_rules, pull_through_stats
from registry.metadata.tables import manifests, repositories

_r = pull_through_cache_rules.c
_s = pull_through_stats.c
_repository = repositories.c

UNDER_RULE: Final = and_(
    _repository.account_id == _r.account_id,
    _repository.source == literal_column("'pull_through_cache'"),
    func.substr(_repository.name, literal_column("1"), func.length(_r.prefix) + literal_column("1"))
    == _r.prefix + literal_column("'/'"),
)
"""A repository is filled by a rule."""


class Totals(NamedTuple):
    """Totals of a rule since it was created."""

    pulls: int = 0
    """GETs of manifests."""
    misses: int = 0
    """Those for which the upstream was asked for the manifest."""
    fetched_bytes: int = 0
    served_bytes: int = 0

    @property
    def hits(self) -> int:
        """Return the pulls that needed no upstream."""
        return max(0, self.pulls - self.misses)

    @property
    def saved_bytes(self) -> int:
        """Return the bytes that clients got and that were not fetched for them."""
        return max(0, self.served_bytes - self.fetched_bytes)


_RULES_OF_MANIFESTS: Final = Statement(
    select(manifests.c.id, _r.id)
    .select_from(manifests)
    .join(repositories, _repository.id == manifests.c.repository_id)
    .join(pull_through_cache_rules, UNDER_RULE)
    .where(manifests.c.id.in_(listed("ids")))
)
_RULES_OF_REPOSITORIES: Final = Statement(
    select(_repository.id, _r.id)
    .select_from(repositories)
    .join(pull_through_cache_rules, UNDER_RULE)
    .where(_repository.id.in_(listed("ids")))
)
# Of a rule that still exists: it may have been deleted since the pull.
_added = insert(pull_through_stats).from_select(
    ["rule_id", *Totals._fields],
    select(_r.id, *(bindparam(name, type_=_s[name].type) for name in Totals._fields)).where(
        _r.id == bindparam("rule_id")
    ),
)
_ADD: Final = Statement(
    _added.on_conflict_do_update(
        index_elements=["rule_id"],
        set_={name: _s[name] + _added.excluded[name] for name in Totals._fields},
    )
)

_OF_ALL: Final = Statement(
    select(*(func.coalesce(func.sum(_s[name]), literal_column("0")) for name in Totals._fields))
)


def totals_of_all(tx: Connection) -> Totals:
    """Return the totals of all rules that exist."""
    row = tx.row(_OF_ALL)
    return Totals(*map(int, row)) if row else Totals()


def rules_of_manifests(tx: Connection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (manifest id, rule id) of those that are cached."""
    return _pairs(tx, _RULES_OF_MANIFESTS, ids)


def rules_of_repositories(tx: Connection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (repository id, rule id) of those that are cached."""
    return _pairs(tx, _RULES_OF_REPOSITORIES, ids)


def add_totals(tx: Connection, rule_id: str, totals: Totals) -> None:
    """Add to the totals of a rule; do nothing if it was deleted."""
    tx.execute(_ADD, rule_id=rule_id, **totals._asdict())


def _pairs(tx: Connection, statement: Statement, ids: Sequence[str]) -> list[tuple[str, str]]:
    if not ids:
        return []
    return [(row[0], row[1]) for row in tx.rows(statement, ids=text_list(ids))]
