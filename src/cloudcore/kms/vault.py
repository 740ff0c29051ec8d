"""Encrypt under keys without revealing their material: the port for other families.

Every call reads the state of the key, so once a key is disabled or deleted, the next call in any
process fails. Only unwrapped material is cached, for at most `MAX_AGE_SECONDS`; so a provider that
revokes its own key stops all use within that time.

    sealed = format (1 byte, 0x01) | version (4 bytes, big endian) | nonce (12 bytes)
             | AES-256-GCM ciphertext with its tag of 16 bytes
    associated data = "<purpose>:<account id>:<key id>:<version>:" in ASCII, then the caller's `aad`

Nonces are random, so a version should encrypt no more than 2^32 values (NIST SP 800-38D, 8.3);
rotate the key before that.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import InvalidInput
from cloudcore.kms.providers import Providers, VersionRef
from cloudcore.kms.rows import KeyVersion, find_platform_key, find_version, key_to_use
from cloudcore.kms.rules import KeyMissing

Purpose = Literal["wrap", "encrypt"]
"""`wrap`: data keys of other families. `encrypt`: plaintexts of callers of ``/v1/keys``. A value
sealed for one purpose does not open for the other, so no caller of ``/v1/keys`` can decrypt another
family's data keys."""

_FORMAT: Final = b"\x01"
_VERSION_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_FORMAT) + _VERSION_BYTES + _NONCE_BYTES
OVERHEAD: Final = _HEAD_BYTES + _TAG_BYTES
"""The number of bytes by which a sealed value is longer than its plaintext."""


class CiphertextInvalid(InvalidInput):
    """The ciphertext was not made with this key for this purpose, or was changed."""

    def __init__(self) -> None:
        super().__init__(
            "ciphertext: it was not made with this key, or was changed",
            field="ciphertext",
            reason="not_of_this_key",
        )


def _seal(cipher: AESGCM, ref: VersionRef, purpose: Purpose, plaintext: bytes, aad: bytes) -> bytes:
    """Return `plaintext` encrypted for a purpose, bound to `aad`, the caller's associated data."""
    nonce = os.urandom(_NONCE_BYTES)
    head = _FORMAT + ref.version.to_bytes(_VERSION_BYTES, "big") + nonce
    return head + cipher.encrypt(nonce, plaintext, _associated(ref, purpose, aad))


def _open_sealed(
    cipher: AESGCM, ref: VersionRef, purpose: Purpose, sealed: bytes, aad: bytes
) -> bytes:
    """Return the plaintext of a sealed value.

    Raise `CiphertextInvalid` if it was not sealed under this version for this purpose and `aad`.
    """
    nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
    try:
        return cipher.decrypt(nonce, sealed[_HEAD_BYTES:], _associated(ref, purpose, aad))
    except InvalidTag:
        raise CiphertextInvalid from None


def _version_of(sealed: bytes) -> int:
    """Return the number of the key version that sealed a value.

    Raise `CiphertextInvalid` if the bytes do not have the form of a sealed value.
    """
    if len(sealed) < OVERHEAD or not sealed.startswith(_FORMAT):
        raise CiphertextInvalid
    number = int.from_bytes(sealed[len(_FORMAT) : len(_FORMAT) + _VERSION_BYTES], "big")
    if not 0 < number < 2**31:  # as the database's integers
        raise CiphertextInvalid
    return number


def _associated(ref: VersionRef, purpose: Purpose, aad: bytes) -> bytes:
    return f"{purpose}:{ref.account_id}:{ref.key_id}:{ref.version}:".encode() + aad


MAX_OPENED: Final = 1000
"""Maximum number of key versions whose unwrapped material a process caches."""
MAX_AGE_SECONDS: Final = 300
"""Maximum age of cached material."""


class Wrapped(NamedTuple):
    """A data key, wrapped under a key."""

    key_id: str
    wrapped: bytes
    aad: bytes
    """The associated data of the wrap; unwrapping needs the same bytes."""


class Sealed(NamedTuple):
    """An encrypted value, and the version that encrypted it."""

    value: bytes
    version: int


class UsableKeys(NamedTuple):
    """Key versions that a transaction found usable, for calls of `Vault` after the transaction."""

    refs: Sequence[VersionRef]
    rows: Mapping[VersionRef, KeyVersion | None]
    """For each version, its row, or None if its material is cached."""


