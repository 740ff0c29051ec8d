"""The rules of the pull-through cache: which names of an account come from which upstream."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
)

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, count, given
from cloudcore.db.statement import Statement, page
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import Counted
from registry.metadata.pull_through.stats import Totals
from registry.metadata.pull_through.tables import pull_through_cache_rules, pull_through_stats
from registry.metadata.tables import repositories, tags
from registry.quotas import CACHE_RULES

MAX_COMPONENTS: Final = 3
"""The most components of a prefix."""
_r = pull_through_cache_rules.c


class CacheRule(NamedTuple):
    """One rule of an account."""

    id: str
    account_id: str
    prefix: str
    upstream_url: str
    """An origin: ``https://host[:port]``."""
    upstream_prefix: str
    """Of the names at the upstream, without a slash at its end; may be empty."""
    username: str | None
    secret_sealed: bytes | None
    tag_ttl_seconds: int
    negative_ttl_seconds: int
    keep_unpulled_days: int | None
    max_bytes: int | None
    enabled: bool
    last_success_at: int | None
    created_at: int
    updated_at: int


_FOR_NAME: Final = Statement(
    select(*(_r[name] for name in CacheRule._fields))
    .join(accounts, accounts.c.id == _r.account_id)
    .where(
        given(accounts.c.handle),
        _r.prefix.in_([bindparam(f"prefix_{count}") for count in range(1, MAX_COMPONENTS + 1)]),
    )
)

_OVER: Final = Statement(
    select(_r.prefix).where(
        given(_r.account_id),
        _r.prefix.in_([bindparam(f"prefix_{count}") for count in range(1, MAX_COMPONENTS + 1)]),
    )
)


def find_rule_for(tx: Connection, handle: str, repository: str) -> CacheRule | None:
    """Return the rule of an account under whose prefix a repository's name is, or None."""
    row = tx.row(_FOR_NAME, handle=handle, **_prefixes(repository))
    return CacheRule(*row)._replace(enabled=bool(row[-4])) if row else None


def prefix_over(tx: Connection, account_id: str, repository: str) -> str | None:
    """Return the prefix of the account's rule under which a repository's name is, or None."""
    row = tx.row(_OVER, account_id=account_id, **_prefixes(repository))
    return row[0] if row else None


def _prefixes(repository: str) -> dict[str, str]:
    """Return the prefixes that a rule over this name can have, as parameters."""
    parts = repository.split("/")
    return {
        f"prefix_{count}": "/".join(parts[:count]) if count < len(parts) else ""
        for count in range(1, MAX_COMPONENTS + 1)
    }


_s = pull_through_stats.c
_repository = repositories.c
_NONE: Final[ColumnElement[int]] = literal_column("0", Integer())
_CACHED: Final[ColumnElement[str]] = literal_column("'pull_through_cache'")
_CHANGEABLE: Final = (
    "upstream_url",
    "upstream_prefix",
    "username",
    "secret_sealed",
    "tag_ttl_seconds",
    "negative_ttl_seconds",
    "keep_unpulled_days",
    "max_bytes",
    "enabled",
    "updated_at",
)


class RuleDetails(NamedTuple):
    """A rule, what it has saved, and what it holds."""

    rule: CacheRule
    handle: str
    totals: Totals
    image_count: int
    cached_bytes: int


def _under_prefix(prefix: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition of repositories under a prefix, as a range of the index of names."""
    # In byte order, "0" comes next to "/".
    return and_(
        _repository.name > prefix + literal_column("'/'"),
        _repository.name < prefix + literal_column("'0'"),
    )


def _of_cached(value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the sum of `value` over the cached repositories of a rule."""
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
        _NONE,
    )


def _columns() -> Select[Any]:
    return (
        select(
            *(_r[name] for name in CacheRule._fields),
            accounts.c.handle,
            *(func.coalesce(_s[name], _NONE) for name in Totals._fields),
            _of_cached(_repository.image_count),
            _of_cached(_repository.size_bytes),
        )
        .join(accounts, accounts.c.id == _r.account_id)
        .outerjoin(pull_through_stats, _s.rule_id == _r.id)
        .where(given(_r.account_id))
    )


