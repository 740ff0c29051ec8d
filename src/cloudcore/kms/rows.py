"""The tables of keys and their versions, their queries, and references to keys in requests.

A reference is an id, a name or a CRN. A reference to a key of another account or region gets the
same error as one to a missing key; the error for a CRN reveals only whether it names this account
and region.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast, get_args

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, columns_of, count, find_one, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.db.tables import columns, table
from cloudcore.kms.key import KEY, Key, KeyOrigin, KeySpec, KeyState, KeyUsage
from cloudcore.kms.rules import KeyMissing, check_bindable, check_usable
from cloudcore.metering.sampling import measure_of
from cloudcore.resource_references import Authorize, Kind, Scope, resolve
from cloudcore.resources.rows import Rows

_IS_NAMED: Final = sa.text("name IS NOT NULL")
IS_PLATFORM: Final = sa.text("origin = 'platform'")
_IS_DELETED: Final = sa.text("state = 'deleted'")
IS_PENDING: Final = sa.text("state = 'pending_deletion'")

KEY_ROWS: Final = Rows(
    KEY,
    one_of("key_spec", *get_args(KeySpec)),
    one_of("key_usage", *get_args(KeyUsage)),
    one_of("state", *get_args(KeyState)),
    one_of("origin", *get_args(KeyOrigin)),
    sa.CheckConstraint("current_version > 0", name="current_version"),
    sa.CheckConstraint("(state = 'deleted') = (name IS NULL)", name="deleted_name"),
    sa.CheckConstraint(
        "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)",
        name="deletion_at",
    ),
    sa.CheckConstraint("origin = 'customer' OR state = 'enabled'", name="platform_state"),
    sa.UniqueConstraint("id", "name"),
    partial_index("uq_kms_keys_platform", "account_id", unique=True, where=IS_PLATFORM),
    partial_index("ix_kms_keys_deleted", "id", where=_IS_DELETED),
    partial_index("ix_kms_keys_deletion_at", "deletion_at", where=IS_PENDING),
    unique=partial_index(
        "uq_kms_keys_name", "account_id", "region", "name", unique=True, where=_IS_NAMED
    ),
    types={
        "key_spec": sa.String(16),
        "key_usage": sa.String(24),
        "state": sa.String(24),
        "origin": sa.String(16),
        "current_version": sa.Integer(),
    },
    missing=KeyMissing,
)
kms_keys: Final = KEY_ROWS.table

# `key_name` exists for its foreign key: a key that has versions cannot lose its name, so a deleted
# key, whose name is null, has no material.
kms_key_versions = table(
    "kms_key_versions",
    columns(Id, "key_id KEY"),
    columns(sa.Integer, "version KEY"),
    columns(ByteOrdered, "key_name"),
    columns(Id, "account_id"),
    columns(sa.String(16), "provider"),  # that can unwrap the material
    columns(sa.LargeBinary, "wrapped_material"),
    columns(Moment, "created_at"),
    sa.ForeignKeyConstraint(
        ["key_id", "key_name"],
        ["kms_keys.id", "kms_keys.name"],
        name="fk_kms_key_versions_key_name",
    ),
    sa.ForeignKeyConstraint(
        ["key_id", "account_id"],
        ["kms_keys.id", "kms_keys.account_id"],
        name="fk_kms_key_versions_key_account",
    ),
    sa.CheckConstraint("version > 0", name="version"),
    one_of("provider", "embedded", "aws"),
)


_k = kms_keys.c
_v = kms_key_versions.c
_accounts = sa.table("accounts", sa.column("id"))
"""The accounts table, which belongs to identity."""


class KeyVersion(NamedTuple):
    """A version of a key: its wrapped material, current from one rotation to the next."""

    key_id: str
    version: int
    key_name: str
    account_id: str
    provider: str
    wrapped_material: bytes
    created_at: int


_OF_ACCOUNT: Final = given(_k.account_id)
_IS_VERSIONS: Final = given(_v.key_id, _v.account_id)

_COUNT_EACH: Final = Statement(
    sa.select(_k.account_id, sa.func.count())
    .where(sa.text("origin = 'customer' AND state IN ('enabled', 'disabled')"))
    .group_by(_k.account_id)
)
_HOLD: Final = Statement(
    sa.select(_k.state).where(given(_k.id, _k.account_id)).with_for_update(read=True)
)
_FIND_PLATFORM: Final = Statement(KEY_ROWS.columns.where(_OF_ACCOUNT, IS_PLATFORM))
_FORGET: Final = Statement(
    kms_keys.update()
    .where(_k.id == sa.bindparam("key_id"), _OF_ACCOUNT)
    .values(name=sa.text("NULL"), state=sa.text("'deleted'"), updated_at=sa.bindparam("now"))
)
_ADD_VERSION: Final = Statement(insert(kms_key_versions).values(bound(KeyVersion._fields)))
_FIND_VERSION: Final = Statement(
    columns_of(kms_key_versions, KeyVersion._fields).where(_IS_VERSIONS, given(_v.version))
)
_LIST_VERSIONS: Final = paged(
    sa.select(_v.version, _v.created_at)
    .where(_IS_VERSIONS, _v.version > sa.bindparam("after"))
    .order_by(_v.version)
)
_COUNT_VERSIONS: Final = Statement(
    sa.select(sa.func.count()).select_from(kms_key_versions).where(_IS_VERSIONS)
)
_ERASE: Final = Statement(kms_key_versions.delete().where(_IS_VERSIONS))
_LIST_DUE: Final = paged(
    sa.select(_k.account_id, _k.id)
    .where(IS_PENDING, _k.deletion_at <= sa.bindparam("now"))
    .order_by(_k.deletion_at)
)
_LIST_WITHOUT_PLATFORM: Final = paged(
    sa.select(_accounts.c.id)
    .where(
        ~sa.exists(
            sa.select(ONE)
            .select_from(kms_keys)
            .where(_k.account_id == _accounts.c.id, sa.text("kms_keys.origin = 'platform'"))
        )
    )
    .order_by(_accounts.c.id)
)


keys_by_account: Final = measure_of(_COUNT_EACH)
"""Maps account id to its number of customer keys that are enabled or disabled."""


def lock_key_shared(tx: Connection, account_id: str, key_id: str) -> KeyState | None:
    """Lock an account's key and return its state, or None if there is no such key.

    The state does not change until `tx` ends. The lock is shared: other transactions may have it.
    """
    row = tx.row(_HOLD, account_id=account_id, id=key_id)
    return None if row is None else cast("KeyState", row[0])


def find_platform_key(tx: Connection, account_id: str) -> Key | None:
    """Return the platform key of an account, or None if it has none yet."""
    return KEY_ROWS.read_one(tx, _FIND_PLATFORM, account_id=account_id)


def forget_key(tx: Connection, account_id: str, key_id: str, now: int) -> None:
    """Mark a key without versions as deleted: clear its name, but keep its record."""
    tx.execute(_FORGET, account_id=account_id, key_id=key_id, now=now)


def add_version(tx: Connection, version: KeyVersion) -> None:
    """Insert a version of a key."""
    tx.execute(_ADD_VERSION, **version._asdict())


def find_version(tx: Connection, account_id: str, key_id: str, version: int) -> KeyVersion | None:
    """Return a version of an account's key, or None if there is none with this number."""
    of = {"account_id": account_id, "key_id": key_id, "version": version}
    return find_one(tx, KeyVersion, _FIND_VERSION, **of)


