"""How many repositories, images and tags an account has and may have.

Their numbers stand in the rows of the account's repositories, and are summed up there. An account
without a limit is not: what changes the rows finds none on its way. Else its changes that add
something wait for each other, so that they never exceed the limit together.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import Counted, limit_of, refuse
from cloudcore.quotas.quota import Quota
from registry.metadata.tables import repositories
from registry.quotas import IMAGES, REPOSITORIES, TAGS

_r = repositories.c


def _of_account(what: ColumnElement[Any]) -> Select[Any]:
    return select(what).where(given(_r.account_id), _r.deleted_at.is_(None))


_BY_QUOTA: Final = {
    quota: Counted(quota, query)
    for quota, query in (
        (REPOSITORIES, _of_account(func.count()).select_from(repositories)),
        (IMAGES, _of_account(func.sum(_r.image_count))),
        (TAGS, _of_account(func.sum(_r.tag_count))),
    )
}
COUNTED: Final = tuple(_BY_QUOTA.values())
_LOCK: Final = Statement(
    select(accounts.c.id)
    .where(accounts.c.id == bindparam("account_id"))
    .with_for_update(key_share=True)
)


def check_added(
    tx: Connection, account_id: str, quota: Quota, limit: int | None, added: int, now: int
) -> None:
    """Check that an account may have what `tx` has added; `limit` is None if none is set.

    Tell the account if it has most or all of it now.

    Raises:
        QuotaExceeded: it has more than it may have.

    """
    if limit is None or added <= 0:
        return
    tx.row(_LOCK, account_id=account_id)
    counted = _BY_QUOTA[quota]
    use = counted.read(tx, account_id)
    before = use._replace(used=use.used - added)
    if use.used > use.limit:
        words = f"the account may have {{limit}} {quota.words}; delete some, or ask the operator"
        refuse(quota, before, words)
    counted.tell(tx, account_id, before, now, added)


def check_restored(tx: Connection, account_id: str, quota: Quota, added: int, now: int) -> None:
    """Check as `check_added`, and read the limit."""
    limit = limit_of(tx, account_id, quota)
    check_added(tx, account_id, quota, None if limit == quota.default else limit, added, now)