_FIND: Final = Statement(_columns().where(given(_r.id)))
_LIST: Final = Statement(page(_columns().where(_r.prefix > bindparam("after")).order_by(_r.prefix)))
_number: Final = (
    select(func.count()).select_from(pull_through_cache_rules).where(given(_r.account_id))
)
_COUNT: Final = Statement(_number)
COUNTED: Final = Counted(CACHE_RULES, _number)
# Conflicts with the key-share locks of the transactions that insert a repository of the account.
_LOCK_ACCOUNT: Final = Statement(
    select(accounts.c.id).where(accounts.c.id == bindparam("account_id")).with_for_update()
)
_HOLD_ACCOUNT: Final = Statement(
    select(accounts.c.id)
    .where(accounts.c.id == bindparam("account_id"))
    .with_for_update(read=True, key_share=True)
)
_LOCK: Final = Statement(
    select(_r.id).where(given(_r.account_id, _r.id)).with_for_update(key_share=True)
)
_PREFIXES: Final = Statement(select(_r.prefix).where(given(_r.account_id)))
# Whoever pushes gives a tag no time at which the upstream is to be asked.
_has_pushed_tag = (
    select(tags.c.name)
    .where(tags.c.repository_id == _repository.id, tags.c.fresh_until.is_(None))
    .exists()
)
_PUSHED: Final = Statement(
    select(_repository.name)
    .where(
        given(_repository.account_id),
        _repository.deleted_at.is_(None),
        or_(_repository.source != _CACHED, _has_pushed_tag),
        _repository.name >= bindparam("first"),
        _repository.name < bindparam("last"),
    )
    .order_by(_repository.name)
    .limit(literal_column("1"))
    .offset(_NONE)
)
_HAS_PUSHED_TAG: Final = Statement(
    select(_repository.id).where(_repository.id == bindparam("repository_id"), _has_pushed_tag)
)
_ADD: Final = Statement(pull_through_cache_rules.insert().values(bound(CacheRule._fields)))
_UPDATE: Final = Statement(
    pull_through_cache_rules.update()
    .where(_r.id == bindparam("rule_id"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGEABLE})
)
_DELETE: Final = Statement(
    pull_through_cache_rules.delete().where(
        _r.account_id == bindparam("account"), _r.id == bindparam("rule_id")
    )
)


def find_rule(tx: Connection, account_id: str, rule_id: str) -> RuleDetails | None:
    """Return a rule of this account, or None."""
    row = tx.row(_FIND, account_id=account_id, id=rule_id)
    return _details(row) if row else None


def list_rules(tx: Connection, account_id: str, after: str, limit: int) -> list[RuleDetails]:
    """Return up to `limit` rules of an account after the prefix `after`, by prefix."""
    rows = tx.rows(_LIST, account_id=account_id, after=after, limit=limit)
    return [_details(row) for row in rows]


def count_rules(tx: Connection, account_id: str) -> int:
    """Return the number of rules of an account."""
    return count(tx, _COUNT, account_id=account_id)


def lock_account(tx: Connection, account_id: str) -> None:
    """Keep the account from getting repositories and rules until the transaction ends."""
    tx.row(_LOCK_ACCOUNT, account_id=account_id)


def hold_account(tx: Connection, account_id: str) -> None:
    """Keep the account from getting rules until the transaction ends.

    A transaction that inserts a repository does so by its foreign key.
    """
    tx.row(_HOLD_ACCOUNT, account_id=account_id)


def lock_rule(tx: Connection, account_id: str, rule_id: str) -> bool:
    """Lock a rule until the transaction ends; return False if there is none."""
    return tx.row(_LOCK, account_id=account_id, id=rule_id) is not None


def prefixes_of(tx: Connection, account_id: str) -> list[str]:
    """Return the prefixes of all rules of an account."""
    return [row[0] for row in tx.rows(_PREFIXES, account_id=account_id)]


def pushed_repository_under(tx: Connection, account_id: str, prefix: str) -> str | None:
    """Return the name of a live repository under `prefix` to which somebody has pushed, or None."""
    row = tx.row(_PUSHED, account_id=account_id, first=f"{prefix}/", last=f"{prefix}0")
    return row[0] if row else None


def has_pushed_tag(tx: Connection, repository_id: str) -> bool:
    """Return True if a cached repository has a tag that was pushed while no rule had its name."""
    return tx.row(_HAS_PUSHED_TAG, repository_id=repository_id) is not None


def add_rule(tx: Connection, rule: CacheRule) -> None:
    """Insert a rule."""
    tx.execute(_ADD, **rule._asdict())


def save_rule(tx: Connection, rule: CacheRule) -> None:
    """Update what can change in a rule."""
    values = {f"new_{name}": getattr(rule, name) for name in _CHANGEABLE}
    tx.execute(_UPDATE, rule_id=rule.id, **values)


def remove_rule(tx: Connection, account_id: str, rule_id: str) -> bool:
    """Delete a rule of this account with its totals; return False if there is none."""
    return tx.execute(_DELETE, account=account_id, rule_id=rule_id) == 1


def _details(row: Row) -> RuleDetails:
    own = len(CacheRule._fields)
    rule = CacheRule(*row[:own])
    return RuleDetails(
        rule._replace(enabled=bool(rule.enabled)),
        row[own],
        Totals(*map(int, row[own + 1 : -2])),
        int(row[-2]),
        int(row[-1]),
    )
