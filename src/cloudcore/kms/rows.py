"""Queries of the versions of keys, and those of keys that do not follow from their description."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from sqlalchemy import bindparam, column, exists, func, literal_column, select, table, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, count
from cloudcore.db.statement import Statement, page
from cloudcore.kms.key import Key, KeyState
from cloudcore.kms.tables import IS_PENDING, IS_PLATFORM, KEY_ROWS, kms_key_versions, kms_keys

_k = kms_keys.c
_v = kms_key_versions.c
_accounts = table("accounts", column("id"))
"""The table that keys refer to; it is identity's."""


class KeyVersion(NamedTuple):
    """The material of a key from one rotation to the next, wrapped."""

    key_id: str
    version: int
    key_name: str
    account_id: str
    provider: str
    wrapped_material: bytes
    created_at: int


_OF_ACCOUNT: Final = _k.account_id == bindparam("account_id")
_IS_VERSIONS: Final = (
    _v.key_id == bindparam("key_id"),
    _v.account_id == bindparam("account_id"),
)

_HOLD: Final = Statement(
    select(_k.state).where(_k.id == bindparam("id"), _OF_ACCOUNT).with_for_update(read=True)
)
_FIND_PLATFORM: Final = Statement(KEY_ROWS.columns.where(_OF_ACCOUNT, IS_PLATFORM))
_FORGET: Final = Statement(
    kms_keys.update()
    .where(_k.id == bindparam("key_id"), _OF_ACCOUNT)
    .values(name=text("NULL"), state=text("'deleted'"), updated_at=bindparam("now"))
)
_ADD_VERSION: Final = Statement(insert(kms_key_versions).values(bound(KeyVersion._fields)))
_FIND_VERSION: Final = Statement(
    select(*(_v[name] for name in KeyVersion._fields)).where(
        *_IS_VERSIONS, _v.version == bindparam("version")
    )
)
_LIST_VERSIONS: Final = Statement(
    page(
        select(_v.version, _v.created_at)
        .where(*_IS_VERSIONS, _v.version > bindparam("after"))
        .order_by(_v.version)
    )
)
_COUNT_VERSIONS: Final = Statement(
    select(func.count()).select_from(kms_key_versions).where(*_IS_VERSIONS)
)
_ERASE: Final = Statement(kms_key_versions.delete().where(*_IS_VERSIONS))
_LIST_DUE: Final = Statement(
    page(
        select(_k.account_id, _k.id)
        .where(IS_PENDING, _k.deletion_at <= bindparam("now"))
        .order_by(_k.deletion_at)
    )
)
_LIST_WITHOUT_PLATFORM: Final = Statement(
    page(
        select(_accounts.c.id)
        .where(
            ~exists(
                select(literal_column("1"))
                .select_from(kms_keys)
                .where(_k.account_id == _accounts.c.id, text("kms_keys.origin = 'platform'"))
            )
        )
        .order_by(_accounts.c.id)
    )
)


def hold_key(tx: Connection, account_id: str, key_id: str) -> KeyState | None:
    """Return the state of a key of an account, or None; it stays so until `tx` ends.

    Others may hold the key too.
    """
    row = tx.row(_HOLD, account_id=account_id, id=key_id)
    return None if row is None else cast("KeyState", row[0])


def find_platform_key(tx: Connection, account_id: str) -> Key | None:
    """Return the platform key of an account, or None if it has none yet."""
    row = tx.row(_FIND_PLATFORM, account_id=account_id)
    return None if row is None else KEY_ROWS.record_of(row)


def forget_key(tx: Connection, account_id: str, key_id: str, now: int) -> None:
    """Delete a key that has no versions: its name is gone, and its record stays."""
    tx.execute(_FORGET, account_id=account_id, key_id=key_id, now=now)


def add_version(tx: Connection, version: KeyVersion) -> None:
    """Insert a version of a key."""
    tx.execute(_ADD_VERSION, **version._asdict())


def find_version(tx: Connection, account_id: str, key_id: str, version: int) -> KeyVersion | None:
    """Return a version of a key of an account, or None."""
    row = tx.row(_FIND_VERSION, account_id=account_id, key_id=key_id, version=version)
    return None if row is None else KeyVersion(*row)._replace(wrapped_material=bytes(row[5]))


def list_versions(
    tx: Connection, account_id: str, key_id: str, after: str, limit: int
) -> list[tuple[int, int]]:
    """Return (number, creation time) of the versions of a key, oldest first.

    `after` is the number of the last one before, in decimal, or empty.
    """
    number = int(after or "0")
    rows = tx.rows(_LIST_VERSIONS, account_id=account_id, key_id=key_id, after=number, limit=limit)
    return [(row[0], row[1]) for row in rows]


def count_versions(tx: Connection, account_id: str, key_id: str) -> int:
    """Count the versions of a key."""
    return count(tx, _COUNT_VERSIONS, account_id=account_id, key_id=key_id)


def erase_versions(tx: Connection, account_id: str, key_id: str) -> int:
    """Delete the material of a key; return how many versions there were."""
    return tx.execute(_ERASE, account_id=account_id, key_id=key_id)


def list_due(tx: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return (account id, key id) of keys whose deletion is due, earliest first."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_DUE, now=now, limit=limit)]


def list_accounts_without_platform_key(tx: Connection, limit: int) -> list[str]:
    """Return the ids of accounts that have no platform key."""
    return [row[0] for row in tx.rows(_LIST_WITHOUT_PLATFORM, limit=limit)]
