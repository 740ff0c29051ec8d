"""How many repositories, images and tags an account has and may have.

Their numbers stand in the rows of the account's repositories, and are summed up there. An account
without a limit is not: what changes the rows finds none on its way. Else its changes that add
something wait for each other, so that they never exceed the limit together.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, given
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import Counted, Use, limit_of, refuse
from cloudcore.quotas.quota import Quota
from registry.metadata.tables import repositories
from registry.quotas import IMAGES, REPOSITORIES, TAGS

_r = repositories.c


def _of_account(what: ColumnElement[Any]) -> Select[Any]:
    return select(what).where(given(_r.account_id), _r.deleted_at.is_(None))


_NUMBERS: Final = {
    REPOSITORIES: _of_account(func.count()).select_from(repositories),
    IMAGES: _of_account(func.coalesce(func.sum(_r.image_count), literal_column("0"))),
    TAGS: _of_account(func.coalesce(func.sum(_r.tag_count), literal_column("0"))),
}
_COUNT_REPOSITORIES, _SUM_IMAGES, _SUM_TAGS = map(Statement, _NUMBERS.values())
_BY_QUOTA: Final = {REPOSITORIES: _COUNT_REPOSITORIES, IMAGES: _SUM_IMAGES, TAGS: _SUM_TAGS}
COUNTED: Final = tuple(Counted(*each) for each in _NUMBERS.items())
_LOCK: Final = Statement(
    select(accounts.c.id)
    .where(accounts.c.id == bindparam("account_id"))
    .with_for_update(key_share=True)
)


def check_added(
    tx: Connection, account_id: str, quota: Quota, limit: int | None, added: int
) -> None:
    """Check that an account may have what `tx` has added; `limit` is None if none is set.

    Raises:
        QuotaExceeded: it has more now than it may have.

    """
    if limit is None or added <= 0:
        return
    tx.row(_LOCK, account_id=account_id)
    used = count(tx, _BY_QUOTA[quota], account_id=account_id)
    if used > limit:
        words = f"the account may have {{limit}} {quota.words}; delete some, or ask the operator"
        refuse(quota, Use(used - added, limit), words)


def check_restored(tx: Connection, account_id: str, quota: Quota, added: int) -> None:
    """Check as `check_added`, and read the limit."""
    limit = limit_of(tx, account_id, quota)
    check_added(tx, account_id, quota, None if limit == quota.default else limit, added)
