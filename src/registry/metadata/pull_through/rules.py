"""Rules of the pull-through cache, which map names to upstreams, and the totals of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, func, literal_column, or_, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, ZERO, first, given, total
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.tables import (
    CACHE_RULES,
    pull_through_cache_rules,
    pull_through_stats,
)
from registry.metadata.tables import manifests, repositories, tags

_r = pull_through_cache_rules.c
_s = pull_through_stats.c
_repository = repositories.c

_CACHED: Final[ColumnElement[str]] = literal_column("'pull_through_cache'")
_UNDER_RULE: Final = and_(
    _repository.account_id == _r.account_id,
    _repository.source == _CACHED,
    func.substr(_repository.name, ONE, func.length(_r.prefix) + ONE)
    == _r.prefix + literal_column("'/'"),
)
"""The condition that the cache created a repository whose name is below the rule's prefix."""


class Totals(NamedTuple):
    """Counters of a rule since it was created."""

    pulls: int = 0
    """The number of GET requests for manifests."""
    misses: int = 0
    """The number of these for which the manifest was fetched from the upstream."""
    fetched_bytes: int = 0
    served_bytes: int = 0

    @property
    def hits(self) -> int:
        """Return the number of pulls for which no manifest was fetched from the upstream."""
        return max(0, self.pulls - self.misses)

    @property
    def saved_bytes(self) -> int:
        """Return the bytes served to clients without fetching them from the upstream."""
        return max(0, self.served_bytes - self.fetched_bytes)


_RULES_OF_MANIFESTS: Final = Statement(
    select(manifests.c.id, _r.id)
    .select_from(manifests)
    .join(repositories, _repository.id == manifests.c.repository_id)
    .join(pull_through_cache_rules, _UNDER_RULE)
    .where(manifests.c.id.in_(listed("ids")))
)
_RULES_OF_REPOSITORIES: Final = Statement(
    select(_repository.id, _r.id)
    .select_from(repositories)
    .join(pull_through_cache_rules, _UNDER_RULE)
    .where(_repository.id.in_(listed("ids")))
)
# Of a rule that still exists: it may have been deleted since the pull.
_added = insert(pull_through_stats).from_select(
    ["rule_id", *Totals._fields],
    select(_r.id, *(bindparam(name, type_=_s[name].type) for name in Totals._fields)).where(
        _r.id == bindparam("rule_id")
    ),
)
_ADD_TOTALS: Final = Statement(
    _added.on_conflict_do_update(
        index_elements=["rule_id"],
        set_={name: _s[name] + _added.excluded[name] for name in Totals._fields},
    )
)

_OF_ALL: Final = Statement(select(*(total(_s[name]) for name in Totals._fields)))


def totals_of_all(tx: Connection) -> Totals:
    """Add up the totals of all existing rules."""
    row = tx.row(_OF_ALL)
    return Totals(*map(int, row)) if row else Totals()


