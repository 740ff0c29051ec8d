"""Queries of service accounts and their access keys."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement
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


SERVICE_ACCOUNTS: Final = OwnedRows(
    service_accounts,
    ServiceAccount,
    "service account",
    ("description", "status", "updated_at"),
    computed=("last_used_at",),
    query=select(
        *(_s[name] for name in ServiceAccount._fields[:-1]),
        select(func.max(_k.last_used_at)).where(_k.service_account_id == _s.id).scalar_subquery(),
    ),
)
ACCESS_KEYS: Final = OwnedRows(
    access_keys,
    AccessKey,
    "access key",
    ("status", "description", "expires_at"),
    owner="service_account_id",
    has_account=True,
    label="id",
)
_COUNT_LIVE_KEYS: Final = Statement(
    select(func.count())
    .select_from(access_keys)
    .where(
        _k.service_account_id == bindparam("service_account_id"),
        _k.status == text("'active'"),
        or_(_k.expires_at.is_(None), _k.expires_at > bindparam("now")),
    )
)


def count_live_access_keys(tx: Connection, service_account_id: str, now: int) -> int:
    """Count the access keys of a service account that are active and have not expired."""
    return count(tx, _COUNT_LIVE_KEYS, service_account_id=service_account_id, now=now)
