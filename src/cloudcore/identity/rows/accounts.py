"""Queries of accounts: owner, handle, and the revision of the account's rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import find_all, find_one
from cloudcore.db.statement import Statement, TableLock, listed, paged, text_list
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import accounts, memberships, organizations
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.organization_scope import organization_ref

_a = accounts.c
_m = memberships.c


class Account(NamedTuple):
    """An account, the unit of isolation."""

    id: str
    organization_id: str | None
    handle: str
    created_at: int
    status: str = "active"
    auto_create_repositories: bool = True
    organization_name: str | None = None
    """The name of the organization, which is not stored in this row."""

    @property
    def crn(self) -> str:
        """Return the account's CRN."""
        return iam_crn(self.id, "account", self.handle)

    @property
    def organization(self) -> ResourceRef | None:
        """Return the reference to the account's organization, or None if it has none."""
        owner, name = self.organization_id, self.organization_name
        return organization_ref(owner, name) if owner and name else None


_every = (
    select(*(_a[name] for name in Account._fields[:-1]), organizations.c.name)
    .select_from(accounts)
    .outerjoin(organizations, organizations.c.id == _a.organization_id)
)
ACCOUNTS: Final = OwnedRows(
    accounts,
    Account,
    "account",
    owner="organization_id",
    label="handle",
    computed=("organization_name",),
    query=_every,
)
"""The accounts that an organization owns."""
OWN_ACCOUNT: Final = OwnedRows(
    accounts,
    Account,
    "account",
    ("status", "auto_create_repositories"),
    owner="id",
    label="handle",
    computed=("organization_name",),
    query=_every,
)
"""A single account: pass its own id in place of the owner's id."""
_OF_MEMBER: Final = _m.organization_id == _a.organization_id
ACCOUNTS_OF_MEMBERS: Final = Listed(
    _every.join(memberships, _OF_MEMBER),
    Account,
    "account",
    of=_m.user_id == bindparam("owner"),
    key=_a.id,
    label=_a.handle,
    order=_a.handle,
    counted=select(func.count()).select_from(accounts).join(memberships, _OF_MEMBER),
)
"""The accounts of the organizations that a person is a member of, by handle."""
_LIST: Final = paged(_every.order_by(_a.handle))
_REVISION: Final = Statement(select(_a.iam_revision).where(_a.id == bindparam("id")))
_RAISE_REVISION: Final = Statement(
    accounts.update()
    .where(_a.id == bindparam("account_id"))
    .values(iam_revision=_a.iam_revision + literal_column("1"))
)
_IDS: Final = Statement(
    select(_a.handle, _a.id).where(_a.handle.in_(listed("words")) | _a.id.in_(listed("words")))
)
_HOLD_ADDING: Final = Statement(TableLock(accounts))


def lock_creation(tx: Connection) -> None:
    """Block other inserts of accounts until `tx` ends, so that "no account exists" stays true."""
    tx.execute(_HOLD_ADDING)


def find_account(tx: Connection, account_id: str) -> Account | None:
    """Return an account, active or suspended; None if there is none with this id."""
    return OWN_ACCOUNT.find(tx, account_id, account_id)


def list_accounts(tx: Connection, limit: int) -> list[Account]:
    """Return the first accounts, sorted by handle."""
    return find_all(tx, ACCOUNTS.row, _LIST, limit=limit)


def has_accounts(tx: Connection) -> bool:
    """Return True if this install has an account."""
    return bool(list_accounts(tx, 1))


def find_revision(tx: Connection, account_id: str) -> int:
    """Return the revision of the account's rights, or -1 if there is no such account."""
    found = find_one(tx, int, _REVISION, id=account_id)
    return -1 if found is None else found


def increment_revision(tx: Connection, account_id: str) -> None:
    """Increment the revision of the account's rights; this locks the account's row."""
    tx.execute(_RAISE_REVISION, account_id=account_id)


def find_account_ids(tx: Connection, words: Sequence[str]) -> dict[str, str]:
    """Map each of `words` that is the handle or id of an account to the account's id.

    Handles and ids of these accounts that are not in `words` are mapped too.
    """
    found: dict[str, str] = {}
    if words:
        for handle, account_id in tx.rows(_IDS, words=text_list(words)):
            found |= {handle: account_id, account_id: account_id}
    return found
