"""Seal secrets that must be read back, but must not be stored in plain text, under the root key.

A sealed value is ``<version: 1 byte><nonce: 12 bytes><AES-256-GCM ciphertext>``. Its *context*
(kind and owner of the value) is authenticated too, so a value moved to another row does not open.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloudcore.files import flush_folder

KEY_BYTES: Final = 32
_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12


class KeyringError(Exception):
    """The root key is missing, malformed or readable by others, or did not seal a value."""


class Keyring:
    """Seals and opens values under the root key of this install."""

    def __init__(self, root_key: bytes) -> None:
        if len(root_key) != KEY_BYTES:
            raise KeyringError(f"the root key must have {KEY_BYTES} bytes")
        self._cipher = AESGCM(root_key)
        self._derivation_key = hmac.digest(root_key, b"entrepot derivation 1", "sha256")

    def seal(self, plaintext: bytes, context: str) -> bytes:
        """Return `plaintext` sealed for `context`."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plaintext, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the plaintext of a value that was sealed for `context`.

        Raise `KeyringError` if the value was sealed with another key or for another context, or was
        changed.
        """
        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE_BYTES:
            raise KeyringError("the value was sealed in a format that this version does not know")
        nonce = sealed[1 : 1 + _NONCE_BYTES]
        try:
            return self._cipher.decrypt(nonce, sealed[1 + _NONCE_BYTES :], context.encode())
        except InvalidTag:
            raise KeyringError("the value was not sealed by this key for this use") from None

    def derive(self, context: str) -> bytes:
        """Derive 32 bytes from the root key and `context` (HMAC-SHA-256)."""
        return hmac.digest(self._derivation_key, context.encode(), "sha256")


def create_root_key(path: Path) -> None:
    """Write a new root key, atomically and readable only by its owner.

    Raise `FileExistsError` if a key exists (replacing it would lose all values sealed with it),
    `OSError` if it cannot be written; the error names `path`.
    """
    descriptor, unnamed = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 0600
    try:
        try:
            os.write(descriptor, os.urandom(KEY_BYTES))
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)
        os.link(unnamed, path)
    finally:
        Path(unnamed).unlink()
    flush_folder(path.parent)


def load_keyring(path: Path) -> Keyring:
    """Load the root key from `path`.

    Raise `KeyringError` if the file cannot be read, is malformed, or users other than its owner can
    read it.
    """
    try:
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise KeyringError(f"cannot read the root key {path}: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        raise KeyringError(f"the root key {path} has {len(key)} bytes, not {KEY_BYTES}")
    if stat.S_IMODE(mode) & 0o077:
        raise KeyringError(f"others can read the root key {path}: chmod 600 it")
    return Keyring(key)
