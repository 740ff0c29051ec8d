"""What a key may be called and labelled, and in which state it can be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.kms.rows import Key
from cloudcore.kms.specs import SYMMETRIC
from cloudcore.uuids import parse_uuid

MAX_TAGS: Final = 50
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STATES: Final = {"disabled": "key_disabled", "pending_deletion": "key_pending_deletion"}
"""Why a key in this state cannot be used, as the ``reason`` of the refusal."""


class KeyMissing(NotFound):
    """The key does not exist, is another account's, or was deleted."""

    def __init__(self) -> None:
        super().__init__("there is no such key", reason="key_not_found")


class KeyUnusable(Conflict):
    """The key is disabled, or its deletion is pending."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"the key is {_in_words(key)}", reason=_STATES[key.state])


def is_key_name(name: str) -> bool:
    """Return True if a key can have this name; it never looks like an id."""
    return _NAME.fullmatch(name) is not None and parse_uuid(name) is None


def check_name(name: str) -> None:
    """Refuse a malformed name."""
    if not is_key_name(name):
        raise InvalidInput(
            "name: 1 to 63 of a-z 0-9 . _ -, begins with a letter or digit and is no UUID",
            field="name",
            reason="malformed",
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse too many tags, tags that are too long, or tags with control characters."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"tags: at most {MAX_TAGS}", field="tags", reason="out_of_range")
    for name, value in tags.items():
        if not 1 <= len(name) <= 128 or len(value) > 256 or _CONTROL.search(name + value):
            raise InvalidInput(
                "tags: a key of 1 to 128 characters and a value of at most 256, none of them a "
                f"control character: {name[:128]!a}",
                field="tags",
                reason="malformed",
            )


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
