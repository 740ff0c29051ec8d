"""Create, change, rotate and delete keys of accounts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from cloudcore.account_rows import lock_account
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict, KeyBeingMade
from cloudcore.key_pairs import SLOW
from cloudcore.kms.key import Key, KeyOrigin, KeySpec, KeyUsage
from cloudcore.kms.providers import Providers, VersionRef
from cloudcore.kms.rows import (
    KEY_ROWS,
    KeyVersion,
    add_version,
    erase_versions,
    forget_key,
    list_accounts_without_platform_key,
)
from cloudcore.kms.rules import KeyUnusable, check_encrypts, new_material
from cloudcore.quotas.limits import QuotaUse
from cloudcore.threads import SLOW_KEYS

PLATFORM_NAME: Final = "platform"
"""Name of the platform key of each account."""
MAX_VERSIONS: Final = 1000
"""Maximum number of versions of a key."""
_DAY: Final = 24 * 3600 * MICROSECONDS
_BATCH: Final = 100
_SLOW_SECONDS: Final = 5
"""Seconds after which a client may retry while another slow key is being made."""


class RotatedMeanwhile(Conflict):
    """Another request has rotated the key meanwhile, so the new version's number is taken."""

    def __init__(self) -> None:
        super().__init__("other requests rotate the key; see its versions before another try")


def check_can_create(tx: Connection, account_id: str, region: str, name: str) -> QuotaUse:
    """Check that an account can create a key with a name; return the use of its quota of keys.

    Raise `Conflict` if the account has an undeleted key with this name, `QuotaExceeded` if the
    account has reached its maximum number of keys.
    """
    use = KEY_ROWS.check_room(tx, account_id, region)
    if KEY_ROWS.find_named(tx, account_id, region, name):
        raise Conflict("there is a key of this name", name=name)
    return use


def create_key(tx: Connection, key: Key, version: KeyVersion) -> Key:
    """Insert a customer's key with its first version; see `check_can_create`."""
    assert key.name is not None
    lock_account(tx, key.account_id)
    use = check_can_create(tx, key.account_id, key.region, key.name)
    KEY_ROWS.add(tx, key)
    add_version(tx, version)
    KEY_ROWS.counted.emit_level(tx, key.account_id, use, key.created_at)
    return key


def add_platform_key(tx: Connection, key: Key, version: KeyVersion) -> None:
    """Insert the platform key of an account, unless it already has one."""
    try:
        KEY_ROWS.add(tx, key)
    except Conflict:
        return
    add_version(tx, version)


def check_change(new: Key, _old: Key | None, _now: int) -> Key:
    """Return `new`; raise `Conflict` if the key is deleted."""
    if new.state == "deleted":
        raise _gone(new)
    return new


def enable_key(tx: Connection, key: Key, now: int) -> Key:
    """Enable a key and return it; do nothing if it is enabled.

    Raise `Conflict` if its deletion is pending, or it was deleted.
    """
    found = KEY_ROWS.lock(tx, key.account_id, key.id)
    if found.state == "enabled":
        return found
    if found.state != "disabled":
        raise _gone(found)
    return _saved(tx, found, now, state="enabled")


def disable_key(tx: Connection, key: Key, now: int) -> Key:
    """Disable a key and return it; do nothing if it is disabled.

    Raise `Conflict` if its deletion is pending, it was deleted, or it is the platform key.
    """
    found = KEY_ROWS.lock(tx, key.account_id, key.id)
    if found.state == "disabled":
        return found
    if found.state != "enabled":
        raise _gone(found)
    _check_customers(found, "disabled")
    return _saved(tx, found, now, state="disabled")


def schedule_deletion(tx: Connection, key: Key, days: int, now: int) -> Key:
    """Schedule the deletion of a key in `days`; until then it cannot be used, but can be restored.

    Raise `Conflict` if its deletion is already pending, it was deleted, or it is the platform key.
    """
    found = KEY_ROWS.lock(tx, key.account_id, key.id)
    if found.state in ("pending_deletion", "deleted"):
        raise _gone(found)
    _check_customers(found, "deleted")
    deletion_at = now + days * _DAY
    return _saved(tx, found, now, state="pending_deletion", deletion_at=deletion_at)


def cancel_deletion(tx: Connection, key: Key, now: int) -> Key:
    """Cancel the deletion of a key; the key is then disabled.

    Raise `Conflict` if no deletion is pending, or its time has come.
    """
    found = KEY_ROWS.lock(tx, key.account_id, key.id)
    if found.state == "deleted":
        raise _gone(found)
    if found.deletion_at is None:
        raise Conflict(f"no deletion of the key is pending; it is {found.state}", state=found.state)
    if found.deletion_at <= now:
        raise Conflict("the key is being deleted: its time is over", state=found.state)
    return _saved(tx, found, now, state="disabled", deletion_at=None)


