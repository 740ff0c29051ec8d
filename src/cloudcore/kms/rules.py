"""In which state a key can be used, and for what."""

from __future__ import annotations

from typing import Final

from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.kms.key import Key
from cloudcore.kms.specs import SYMMETRIC

_STATES: Final = {"disabled": "key_disabled", "pending_deletion": "key_pending_deletion"}
"""Why a key in this state cannot be used, as the ``reason`` of the refusal."""


class KeyMissing(NotFound):
    """The key does not exist, is another account's, or was deleted."""

    def __init__(self) -> None:
        super().__init__("there is no such key", reason="key_not_found")


class KeyUnusable(Conflict):
    """The key is disabled, or its deletion is pending."""

    def __init__(self, key: Key) -> None:
        first = "enable it" if key.state == "disabled" else "cancel that and enable it"
        super().__init__(f"the key is {_in_words(key)}; {first} first", reason=_STATES[key.state])


def check_bindable(key: Key) -> None:
    """Refuse to bind anything to a key that is not enabled, or cannot encrypt data keys.

    Raises:
        InvalidInput: ``reason`` is ``key_disabled``, ``key_pending_deletion``,
            ``key_not_symmetric`` or ``key_not_for_encryption``.

    """
    if key.state in _STATES:
        raise InvalidInput(
            f"kms_key: the key is {_in_words(key)}; name one that is enabled",
            field="kms_key",
            reason=_STATES[key.state],
        )
    _check_encrypts(key, field="kms_key")


def check_usable(key: Key) -> None:
    """Refuse to encrypt or decrypt with a key that is not enabled, or not made for it.

    Raises:
        KeyMissing: it was deleted.
        KeyUnusable: it is disabled, or its deletion is pending.
        InvalidInput: ``reason`` is ``key_not_symmetric`` or ``key_not_for_encryption``.

    """
    if key.state == "deleted":
        raise KeyMissing
    if key.state in _STATES:
        raise KeyUnusable(key)
    _check_encrypts(key, field="key_id")


def check_encrypts(key: Key) -> None:
    """Refuse a key that is not for symmetric encryption (`InvalidInput`)."""
    _check_encrypts(key, field="key_id")


def _check_encrypts(key: Key, field: str) -> None:
    if key.key_spec not in SYMMETRIC:
        raise InvalidInput(
            f"{field}: this needs a symmetric key (aes-256); the key is {key.key_spec}",
            field=field,
            reason="key_not_symmetric",
        )
    if key.key_usage != "encrypt_decrypt":
        raise InvalidInput(
            f"{field}: this needs a key for encryption (aes-256); the key is for {key.key_usage}",
            field=field,
            reason="key_not_for_encryption",
        )


def _in_words(key: Key) -> str:
    return "disabled" if key.state == "disabled" else "pending deletion"
