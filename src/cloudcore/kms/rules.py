"""The specs of keys, their usages, and the states in which keys can be used."""

from __future__ import annotations

import os
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cloudcore.errors import Conflict, NotFound, invalid_field
from cloudcore.key_pairs import new_private_key
from cloudcore.kms.key import Key, KeySpec, KeyUsage

_STATES: Final = {"disabled": "key_disabled", "pending_deletion": "key_pending_deletion"}
"""Maps each state in which keys cannot be used to the ``reason`` of the error."""


class KeyMissing(NotFound):
    """The key does not exist, belongs to another account, or was deleted."""

    def __init__(self) -> None:
        super().__init__("there is no such key", reason="key_not_found")


class KeyUnusable(Conflict):
    """The key is disabled, or its deletion is pending."""

    def __init__(self, key: Key) -> None:
        first = "enable it" if key.state == "disabled" else "cancel that and enable it"
        super().__init__(f"the key is {_in_words(key)}; {first} first", reason=_STATES[key.state])


def check_bindable(key: Key) -> None:
    """Check that a resource can be encrypted under a key.

    Raise `InvalidInput` if the key is not enabled, or cannot encrypt data keys; the ``reason`` is
    ``key_disabled``, ``key_pending_deletion``, ``key_not_symmetric`` or ``key_not_for_encryption``.
    """
    if key.state in _STATES:
        raise invalid_field(
            "kms_key", f"the key is {_in_words(key)}; name one that is enabled", _STATES[key.state]
        )
    check_encrypts(key, "kms_key")


def check_usable(key: Key) -> None:
    """Check that a key can encrypt and decrypt now.

    Raises:
        KeyMissing: it was deleted.
        KeyUnusable: it is disabled, or its deletion is pending.
        InvalidInput: it was made for another use; ``reason`` is ``key_not_symmetric`` or
            ``key_not_for_encryption``.

    """
    if key.state == "deleted":
        raise KeyMissing
    if key.state in _STATES:
        raise KeyUnusable(key)
    check_encrypts(key)


def check_encrypts(key: Key, field: str = "key_id") -> None:
    """Raise `InvalidInput` for `field` if a key is not for symmetric encryption."""
    if key.key_spec not in SYMMETRIC:
        raise invalid_field(
            field,
            f"this needs a symmetric key (aes-256); the key is {key.key_spec}",
            "key_not_symmetric",
        )
    if key.key_usage != "encrypt_decrypt":
        raise invalid_field(
            field,
            f"this needs a key for encryption (aes-256); the key is for {key.key_usage}",
            "key_not_for_encryption",
        )


def _in_words(key: Key) -> str:
    return "disabled" if key.state == "disabled" else "pending deletion"


USAGES: Final[dict[KeySpec, tuple[KeyUsage, ...]]] = {
    "aes-256": ("encrypt_decrypt",),
    "hmac-256": ("generate_verify_mac",),
    "rsa-2048": ("encrypt_decrypt", "sign_verify"),
    "rsa-4096": ("encrypt_decrypt", "sign_verify"),
    "ecdsa-p256": ("sign_verify",),
}
"""The usages that keys of each spec can have; the first is the default."""
SYMMETRIC: Final = frozenset({"aes-256", "hmac-256"})

_SYMMETRIC_BYTES: Final = 32


def usage_of(spec: KeySpec, wanted: KeyUsage | None) -> KeyUsage:
    """Return the usage of a new key: `wanted`, or the spec's default if None.

    Raise `InvalidInput` if keys of this spec cannot have the wanted usage.
    """
    usages = USAGES[spec]
    if wanted is not None and wanted not in usages:
        raise invalid_field(
            "key_usage",
            f"a key of the spec {spec} is for {' or '.join(usages)}, not {wanted}",
            "not_allowed",
        )
    return wanted or usages[0]


def new_material(spec: KeySpec) -> bytes:
    """Generate the material of a key: 32 random bytes, or a private key in PKCS #8 (DER).

    It takes up to several seconds of processor time for the specs in `key_pairs.SLOW`.
    """
    if spec in SYMMETRIC:
        return os.urandom(_SYMMETRIC_BYTES)
    private = new_private_key(spec)
    return private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
