"""Queries of service accounts and their access keys."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import access_keys, service_accounts

_s = service_accounts.c
_k = access_keys.c


class ServiceAccount(NamedTuple):
    """A service account's row: a program's identity in an account."""

    id: str
    account_id: str
    name: str
    description: str
    status: str
    created_at: int
    updated_at: int
    last_used_at: int | None = None
    """When one of its keys was last used; not stored here."""


class AccessKey(NamedTuple):
    """A key pair of a service account; its secret is stored hashed and sealed."""

    id: str
    account_id: str
    service_account_id: str
    access_key_id: str
    secret_sha256: str
    secret_sealed: bytes
    status: str
    last_used_at: int | None
    created_at: int
    description: str = ""
    expires_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Return True if the key is active and has not expired."""
        return self.status == "active" and (self.expires_at is None or now < self.expires_at)


def _columns() -> Select[Any]:
    last_used_at = (
        select(func.max(_k.last_used_at)).where(_k.service_account_id == _s.id).scalar_subquery()
    )
    return select(*(_s[name] for name in ServiceAccount._fields[:-1]), last_used_at)


SERVICE_ACCOUNTS: Final = OwnedRows(
    service_accounts,
    ServiceAccount,
    "service account",
    ("description", "status", "updated_at"),
    computed=("last_used_at",),
    query=_columns(),
)


def _key_columns() -> Select[Any]:
    return select(*(_k[name] for name in AccessKey._fields))


_OF_SERVICE_ACCOUNT: Final = (
    _k.account_id == bindparam("account_id"),
    _k.service_account_id == bindparam("service_account_id"),
)
_ADD_KEY: Final = Statement(insert_new(access_keys, AccessKey._fields))
_FIND_KEY: Final = Statement(_key_columns().where(*_OF_SERVICE_ACCOUNT, _k.id == bindparam("id")))
_LIST_KEYS: Final = Statement(
    page(_key_columns().where(*_OF_SERVICE_ACCOUNT, _k.id > bindparam("after")).order_by(_k.id))
)
_COUNT_KEYS: Final = Statement(
    select(func.count()).select_from(access_keys).where(*_OF_SERVICE_ACCOUNT)
)
_COUNT_LIVE_KEYS: Final = Statement(
    select(func.count())
    .select_from(access_keys)
    .where(
        *_OF_SERVICE_ACCOUNT,
        _k.status == text("'active'"),
        or_(_k.expires_at.is_(None), _k.expires_at > bindparam("now")),
    )
)
_UPDATE_KEY: Final = Statement(
    access_keys.update()
    .where(_k.id == bindparam("key_id"))
    .values(
        status=bindparam("status"),
        description=bindparam("description"),
        expires_at=bindparam("expires_at"),
    )
)
_DELETE_KEY: Final = Statement(access_keys.delete().where(_k.id == bindparam("key_id")))


def add_access_key(tx: Connection, key: AccessKey) -> None:
    """Insert an access key."""
    tx.execute(_ADD_KEY, **key._asdict())


def find_access_key(
    tx: Connection, account_id: str, service_account_id: str, key_id: str
) -> AccessKey | None:
    """Return an access key of a service account by the id of its row, or None."""
    row = tx.row(_FIND_KEY, account_id=account_id, service_account_id=service_account_id, id=key_id)
    return AccessKey(*row) if row else None


def list_access_keys(
    tx: Connection, account_id: str, service_account_id: str, after: str, limit: int
) -> list[AccessKey]:
    """Return the access keys of a service account, oldest first."""
    rows = tx.rows(
        _LIST_KEYS,
        account_id=account_id,
        service_account_id=service_account_id,
        after=after,
        limit=limit,
    )
    return [AccessKey(*row) for row in rows]


def count_access_keys(tx: Connection, account_id: str, service_account_id: str) -> int:
    """Count the access keys of a service account, in any state."""
    return count(tx, _COUNT_KEYS, account_id=account_id, service_account_id=service_account_id)


def count_live_access_keys(
    tx: Connection, account_id: str, service_account_id: str, now: int
) -> int:
    """Count the access keys of a service account that are active and have not expired."""
    return count(
        tx, _COUNT_LIVE_KEYS, account_id=account_id, service_account_id=service_account_id, now=now
    )


def save_access_key(tx: Connection, key: AccessKey) -> None:
    """Update the changeable columns of an access key."""
    tx.execute(
        _UPDATE_KEY,
        key_id=key.id,
        status=key.status,
        description=key.description,
        expires_at=key.expires_at,
    )


def remove_access_key(tx: Connection, key_id: str) -> None:
    """Delete an access key with the login credentials made with it."""
    tx.execute(_DELETE_KEY, key_id=key_id)
