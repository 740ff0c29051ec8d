"""Keys of an account: changes with their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudcore.account_rows import lock_account
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, QuotaExceeded
from cloudcore.kms import rows
from cloudcore.kms.rows import Key, KeyVersion
from cloudcore.kms.rules import KeyMissing, KeyUnusable, check_encrypts

PLATFORM_NAME: Final = "platform"
"""Name of the platform key of each account."""
MAX_KEYS: Final = 1000
"""Maximum number of undeleted keys of an account."""
MAX_VERSIONS: Final = 1000
"""Maximum number of versions of a key."""
_DAY: Final = 24 * 3600 * MICROSECONDS


class RotatedMeanwhile(Conflict):
    """Another request has rotated the key; the new version was made for a number now taken."""

    def __init__(self) -> None:
        super().__init__("other requests rotate the key; see its versions before another try")


def check_can_create(tx: Connection, account_id: str, region: str, name: str) -> None:
    """Refuse a customer's key for which there is no room or no name.

    Raises:
        Conflict: the account has an undeleted key of this name.
        QuotaExceeded: the account has `MAX_KEYS`.

    """
    used = rows.count_keys(
        tx, account_id, region, rows.text_of("enabled", "disabled", "pending_deletion")
    )
    if used >= MAX_KEYS:
        raise QuotaExceeded(
            f"an account has at most {MAX_KEYS} keys; delete some that nothing uses",
            quota="keys",
            limit=MAX_KEYS,
            used=used,
        )
    # The platform key of an older install is added at the next start; its name stays free for it.
    if name == PLATFORM_NAME or rows.find_key_named(tx, account_id, region, name):
        raise _taken(name)


def create_key(tx: Connection, key: Key, version: KeyVersion) -> Key:
    """Insert a customer's key with its first version; see `check_can_create`."""
    assert key.name is not None
    lock_account(tx, key.account_id)
    check_can_create(tx, key.account_id, key.region, key.name)
    if not rows.add_key(tx, key):
        raise _taken(key.name)
    rows.add_version(tx, version)
    return key


def add_platform_key(tx: Connection, key: Key, version: KeyVersion) -> None:
    """Insert the platform key of an account, unless it has one."""
    if rows.add_key(tx, key):
        rows.add_version(tx, version)


def get_key(tx: Connection, account_id: str, region: str, key_id: str) -> Key:
    """Return a key of an account, also a deleted one, or raise `KeyMissing`."""
    return _of_region(rows.find_key(tx, account_id, key_id), region)


def update_key(tx: Connection, key: Key, changes: Mapping[str, Any], now: int) -> Key:
    """Change the description or the tags of a key."""
    found = _locked(tx, key)
    if found.state == "deleted":
        raise _gone(found)
    return _saved(tx, found._replace(**changes), now) if changes else found


def enable_key(tx: Connection, key: Key, now: int) -> Key:
    """Enable a key; an enabled one stays as it is.

    Raises:
        Conflict: its deletion is pending, or it was deleted.

    """
    found = _locked(tx, key)
    if found.state == "enabled":
        return found
    if found.state != "disabled":
        raise _gone(found)
    return _saved(tx, found._replace(state="enabled"), now)


def disable_key(tx: Connection, key: Key, now: int) -> Key:
    """Disable a key; a disabled one stays as it is.

    Raises:
        Conflict: its deletion is pending, it was deleted, or it is the platform key.

    """
    found = _locked(tx, key)
    if found.state == "disabled":
        return found
    if found.state != "enabled":
        raise _gone(found)
    _check_customers(found, "disabled")
    return _saved(tx, found._replace(state="disabled"), now)


def schedule_deletion(tx: Connection, key: Key, days: int, now: int) -> Key:
    """Let a key be deleted in some days; until then it cannot be used, but be taken back.

    Raises:
        Conflict: its deletion is pending already, it was deleted, or it is the platform key.

    """
    found = _locked(tx, key)
    if found.state in ("pending_deletion", "deleted"):
        raise _gone(found)
    _check_customers(found, "deleted")
    deletion_at = now + days * _DAY
    return _saved(tx, found._replace(state="pending_deletion", deletion_at=deletion_at), now)


def cancel_deletion(tx: Connection, key: Key, now: int) -> Key:
    """Take back the deletion of a key, which is disabled then.

    Raises:
        Conflict: no deletion is pending, or its time has come.

    """
    found = _locked(tx, key)
    if found.state == "deleted":
        raise _gone(found)
    if found.deletion_at is None:
        raise Conflict(f"no deletion of the key is pending; it is {found.state}", state=found.state)
    if found.deletion_at <= now:
        raise Conflict("the key is being deleted: its time is over", state=found.state)
    return _saved(tx, found._replace(state="disabled", deletion_at=None), now)


def rotate_key(tx: Connection, version: KeyVersion, now: int) -> Key:
    """Give a key a new version, under which everything is encrypted from now on.

    Raises:
        KeyUnusable: it is disabled, or its deletion is pending.
        KeyMissing: it was deleted.
        InvalidInput: it is not a symmetric key for encryption.
        Conflict: it has `MAX_VERSIONS`.
        RotatedMeanwhile: the version is not the one that follows.

    """
    found = rows.lock_key(tx, version.account_id, version.key_id)
    if found is None:
        raise KeyMissing
    check_rotatable(found)
    if version.version != found.current_version + 1:
        raise RotatedMeanwhile
    rows.add_version(tx, version)
    return _saved(tx, found._replace(current_version=version.version), now)


def check_rotatable(key: Key) -> None:
    """Refuse to rotate a key that is not enabled, not for symmetric encryption, or too often."""
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


def delete_due_key(tx: Connection, account_id: str, key_id: str, now: int) -> Key | None:
    """Erase the material and the name of a key whose time has come.

    Return the key as it was, or None if its deletion was taken back meanwhile.
    """
    found = rows.lock_key(tx, account_id, key_id)
    if found is None or found.state != "pending_deletion" or (found.deletion_at or now) > now:
        return None
    rows.erase_versions(tx, account_id, key_id)
    _saved(tx, found._replace(state="deleted", name=None), now)
    return found


def _of_region(found: Key | None, region: str) -> Key:
    if found is None or found.region != region:
        raise KeyMissing
    return found


def _locked(tx: Connection, key: Key) -> Key:
    found = rows.lock_key(tx, key.account_id, key.id)
    if found is None:
        raise KeyMissing
    return found


def _saved(tx: Connection, key: Key, now: int) -> Key:
    changed = key._replace(updated_at=now)
    rows.save_key(tx, changed)
    return changed


def _taken(name: str) -> Conflict:
    return Conflict("there is a key of this name", name=name)


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