class _Opened(NamedTuple):
    cipher: AESGCM
    opened_at: int


@dataclass(eq=False, slots=True)
class Vault:
    """Wraps and unwraps data keys under the keys of one install."""

    database: Database
    providers: Providers
    clock: Clock
    _opened: OrderedDict[VersionRef, _Opened] = field(default_factory=OrderedDict)
    _opening: dict[VersionRef, asyncio.Task[AESGCM]] = field(default_factory=dict)

    async def wrap(self, account_id: str, key_id: str, data_key: bytes, aad: bytes) -> bytes:
        """Wrap a data key under the current version of a key.

        `aad` is associated data that unwrapping must repeat.

        Raise `KeyMissing`, `KeyUnusable` or `InvalidInput` (see `rows.key_to_use`), `Unavailable`
        if the provider of the key's material cannot be reached.
        """
        return (await self.seal(account_id, key_id, "wrap", data_key, aad)).value

    async def wrap_all(
        self, account_id: str, key_id: str, data_keys: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """Wrap (data key, aad) pairs; the key's row is read once. See `wrap`."""
        usable = await self.database.read(self.find_usable, account_id, key_id)
        return await self.wrap_under(usable, data_keys)

    async def wrap_under(
        self, usable: UsableKeys, data_keys: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """Wrap data keys like `wrap_all`; `usable` is the result of `find_usable`."""
        (ref,) = usable.refs
        cipher = await self._cipher(ref, usable.rows[ref])
        return [_seal(cipher, ref, "wrap", data_key, aad) for data_key, aad in data_keys]

    def wrap_if_open(self, usable: UsableKeys, data_key: bytes, aad: bytes) -> bytes | None:
        """Wrap a data key like `wrap_under`, or return None if the material is not cached."""
        (ref,) = usable.refs
        if usable.rows[ref] is not None:
            return None
        kept = self._opened.get(ref)
        if kept is None:
            return None
        self._opened.move_to_end(ref)
        return _seal(kept.cipher, ref, "wrap", data_key, aad)

    async def unwrap(self, account_id: str, key_id: str, wrapped: bytes, aad: bytes) -> bytes:
        """Return the data key that was wrapped under any version of a key.

        Raise `CiphertextInvalid` if it was not wrapped under this key with this `aad`,
        `KeyMissing`, `KeyUnusable`, `InvalidInput` or `Unavailable` (see `wrap`).
        """
        return (await self.unwrap_all(account_id, [Wrapped(key_id, wrapped, aad)]))[0]

    async def unwrap_all(self, account_id: str, wraps: Sequence[Wrapped]) -> list[bytes]:
        """Unwrap data keys of one account; read all KMS keys in one transaction. See `unwrap`."""
        usable = await self.database.read(self.usable_for, account_id, wraps)
        return await self.unwrap_under(usable, wraps)

    async def unwrap_under(self, usable: UsableKeys, wraps: Sequence[Wrapped]) -> list[bytes]:
        """Unwrap data keys like `unwrap_all`; `usable` is the result of `usable_for`."""
        ciphers = {ref: await self._cipher(ref, row) for ref, row in usable.rows.items()}
        return [
            _open_sealed(ciphers[ref], ref, "wrap", each.wrapped, each.aad)
            for ref, each in zip(usable.refs, wraps, strict=True)
        ]

    async def seal(
        self, account_id: str, key_id: str, purpose: Purpose, plaintext: bytes, aad: bytes = b""
    ) -> Sealed:
        """Encrypt a short value under the current version of a key. See `wrap`."""
        refs, rows = await self.database.read(self.find_usable, account_id, key_id)
        cipher = await self._cipher(refs[0], rows[refs[0]])
        return Sealed(_seal(cipher, refs[0], purpose, plaintext, aad), refs[0].version)

    async def open(
        self, account_id: str, key_id: str, purpose: Purpose, sealed: bytes, aad: bytes = b""
    ) -> Sealed:
        """Return the plaintext of a value that `seal` encrypted, and its version. See `unwrap`."""
        wraps = [Wrapped(key_id, sealed, aad)]
        (ref,), rows = await self.database.read(self.usable_for, account_id, wraps)
        cipher = await self._cipher(ref, rows[ref])
        return Sealed(_open_sealed(cipher, ref, purpose, sealed, aad), ref.version)

    def find_usable(self, tx: Connection, account_id: str, key_id: str) -> UsableKeys:
        """Check that a key is usable; return its current version, for `wrap_under` after `tx`.

        Raise `KeyMissing`, `KeyUnusable` or `InvalidInput` (see `rows.key_to_use`).
        """
        version = key_to_use(tx, account_id, key_id).current_version
        return self.usable_version(tx, VersionRef(account_id, key_id, version))

    def usable_version(self, tx: Connection, ref: VersionRef) -> UsableKeys:
        """Return the version `ref` of a key that the caller has found usable, for `wrap_under`.

        Raise `CiphertextInvalid` if there is no such version.
        """
        return UsableKeys([ref], {ref: self._read_version(tx, ref)})

    def usable_for(self, tx: Connection, account_id: str, wraps: Sequence[Wrapped]) -> UsableKeys:
        """Check that the keys of these wraps are usable; return them for `unwrap_under` after `tx`.

        Raise `CiphertextInvalid` if a wrap is malformed, or no version of its key made it,
        `KeyMissing`, `KeyUnusable` or `InvalidInput` (see `rows.key_to_use`).
        """
        refs = [VersionRef(account_id, each.key_id, _version_of(each.wrapped)) for each in wraps]
        for key_id in sorted({each.key_id for each in wraps}):
            key_to_use(tx, account_id, key_id)
        return UsableKeys(refs, {ref: self._read_version(tx, ref) for ref in sorted(set(refs))})

    def opened_until(self, usable: UsableKeys) -> int:
        """Return when cached material of these versions first expires (µs since the epoch).

        Return 0 if the material of a version is not cached.
        """
        first = 0
        for ref in usable.refs:
            kept = self._opened.get(ref)
            if kept is None:
                return 0
            until = kept.opened_at + MAX_AGE_SECONDS * MICROSECONDS
            first = min(first or until, until)
        return first

    def _read_version(self, tx: Connection, ref: VersionRef) -> KeyVersion | None:
        kept = self._opened.get(ref)
        if kept is not None and self.clock() - kept.opened_at <= MAX_AGE_SECONDS * MICROSECONDS:
            return None
        row = find_version(tx, *ref)
        if row is None:
            raise CiphertextInvalid
        return row

    async def _cipher(self, ref: VersionRef, row: KeyVersion | None) -> AESGCM:
        """Return the cipher of a version, from the cache or by unwrapping the material in `row`."""
        if row is None:
            kept = self._opened.get(ref)
            if kept is not None:
                self._opened.move_to_end(ref)
                return kept.cipher
            # Evicted from the cache since the transaction looked.
            row = await self.database.read(find_version, *ref)
            if row is None:
                raise CiphertextInvalid
        task = self._opening.get(ref)
        if task is None:  # concurrent calls share one request to the provider
            task = asyncio.create_task(self._open(ref, row))
            self._opening[ref] = task
            task.add_done_callback(lambda done: self._end_opening(ref, done))
        return await asyncio.shield(task)

    def _end_opening(self, ref: VersionRef, task: asyncio.Task[AESGCM]) -> None:
        del self._opening[ref]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, even if all waiters were cancelled

    async def _open(self, ref: VersionRef, row: KeyVersion) -> AESGCM:
        opened_at = self.clock()
        material = await self.providers.unwrap(row.provider, row.wrapped_material, ref)
        cipher = AESGCM(material)
        self._opened[ref] = _Opened(cipher, opened_at)
        self._opened.move_to_end(ref)
        while len(self._opened) > MAX_OPENED:
            self._opened.popitem(last=False)
        return cipher


@dataclass(frozen=True, slots=True)
class PlatformKeys:
    """Seals secrets under the platform keys of accounts."""

    database: Database
    vault: Vault

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        """Seal a secret under the account's platform key; return (key id, sealed secret).

        Raise `KeyMissing` if the account has no platform key, or as `Vault.wrap` does.
        """
        key = await self.database.read(find_platform_key, account_id)
        if key is None:
            raise KeyMissing
        return key.id, await self.vault.wrap(account_id, key.id, secret, context.encode())

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        """Return a secret that was sealed for the same `context`; raise as `Vault.unwrap` does."""
        return await self.vault.unwrap(account_id, kms_key_id, sealed, context.encode())
