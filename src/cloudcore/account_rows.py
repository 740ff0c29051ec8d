"""The rows of accounts, which are identity's, as other parts of the platform need them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, column, select, table

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement

_accounts = table("accounts", column("id"), column("handle"), column("organization_id"))
_IS_IT: Final = _accounts.c.id == bindparam("account_id")

_HANDLE: Final = Statement(select(_accounts.c.handle).where(_IS_IT))
_LOCK: Final = Statement(select(_accounts.c.id).where(_IS_IT).with_for_update(key_share=True))
_OF_ORGANIZATION: Final = Statement(
    select(_accounts.c.id, _accounts.c.handle)
    .where(_accounts.c.organization_id == bindparam("organization_id"))
    .order_by(_accounts.c.handle)
)


def handle_of(tx: Connection, account_id: str) -> str:
    """Return the handle of an account; it is empty if there is none."""
    row = tx.row(_HANDLE, account_id=account_id)
    return row[0] if row else ""


def accounts_of(tx: Connection, organization_id: str) -> list[tuple[str, str]]:
    """Return the (id, handle) of an organization's accounts, by handle."""
    rows = tx.rows(_OF_ORGANIZATION, organization_id=organization_id)
    return [(row[0], row[1]) for row in rows]


def lock_account(tx: Connection, account_id: str) -> None:
    """Lock an account until `tx` ends, so that what it has is counted and added to by one at once.

    It blocks nothing but other calls: rows that refer to the account may be inserted beside it.
    """
    tx.row(_LOCK, account_id=account_id)