def list_versions(
    tx: Connection, account_id: str, key_id: str, after: str, limit: int
) -> list[tuple[int, int]]:
    """Return (number, creation time in microseconds) of the versions of a key, oldest first.

    `after` is the decimal number of the version to start after, or empty.
    """
    number = int(after or "0")
    rows = tx.rows(_LIST_VERSIONS, account_id=account_id, key_id=key_id, after=number, limit=limit)
    return [(row[0], row[1]) for row in rows]


def count_versions(tx: Connection, account_id: str, key_id: str) -> int:
    """Count the versions of a key."""
    return count(tx, _COUNT_VERSIONS, account_id=account_id, key_id=key_id)


def erase_versions(tx: Connection, account_id: str, key_id: str) -> None:
    """Delete the material of a key: all its versions."""
    tx.execute(_ERASE, account_id=account_id, key_id=key_id)


def list_due(tx: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return (account id, key id) of keys whose deletion is due, earliest first."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_DUE, now=now, limit=limit)]


def list_accounts_without_platform_key(tx: Connection, limit: int) -> list[str]:
    """Return the ids of accounts that have no platform key."""
    return [row[0] for row in tx.rows(_LIST_WITHOUT_PLATFORM, limit=limit)]


def bindable_key(tx: Connection, scope: Scope, value: str, authorize: Authorize) -> Key:
    """Return the key that `value` refers to, for a resource to be encrypted under it.

    `authorize` raises unless the caller may use the key (``kms:UseKey``). See `resolve` and
    `check_bindable` for the other errors.
    """
    key = resolve(tx, scope, KEY_KIND, "kms_key", value, authorize)
    check_bindable(key)
    return key


def key_to_use(tx: Connection, account_id: str, key_id: str) -> Key:
    """Return a key of an account, for encrypting or decrypting.

    Raises:
        KeyMissing: it does not exist, or was deleted.
        KeyUnusable: it is disabled, or its deletion is pending.
        InvalidInput: it is not a symmetric key for encryption.

    """
    key = KEY_ROWS.find(tx, account_id, key_id)
    if key is None:
        raise KeyMissing
    check_usable(key)
    return key


def _find_live(tx: Connection, scope: Scope, key_id: str) -> Key | None:
    found: Key | None = KEY_ROWS.kind.find(tx, scope, key_id)
    return None if found is None or found.state == "deleted" else found


KEY_KIND: Final[Kind[Key]] = KEY_ROWS.kind._replace(find=_find_live)
"""The kind of keys that references can name; it does not find deleted keys."""
