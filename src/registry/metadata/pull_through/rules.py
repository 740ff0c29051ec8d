"""The rules of the pull-through cache: which names of an account come from which upstream."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.pull_through.tables import pull_through_cache_rules

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
        accounts.c.handle == bindparam("handle"),
        _r.prefix.in_([bindparam(f"prefix_{count}") for count in range(1, MAX_COMPONENTS + 1)]),
    )
)

_OVER: Final = Statement(
    select(_r.prefix).where(
        _r.account_id == bindparam("account_id"),
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