def rotate_key(tx: Connection, version: KeyVersion, now: int) -> Key:
    """Insert a new version of a key, which encrypts from now on; return the key.

    Raises:
        KeyUnusable: the key is disabled, or its deletion is pending.
        KeyMissing: there is no such key.
        InvalidInput: the key is not for symmetric encryption.
        Conflict: the key was deleted, or has `MAX_VERSIONS`.
        RotatedMeanwhile: the version's number is not the next one.

    """
    found = KEY_ROWS.lock(tx, version.account_id, version.key_id)
    check_rotatable(found)
    if version.version != found.current_version + 1:
        raise RotatedMeanwhile
    add_version(tx, version)
    return _saved(tx, found, now, current_version=version.version)


def check_rotatable(key: Key) -> None:
    """Check that a key can be rotated.

    Raise `KeyUnusable` if it is not enabled, `InvalidInput` if it is not for symmetric encryption,
    `Conflict` if it was deleted, or has `MAX_VERSIONS`.
    """
    if key.state == "deleted":
        raise _gone(key)
    if key.state != "enabled":
        raise KeyUnusable(key)
    check_encrypts(key)
    if key.current_version >= MAX_VERSIONS:
        raise Conflict(
            f"a key has at most {MAX_VERSIONS} versions; create another key",
            reason="too_many_versions",
            limit=MAX_VERSIONS,
        )


def _saved(tx: Connection, key: Key, now: int, **changes: object) -> Key:
    return KEY_ROWS.save(tx, replace(key, **changes, updated_at=now))


def _gone(key: Key) -> Conflict:
    if key.state == "deleted":
        return Conflict("the key was deleted; create another", state=key.state)
    return Conflict(
        "the key's deletion is pending; cancel it first (POST …/cancel-deletion)", state=key.state
    )


def _check_customers(key: Key, what: str) -> None:
    if key.origin == "platform":
        raise Conflict(
            f"the platform key cannot be {what}: it holds whatever has no key of its own",
            origin=key.origin,
        )


@dataclass(eq=False, slots=True)
class KeyMaker:
    """Generates the material of keys in one region."""

    providers: Providers
    region: str
    new_id: Callable[[], str]
    _accounts: set[str] = field(default_factory=set)
    """Ids of the accounts for which a slow key is being made, or waits for its turn."""

    async def new_key(
        self,
        account_id: str,
        name: str,
        now: int,
        *,
        spec: KeySpec = "aes-256",
        usage: KeyUsage = "encrypt_decrypt",
        origin: KeyOrigin = "customer",
        description: str = "",
        tags: dict[str, str] | None = None,
    ) -> tuple[Key, KeyVersion]:
        """Return a new key and its first version, for a transaction to insert.

        Raise `KeyBeingMade` if another RSA key of the account is being made, `Unavailable` if the
        provider of material cannot be reached.
        """
        key = Key(
            id=self.new_id(),
            account_id=account_id,
            region=self.region,
            name=name,
            description=description,
            tags=tags or {},
            key_spec=spec,
            key_usage=usage,
            state="enabled",
            origin=origin,
            current_version=1,
            deletion_at=None,
            created_at=now,
            updated_at=now,
        )
        return key, await self.new_version(key, 1, now)

    async def new_version(self, key: Key, number: int, now: int) -> KeyVersion:
        """Return a version of a key with new material, for a transaction to insert.

        Raise `Unavailable` if the provider of material cannot be reached.
        """
        assert key.name is not None
        material = await self._material(key.account_id, key.key_spec)
        ref = VersionRef(key.account_id, key.id, number)
        provider = self.providers.current
        wrapped = await provider.wrap(material, ref)
        return KeyVersion(
            key.id, number, key.name, key.account_id, provider.name, wrapped, created_at=now
        )

    async def prepare_platform_key(self, account_id: str, now: int) -> Callable[[Connection], None]:
        """Make a platform key; return a function that inserts it unless the account has one."""
        key, version = await self.new_key(
            account_id,
            PLATFORM_NAME,
            now,
            origin="platform",
            description="Made with the account; used where no other key is set.",
        )
        return lambda tx: add_platform_key(tx, key, version)

    async def add_missing_platform_keys(self, database: Database, now: int) -> None:
        """Insert missing platform keys of accounts, such as the one of ``entrepot dev``."""
        before: list[str] = []
        while found := await database.read(list_accounts_without_platform_key, _BATCH):
            assert found != before, "a platform key could not be inserted"
            for account_id in found:
                await database.write(await self.prepare_platform_key(account_id, now))
            before = found

    async def _material(self, account_id: str, spec: KeySpec) -> bytes:
        if spec not in SLOW:
            return new_material(spec)
        if account_id in self._accounts:
            raise KeyBeingMade(
                "another RSA key of the account is being made; they are made one at a time",
                retry_after=_SLOW_SECONDS,
            )
        self._accounts.add(account_id)
        try:
            return await SLOW_KEYS.run(account_id, new_material, spec)
        finally:
            self._accounts.discard(account_id)


def delete_due_key(tx: Connection, account_id: str, key_id: str, now: int) -> Key | None:
    """Erase the material and the name of a key whose deletion is due.

    Return the key as it was before, or None if its deletion was cancelled meanwhile.
    """
    found = KEY_ROWS.lock(tx, account_id, key_id)
    if found.state != "pending_deletion" or (found.deletion_at or now) > now:
        return None
    erase_versions(tx, account_id, key_id)
    forget_key(tx, account_id, key_id, now)
    return found
