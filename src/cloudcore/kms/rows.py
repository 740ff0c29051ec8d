"""Queries of keys and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

import msgspec
from sqlalchemy import bindparam, column, exists, func, literal_column, select, table, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns, count, insert_new
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.kms.specs import KeyOrigin, KeySpec, KeyState, KeyUsage
from cloudcore.kms.tables import IS_NAMED, IS_PENDING, IS_PLATFORM, kms_key_versions, kms_keys

_k = kms_keys.c
_v = kms_key_versions.c
_accounts = table("accounts", column("id"))
"""The table that keys refer to; it is identity's."""


class Key(NamedTuple):
    """A key, without its material."""

    id: str
    account_id: str
    region: str
    name: str | None
    """None once it is deleted."""
    description: str
    tags: Mapping[str, str]
    key_spec: KeySpec
    key_usage: KeyUsage
    state: KeyState
    origin: KeyOrigin
    current_version: int
    deletion_at: int | None
    """Microseconds since the epoch."""
    created_at: int
    updated_at: int

    @property
    def crn(self) -> str | None:
        """Return its CRN, or None once it is deleted."""
        return None if self.name is None else key_crn(self.region, self.account_id, self.name)


class KeyVersion(NamedTuple):
    """The material of a key from one rotation to the next, wrapped."""

    key_id: str
    version: int
    key_name: str
    account_id: str
    provider: str
    wrapped_material: bytes
    created_at: int


def key_crn(region: str, account_id: str, name: str) -> str:
    """Return the CRN of a key; `name` may be a pattern."""
    return f"crn:kms:{region}:{account_id}:key/{name}"


_COLUMNS: Final = columns(kms_keys, Key._fields)
_OF_ACCOUNT: Final = _k.account_id == bindparam("account_id")
_IS_KEY: Final = (_k.id == bindparam("id"), _OF_ACCOUNT)
_IS_VERSIONS: Final = (
    _v.key_id == bindparam("key_id"),
    _v.account_id == bindparam("account_id"),
)
_IN_STATES: Final = (
    _OF_ACCOUNT,
    _k.region == bindparam("region"),
    _k.state.in_(listed("states")),
)

_ADD: Final = Statement(insert_new(kms_keys, Key._fields))
_ADD_VERSION: Final = Statement(insert(kms_key_versions).values(bound(KeyVersion._fields)))
_FIND: Final = Statement(_COLUMNS.where(*_IS_KEY))
_LOCK: Final = Statement(_COLUMNS.where(*_IS_KEY).with_for_update())
_HOLD: Final = Statement(select(_k.state).where(*_IS_KEY).with_for_update(read=True))
_FIND_NAMED: Final = Statement(
    _COLUMNS.where(
        _OF_ACCOUNT, _k.region == bindparam("region"), _k.name == bindparam("name"), IS_NAMED
    )
)
_FIND_PLATFORM: Final = Statement(_COLUMNS.where(_OF_ACCOUNT, IS_PLATFORM))
_LIST: Final = Statement(
    page(_COLUMNS.where(*_IN_STATES, _k.id > bindparam("after")).order_by(_k.id))
)
_COUNT: Final = Statement(select(func.count()).select_from(kms_keys).where(*_IN_STATES))
_SAVE: Final = Statement(
    kms_keys.update()
    .where(_k.id == bindparam("key_id"), _OF_ACCOUNT)
    .values(
        {
            name: bindparam(name)
            for name in (
                "name",
                "description",
                "tags",
                "state",
                "current_version",
                "deletion_at",
                "updated_at",
            )
        }
    )
)
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


def add_key(tx: Connection, key: Key) -> bool:
    """Insert a key; return False if its name is taken, or if the account has a platform key."""
    return tx.execute(_ADD, **key._asdict() | {"tags": _encoded(key.tags)}) == 1


def add_version(tx: Connection, version: KeyVersion) -> None:
    """Insert a version of a key."""
    tx.execute(_ADD_VERSION, **version._asdict())


def find_key(tx: Connection, account_id: str, key_id: str) -> Key | None:
    """Return a key of an account, deleted or not, or None."""
    return _key(tx.row(_FIND, account_id=account_id, id=key_id))


def lock_key(tx: Connection, account_id: str, key_id: str) -> Key | None:
    """Return a key of an account, or None; block changes of it by others until `tx` ends."""
    return _key(tx.row(_LOCK, account_id=account_id, id=key_id))


def hold_key(tx: Connection, account_id: str, key_id: str) -> KeyState | None:
    """Return the state of a key of an account, or None; it stays so until `tx` ends.

    Others may hold the key too.
    """
    row = tx.row(_HOLD, account_id=account_id, id=key_id)
    return None if row is None else cast("KeyState", row[0])


def find_key_named(tx: Connection, account_id: str, region: str, name: str) -> Key | None:
    """Return the undeleted key of a name, or None."""
    return _key(tx.row(_FIND_NAMED, account_id=account_id, region=region, name=name))


def find_platform_key(tx: Connection, account_id: str) -> Key | None:
    """Return the platform key of an account, or None if it has none yet."""
    return _key(tx.row(_FIND_PLATFORM, account_id=account_id))


def list_keys(
    tx: Connection, account_id: str, region: str, states: str, after: str, limit: int
) -> list[Key]:
    """Return keys of an account in these `states` (see `text_of`), oldest first."""
    rows = tx.rows(
        _LIST, account_id=account_id, region=region, states=states, after=after, limit=limit
    )
    return [found for row in rows if (found := _key(row))]


def count_keys(tx: Connection, account_id: str, region: str, states: str) -> int:
    """Count the keys that `list_keys` lists."""
    return count(tx, _COUNT, account_id=account_id, region=region, states=states)


def text_of(*states: KeyState) -> str:
    """Return states as `list_keys` and `count_keys` take them."""
    return text_list(states)


def save_key(tx: Connection, key: Key) -> None:
    """Update the changeable columns of a key."""
    tx.execute(
        _SAVE,
        key_id=key.id,
        account_id=key.account_id,
        name=key.name,
        description=key.description,
        tags=_encoded(key.tags),
        state=key.state,
        current_version=key.current_version,
        deletion_at=key.deletion_at,
        updated_at=key.updated_at,
    )


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


def _encoded(tags: Mapping[str, str]) -> str:
    return msgspec.json.encode(tags, order="deterministic").decode()


def _key(row: Row | None) -> Key | None:
    if row is None:
        return None
    key = Key(*row)
    return key._replace(tags=msgspec.json.decode(cast("str", key.tags), type=dict[str, str]))
