"""Encrypt short values under the material of a key version: data keys, and plaintext of callers.

    sealed = format (1 byte, 0x01) | version (4 bytes, big endian) | nonce (12 bytes)
             | AES-256-GCM ciphertext with its tag of 16 bytes

    associated data = "<purpose>:<account id>:<key id>:<version>:" in ASCII, then the caller's own

Nonces are random, so a version should encrypt no more than 2^32 values (NIST SP 800-38D, 8.3);
rotate the key before.
"""

from __future__ import annotations

import os
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloudcore.errors import InvalidInput
from cloudcore.kms.providers import VersionRef

Purpose = Literal["wrap", "encrypt"]
"""`wrap`: data keys of other families; `encrypt`: what callers of ``/v1/keys`` encrypt. What was
sealed for one does not open for the other, so no caller can ask for another family's data keys."""

_FORMAT: Final = b"\x01"
_VERSION_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_FORMAT) + _VERSION_BYTES + _NONCE_BYTES
OVERHEAD: Final = _HEAD_BYTES + _TAG_BYTES
"""Bytes that a sealed value is longer than its plaintext."""


class CiphertextInvalid(InvalidInput):
    """The ciphertext was not made under this key for this use, or was changed."""

    def __init__(self) -> None:
        super().__init__(
            "ciphertext: it was not made with this key, or was changed",
            field="ciphertext",
            reason="not_of_this_key",
        )


def seal(cipher: AESGCM, ref: VersionRef, purpose: Purpose, plaintext: bytes, aad: bytes) -> bytes:
    """Encrypt `plaintext` for a purpose, bound to `aad`."""
    nonce = os.urandom(_NONCE_BYTES)
    head = _FORMAT + ref.version.to_bytes(_VERSION_BYTES, "big") + nonce
    return head + cipher.encrypt(nonce, plaintext, _associated(ref, purpose, aad))


def open_sealed(
    cipher: AESGCM, ref: VersionRef, purpose: Purpose, sealed: bytes, aad: bytes
) -> bytes:
    """Return the plaintext of a sealed value.

    Raises:
        CiphertextInvalid: it was not sealed under this version for this purpose and `aad`.

    """
    nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
    try:
        return cipher.decrypt(nonce, sealed[_HEAD_BYTES:], _associated(ref, purpose, aad))
    except InvalidTag:
        raise CiphertextInvalid from None


def version_of(sealed: bytes) -> int:
    """Return the number of the key version that a value was sealed under.

    Raises:
        CiphertextInvalid: it has not the form of a sealed value.

    """
    if len(sealed) < OVERHEAD or not sealed.startswith(_FORMAT):
        raise CiphertextInvalid
    number = int.from_bytes(sealed[len(_FORMAT) : len(_FORMAT) + _VERSION_BYTES], "big")
    if not 0 < number < 2**31:  # as the database's integers
        raise CiphertextInvalid
    return number


def _associated(ref: VersionRef, purpose: Purpose, aad: bytes) -> bytes:
    return f"{purpose}:{ref.account_id}:{ref.key_id}:{ref.version}:".encode() + aad
