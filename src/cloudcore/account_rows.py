"""Queries of accounts and organizations that other packages need; identity owns the tables."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import find_all, find_one, given
from cloudcore.db.statement import Statement, paged

_accounts = sa.table("accounts", sa.column("id"), sa.column("handle"), sa.column("organization_id"))
_organizations = sa.table("organizations", sa.column("id"), sa.column("name"))
_memberships = sa.table(
    "memberships", sa.column("organization_id"), sa.column("user_id"), sa.column("role")
)
_IS_IT: Final = _accounts.c.id == sa.bindparam("account_id")

_HANDLE: Final = Statement(sa.select(_accounts.c.handle).where(_IS_IT))
_FIND: Final = Statement(
    sa.select(_accounts.c.id).where(
        (_accounts.c.handle == sa.bindparam("text")) | (_accounts.c.id == sa.bindparam("text"))
    )
)
_LOCK: Final = Statement(sa.select(_accounts.c.id).where(_IS_IT).with_for_update(key_share=True))
_OF_ORGANIZATION: Final = Statement(
    sa.select(_accounts.c.id, _accounts.c.handle)
    .where(given(_accounts.c.organization_id))
    .order_by(_accounts.c.handle)
)


def handle_of(tx: Connection, account_id: str) -> str:
    """Return the handle of an account, or an empty string if there is no such account."""
    return find_one(tx, str, _HANDLE, account_id=account_id) or ""


def find_account(tx: Connection, text: str) -> str | None:
    """Return the id of the account with this handle or id, or None."""
    return find_one(tx, str, _FIND, text=text)


def accounts_of(tx: Connection, organization_id: str) -> list[tuple[str, str]]:
    """Return the (id, handle) of an organization's accounts, sorted by handle."""
    rows = tx.rows(_OF_ORGANIZATION, organization_id=organization_id)
    return [(row[0], row[1]) for row in rows]


def lock_account(tx: Connection, account_id: str) -> None:
    """Lock an account until `tx` ends, so that changes that count its resources run one at a time.

    The lock blocks only other calls of this function: rows that refer to the account can still be
    inserted.
    """
    tx.row(_LOCK, account_id=account_id)


_o = _organizations.c
_ORGANIZATION: Final = _o.id == sa.bindparam("organization_id")
_ORGANIZATION_OF: Final = Statement(sa.select(_accounts.c.organization_id).where(_IS_IT))
_NAME: Final = Statement(sa.select(_o.name).where(_ORGANIZATION))
_LOCK_ORGANIZATION: Final = Statement(
    sa.select(_o.id).where(_ORGANIZATION).with_for_update(key_share=True)
)
_ORGANIZATIONS: Final = paged(sa.select(_o.id).where(_o.id > sa.bindparam("after")).order_by(_o.id))
_ROLE: Final = Statement(
    sa.select(_memberships.c.role).where(
        given(_memberships.c.organization_id, _memberships.c.user_id),
    )
)


def organization_of(tx: Connection, account_id: str) -> str | None:
    """Return the id of the organization that owns an account, or None if none does."""
    row = tx.row(_ORGANIZATION_OF, account_id=account_id)
    return row[0] if row else None


def organization_name(tx: Connection, organization_id: str) -> str:
    """Return the name of an organization, or an empty string if there is no such organization."""
    return find_one(tx, str, _NAME, organization_id=organization_id) or ""


def lock_organization(tx: Connection, organization_id: str) -> None:
    """Lock an organization until `tx` ends.

    Changes that depend on the number of its accounts or users take this lock, to run one at a time.
    As of `lock_account`, rows that refer to the organization can still be inserted.
    """
    tx.row(_LOCK_ORGANIZATION, organization_id=organization_id)


def list_organizations(tx: Connection, after: str, limit: int) -> list[str]:
    """Return the ids of up to `limit` organizations, in order, after the id `after`."""
    return find_all(tx, str, _ORGANIZATIONS, after=after, limit=limit)


def role_in(tx: Connection, organization_id: str, user_id: str) -> str | None:
    """Return a user's role in an organization, or None if the user is not a member."""
    return find_one(tx, str, _ROLE, organization_id=organization_id, user_id=user_id)
