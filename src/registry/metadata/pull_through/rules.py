"""The rules of the pull-through cache: which names of an account come from which upstream."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.pull_through.tables import pull_through_cache_rules

_MAX_COMPONENTS: Final = 3
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
        _r.prefix.in_([bindparam(f"prefix_{count}") for count in range(1, _MAX_COMPONENTS + 1)]),
    )
)


def find_rule_for(tx: Connection, handle: str, repository: str) -> CacheRule | None:
    """Return the rule of an account under whose prefix a repository's name is, or None."""
    parts = repository.split("/")
    prefixes = {
        f"prefix_{count}": "/".join(parts[:count]) if count < len(parts) else ""
        for count in range(1, _MAX_COMPONENTS + 1)
    }
    row = tx.row(_FOR_NAME, handle=handle, **prefixes)
    return CacheRule(*row) if row else None
