"""Queries of service accounts and access keys, and of the secrets of key pairs."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, find_one
from cloudcore.db.statement import Statement
from cloudcore.iam.principal import SourceIdentity
from cloudcore.identity.names import iam_crn, source_of_program
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import access_keys, accounts, service_accounts, sessions
from cloudcore.web.bodies import ResourceRef

_s = service_accounts.c
_k = access_keys.c


class ServiceAccount(NamedTuple):
    """A service account's row: a program's identity in an account."""

    id: str
    account_id: str
    name: str
    description: str
    created_at: int
    updated_at: int
    status: str = "active"
    last_used_at: int | None = None
    """When a key of the service account was last used, which is not stored in this row."""

    @property
    def crn(self) -> str:
        """Return the service account's CRN."""
        return SERVICE_ACCOUNTS.crn_of(self)

    @property
    def as_owner(self) -> tuple[str, str]:
        """Return (account id, id), the owner in queries of `ACCESS_KEYS`."""
        return self.account_id, self.id

    @property
    def reference(self) -> ResourceRef:
        """Return the reference to the service account, for a response body."""
        return SERVICE_ACCOUNTS.reference(self)


class AccessKey(NamedTuple):
    """A key pair of a service account; the secret is stored both hashed and sealed."""

    id: str
    account_id: str
    service_account_id: str
    access_key_id: str
    secret_sha256: str
    secret_sealed: bytes
    created_at: int
    description: str = ""
    expires_at: int | None = None
    status: str = "active"
    last_used_at: int | None = None

    @property
    def crn(self) -> str:
        """Return the key's CRN."""
        return iam_crn(self.account_id, "access-key", self.access_key_id)

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


_OF_SESSION: Final = Statement(
    select(sessions.c.id, sessions.c.secret_sealed).where(
        sessions.c.access_key_id == bindparam("access_key_id")
    )
)


def find_sealed_session(tx: Connection, access_key_id: str) -> tuple[str, bytes] | None:
    """Return (session id, sealed secret) of the role session with this signing credential.

    Return None if there is none. The session may have ended.
    """
    row = tx.row(_OF_SESSION, access_key_id=access_key_id)
    return None if row is None or row[1] is None else (row[0], row[1])


class KeyOwner(NamedTuple):
    """An access key with its service account and account; each may be suspended or inactive."""

    key_id: str
    secret_sha256: str
    key_status: str
    service_account_id: str
    service_account: str
    """The name of the service account."""
    service_account_status: str
    account_id: str
    account_status: str
    expires_at: int | None
    secret_sealed: bytes

    @property
    def source(self) -> SourceIdentity:
        """Return the service account as the source of a request."""
        return source_of_program(self.account_id, self.service_account)

    def is_usable(self, now: int) -> bool:
        """Return True if the key is active and has not expired; its owner may be suspended."""
        return self.key_status == "active" and (self.expires_at is None or now < self.expires_at)

    @property
    def is_suspended(self) -> bool:
        """Return True if the service account or its account is suspended."""
        return {self.service_account_status, self.account_status} != {"active"}

    def is_in_force(self, now: int) -> bool:
        """Return True if the key is usable and its owner is not suspended."""
        return self.is_usable(now) and not self.is_suspended


_OWNERS: Final = (
    select(
        *(_k.id, _k.secret_sha256, _k.status, _s.id, _s.name, _s.status),
        *(accounts.c.id, accounts.c.status, _k.expires_at, _k.secret_sealed),
    )
    .join(service_accounts, _s.id == _k.service_account_id)
    .join(accounts, accounts.c.id == _k.account_id)
)
_FIND: Final = Statement(_OWNERS.where(_k.access_key_id == bindparam("access_key_id")))
_FIND_BY_ID: Final = Statement(_OWNERS.where(_k.id == bindparam("key_id")))


def find_key_owner(tx: Connection, access_key_id: str) -> KeyOwner | None:
    """Return the access key with this public id, or None."""
    return find_one(tx, KeyOwner, _FIND, access_key_id=access_key_id)


def find_key_owner_by_id(tx: Connection, key_id: str) -> KeyOwner | None:
    """Return the access key with this row id, or None."""
    return find_one(tx, KeyOwner, _FIND_BY_ID, key_id=key_id)
