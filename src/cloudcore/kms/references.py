"""Find the key that a request means by its ``kms_key``: an id, a name or a CRN.

A key of another account or region looks like one that does not exist, and a CRN tells only whether
it is this account's and region's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.kms.rows import Key, find_key, find_key_named, key_crn
from cloudcore.kms.rules import KeyMissing, check_bindable, check_usable
from cloudcore.resource_names import is_name
from cloudcore.uuids import parse_uuid
from cloudcore.web.references import KeyReference

_FIELD = "kms_key"


class KeyScope(NamedTuple):
    """The account and region in which keys are looked for."""

    account_id: str
    handle: str
    """Of the account; a CRN may name it so."""
    region: str


class _Identified(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def crn(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...


def reference_to(key: _Identified) -> KeyReference:
    """Return the reference to a key for a response; nameless if the key was deleted."""
    return KeyReference(id=key.id, crn=key.crn, name=key.name)


def resolve_key(tx: Connection, scope: KeyScope, value: object) -> Key:
    """Return the undeleted key that `value` means, in whatever state.

    Raises:
        InvalidInput: it is no id, name or CRN of a key, or the CRN is of another service, region or
            account.
        KeyMissing: there is no such key.

    """
    if not isinstance(value, str):
        is_missing = value is None
        raise _malformed(
            "is required" if is_missing else "is a text", "missing" if is_missing else "wrong_type"
        )
    if value.startswith("crn:"):
        found = find_key_named(tx, scope.account_id, scope.region, _name_in(scope, value))
    elif (key_id := parse_uuid(value)) is not None:
        found = find_key(tx, scope.account_id, key_id)
    elif is_name(value):
        found = find_key_named(tx, scope.account_id, scope.region, value)
    else:
        raise _malformed("is the id, the name or the CRN of a key", "malformed")
    if found is None or found.state == "deleted" or found.region != scope.region:
        raise KeyMissing
    return found


def key_to_bind(
    tx: Connection, scope: KeyScope, value: object, authorize: Callable[[str], None]
) -> Key:
    """Return the key that something is to be bound to.

    `authorize` gets its CRN and raises unless the caller may use the key (``kms:UseKey``).

    Raises:
        InvalidInput: see `resolve_key` and `check_bindable`.
        KeyMissing: there is no such key.
        AccessDenied: by `authorize`.

    """
    key = resolve_key(tx, scope, value)
    assert key.name is not None
    authorize(key_crn(key.region, key.account_id, key.name))
    check_bindable(key)
    return key


def key_to_use(tx: Connection, account_id: str, key_id: str) -> Key:
    """Return the key of an account under which something is to be encrypted or decrypted.

    Raises:
        KeyMissing: it does not exist, or was deleted.
        KeyUnusable: it is disabled, or its deletion is pending.
        InvalidInput: it is not a symmetric key for encryption.

    """
    key = find_key(tx, account_id, key_id)
    if key is None:
        raise KeyMissing
    check_usable(key)
    return key


def _name_in(scope: KeyScope, text: str) -> str:
    """Return the name in the CRN of a key, which must be of this scope."""
    try:
        crn = Crn.parse(text)
    except InvalidInput:
        raise _malformed_crn() from None
    if crn.type != "key" or not is_name(crn.name):
        raise _malformed_crn()
    if crn.service != "kms":
        raise _malformed("is the CRN of another service; keys are of kms", "wrong_service")
    if crn.region != scope.region:
        raise _malformed(f"must be of this region, {scope.region}", "foreign_region")
    if crn.account not in (scope.account_id, scope.handle):
        raise _malformed("must be a key of your account", "foreign_account")
    return crn.name


def _malformed_crn() -> InvalidInput:
    return _malformed("the CRN of a key is crn:kms:<region>:<account>:key/<name>", "malformed_crn")


def _malformed(words: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{_FIELD}: {words}", field=_FIELD, reason=reason)
