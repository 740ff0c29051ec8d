"""Queries of access keys with their owners, by public id."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import access_keys, accounts, service_accounts

_k = access_keys.c


class KeyOwner(NamedTuple):
    """An access key with its service account and account, in any state."""

    key_id: str
    secret_sha256: str
    key_status: str
    service_account_id: str
    service_account: str
    """Its name."""
    service_account_status: str
    account_id: str
    account_status: str
    expires_at: int | None

    def is_usable(self, now: int) -> bool:
        """Return True if the key is active and has not expired; its owner may be suspended."""
        return self.key_status == "active" and (self.expires_at is None or now < self.expires_at)

    @property
    def is_suspended(self) -> bool:
        """Return True if the service account or its account is suspended."""
        return {self.service_account_status, self.account_status} != {"active"}


_OWNERS: Final = (
    select(
        _k.id,
        _k.secret_sha256,
        _k.status,
        service_accounts.c.id,
        service_accounts.c.name,
        service_accounts.c.status,
        accounts.c.id,
        accounts.c.status,
        _k.expires_at,
    )
    .join(service_accounts, service_accounts.c.id == _k.service_account_id)
    .join(accounts, accounts.c.id == _k.account_id)
)
_FIND: Final = Statement(_OWNERS.where(_k.access_key_id == bindparam("access_key_id")))
_FIND_BY_ID: Final = Statement(_OWNERS.where(_k.id == bindparam("key_id")))
_EXPIRY: Final = Statement(select(_k.expires_at).where(_k.id == bindparam("key_id")))


def find_key_owner(tx: Connection, access_key_id: str) -> KeyOwner | None:
    """Return the access key with this public id, or None."""
    row = tx.row(_FIND, access_key_id=access_key_id)
    return KeyOwner(*row) if row else None


def find_key_owner_by_id(tx: Connection, key_id: str) -> KeyOwner | None:
    """Return the access key with this id of its row, or None."""
    row = tx.row(_FIND_BY_ID, key_id=key_id)
    return KeyOwner(*row) if row else None


def find_key_expiry(tx: Connection, key_id: str) -> int | None:
    """Return when a key expires, by the id of its row, or None if never, or if there is none."""
    row = tx.row(_EXPIRY, key_id=key_id)
    return row[0] if row else None
