"""Find the key that a request means by its ``kms_key``: an id, a name or a CRN.

A key of another account or region looks like one that does not exist, and a CRN tells only whether
it is this account's and region's.
"""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.kms.key import Key
from cloudcore.kms.rules import KeyMissing, check_bindable, check_usable
from cloudcore.kms.tables import KEY_ROWS
from cloudcore.resource_references import Authorize, Kind, Scope, resolve

_FIELD: Final = "kms_key"


def key_to_bind(tx: Connection, scope: Scope, value: str, authorize: Authorize) -> Key:
    """Return the key that something is to be bound to.

    `authorize` raises unless the caller may use the key (``kms:UseKey``).

    Raises:
        InvalidInput: `value` is no reference to a key of the account and region; or see
            `check_bindable`.
        AccessDenied: by `authorize`.
        KeyMissing: there is no such key.

    """
    key = resolve(tx, scope, KEY_KIND, _FIELD, value, authorize)
    check_bindable(key)
    return key


def key_to_use(tx: Connection, account_id: str, key_id: str) -> Key:
    """Return the key of an account under which something is to be encrypted or decrypted.

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


def _find(tx: Connection, scope: Scope, key_id: str) -> Key | None:
    return _live(scope, KEY_ROWS.find(tx, scope.account_id, key_id))


def _find_named(tx: Connection, scope: Scope, name: str) -> Key | None:
    return _live(scope, KEY_ROWS.find_named(tx, scope.account_id, scope.region, name))


def _live(scope: Scope, found: Key | None) -> Key | None:
    is_live = found is not None and found.state != "deleted" and found.region == scope.region
    return found if is_live else None


KEY_KIND: Final = Kind("kms", "key", _find, _find_named, KeyMissing)