def rules_of_manifests(tx: Connection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (manifest id, rule id) for those of these manifests that are cached."""
    return _pairs(tx, _RULES_OF_MANIFESTS, ids)


def rules_of_repositories(tx: Connection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (repository id, rule id) for those of these repositories that are cached."""
    return _pairs(tx, _RULES_OF_REPOSITORIES, ids)


def add_totals(tx: Connection, rule_id: str, totals: Totals) -> None:
    """Add `totals` to the counters of a rule; do nothing if the rule was deleted."""
    tx.execute(_ADD_TOTALS, rule_id=rule_id, **totals._asdict())


def _pairs(tx: Connection, statement: Statement, ids: Sequence[str]) -> list[tuple[str, str]]:
    if not ids:
        return []
    return list(tx.rows(statement, ids=text_list(ids)))


MAX_COMPONENTS: Final = 3
"""The maximum number of components of a prefix."""


_COVERS: Final = _r.prefix.in_(
    [bindparam(f"prefix_{count}") for count in range(1, MAX_COMPONENTS + 1)]
)
_FOR_NAME: Final = Statement(
    CACHE_RULES.columns.join(accounts, accounts.c.id == _r.account_id).where(
        given(accounts.c.handle), _COVERS
    )
)
_OVER: Final = Statement(select(_r.prefix).where(given(_r.account_id), _COVERS))


def find_rule_for(tx: Connection, handle: str, repository: str) -> CacheRule | None:
    """Return the account's cache rule that covers a repository's name, or None."""
    row = tx.row(_FOR_NAME, handle=handle, **_prefixes(repository))
    return CACHE_RULES.record_of(row) if row else None


def prefix_over(tx: Connection, account_id: str, repository: str) -> str | None:
    """Return the prefix of the account's cache rule that covers this repository, or None."""
    row = tx.row(_OVER, account_id=account_id, **_prefixes(repository))
    return row[0] if row else None


def _prefixes(repository: str) -> dict[str, str]:
    """Return, as query parameters, every prefix that a rule covering this name can have."""
    parts = repository.split("/")
    return {
        f"prefix_{count}": "/".join(parts[:count]) if count < len(parts) else ""
        for count in range(1, MAX_COMPONENTS + 1)
    }


class RuleDetails(NamedTuple):
    """A rule, its totals, the number of its cached images, and the bytes of their blobs."""

    rule: CacheRule
    handle: str
    totals: Totals
    image_count: int
    cached_bytes: int


def _under_prefix(prefix: ColumnElement[str]) -> ColumnElement[bool]:
    """Build the condition that a repository is below a prefix, as a range of the name index."""
    # In byte order, "0" comes next to "/".
    return and_(
        _repository.name > prefix + literal_column("'/'"),
        _repository.name < prefix + literal_column("'0'"),
    )


def _of_cached(value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the sum of `value` over a rule's cached repositories."""
    return func.coalesce(
        select(func.sum(value))
        .where(
            _repository.account_id == _r.account_id,
            _repository.deleted_at.is_(None),
            _repository.source == _CACHED,
            _under_prefix(_r.prefix),
        )
        .correlate(pull_through_cache_rules)
        .scalar_subquery(),
        ZERO,
    )


_COLUMNS: Final = (
    CACHE_RULES.columns.add_columns(
        accounts.c.handle,
        *(func.coalesce(_s[name], ZERO) for name in Totals._fields),
        _of_cached(_repository.image_count),
        _of_cached(_repository.size_bytes),
    )
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(pull_through_stats, _s.rule_id == _r.id)
    .where(given(_r.account_id))
)
_FIND: Final = Statement(_COLUMNS.where(given(_r.id)))
_LIST: Final = paged(_COLUMNS.where(_r.prefix > bindparam("after")).order_by(_r.prefix))
# Conflicts with the key-share locks of the transactions that insert a repository of the account.
_LOCK_ACCOUNT: Final = Statement(
    select(accounts.c.id).where(accounts.c.id == bindparam("account_id")).with_for_update()
)
_HOLD_ACCOUNT: Final = Statement(
    select(accounts.c.id)
    .where(accounts.c.id == bindparam("account_id"))
    .with_for_update(read=True, key_share=True)
)
# A pull may insert rows of the rule meanwhile: that locks its key.
_LOCK: Final = Statement(
    CACHE_RULES.columns.where(given(_r.account_id, _r.id)).with_for_update(key_share=True)
)
_PREFIXES: Final = Statement(select(_r.prefix).where(given(_r.account_id)))
# A pushed tag has no time at which the upstream is asked again.
_has_pushed_tag = (
    select(tags.c.name)
    .where(tags.c.repository_id == _repository.id, tags.c.fresh_until.is_(None))
    .exists()
)
_PUSHED: Final = Statement(
    first(
        select(_repository.name)
        .where(
            given(_repository.account_id),
            _repository.deleted_at.is_(None),
            or_(_repository.source != _CACHED, _has_pushed_tag),
            _repository.name >= bindparam("first"),
            _repository.name < bindparam("last"),
        )
        .order_by(_repository.name)
    )
)
_HAS_PUSHED_TAG: Final = Statement(
    select(_repository.id).where(_repository.id == bindparam("repository_id"), _has_pushed_tag)
)


def find_rule(tx: Connection, account_id: str, rule_id: str) -> RuleDetails | None:
    """Return a rule of this account, or None."""
    row = tx.row(_FIND, account_id=account_id, id=rule_id)
    return _details(row) if row else None


def list_rules(tx: Connection, account_id: str, after: str, limit: int) -> list[RuleDetails]:
    """Return up to `limit` rules of an account after the prefix `after`, sorted by prefix."""
    rows = tx.rows(_LIST, account_id=account_id, after=after, limit=limit)
    return [_details(row) for row in rows]


def lock_account(tx: Connection, account_id: str) -> None:
    """Prevent new repositories and rules in the account until the transaction ends."""
    tx.row(_LOCK_ACCOUNT, account_id=account_id)


def hold_account(tx: Connection, account_id: str) -> None:
    """Prevent new rules in the account until the transaction ends.

    Inserting a repository has the same effect, by its foreign key.
    """
    tx.row(_HOLD_ACCOUNT, account_id=account_id)


def lock_to_change(tx: Connection, account_id: str, rule_id: str) -> CacheRule | None:
    """Return a rule, locked until the transaction ends; None if it was deleted."""
    return CACHE_RULES.read_one(tx, _LOCK, account_id=account_id, id=rule_id)


def prefixes_of(tx: Connection, account_id: str) -> list[str]:
    """Return the prefixes of all rules of an account."""
    return [row[0] for row in tx.rows(_PREFIXES, account_id=account_id)]


def pushed_repository_under(tx: Connection, account_id: str, prefix: str) -> str | None:
    """Return the name of the first live repository below `prefix` with pushed content, or None.

    A repository counts if the cache did not create it, or if it has a pushed tag.
    """
    row = tx.row(_PUSHED, account_id=account_id, first=f"{prefix}/", last=f"{prefix}0")
    return row[0] if row else None


def has_pushed_tag(tx: Connection, repository_id: str) -> bool:
    """Return True if a repository has a tag that was pushed while no cache rule covered it."""
    return tx.row(_HAS_PUSHED_TAG, repository_id=repository_id) is not None


def _details(row: Row) -> RuleDetails:
    own = CACHE_RULES.width
    return RuleDetails(
        CACHE_RULES.record_of(row[:own]),
        row[own],
        Totals(*map(int, row[own + 1 : -2])),
        int(row[-2]),
        int(row[-1]),
    )
