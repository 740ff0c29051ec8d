"""Data keys of blobs: made here, wrapped under KMS keys, and opened again.

Errors of the KMS are translated to errors of the registry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.kms.providers import VersionRef
from cloudcore.kms.rules import KeyMissing, KeyUnusable
from cloudcore.kms.vault import CiphertextInvalid, UsableKeys, Vault, Wrapped
from cloudcore.objects.wraps import WrapBroken, WrappedKey
from registry.blobstore.base import DataKey
from registry.errors import KmsKeyDeleted, KmsKeyDisabled

_KEY_BYTES: Final = 32


class DataKeys:
    """Makes, wraps and opens the data keys of a registry.

    Every method that wraps or opens raises these errors:

    - `KmsKeyDeleted`: there is no such KMS key, or it was deleted.
    - `KmsKeyDisabled`: the KMS key is disabled, or its deletion is pending.
    - `Unavailable`: the provider of the KMS key is unavailable.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def new(self, account_id: str) -> DataKey:
        """Return a new random data key for bytes of an account."""
        return DataKey(os.urandom(_KEY_BYTES), account_id.encode("ascii"))

    async def wrap(
        self, account_id: str, kms_key_id: str, stored_id: str, data_key: DataKey
    ) -> bytes:
        """Wrap the data key of the bytes `stored_id` under a KMS key."""
        return (await self.wrap_all(account_id, kms_key_id, [(stored_id, data_key)]))[0]

    async def wrap_all(
        self, account_id: str, kms_key_id: str, data_keys: Sequence[tuple[str, DataKey]]
    ) -> list[bytes]:
        """Wrap data keys, each paired with the stored id of its bytes, under one KMS key."""
        with _translated(KmsKeyDeleted):
            return await self._vault.wrap_all(account_id, kms_key_id, _bound(data_keys))

    def usable_version(
        self, tx: Connection, account_id: str, kms_key_id: str, version: int
    ) -> UsableKeys:
        """Return a version of an enabled KMS key, for use after `tx` has ended."""
        with _translated(KmsKeyDeleted):
            return self._vault.usable_version(tx, VersionRef(account_id, kms_key_id, version))

    async def wrap_under(
        self, usable: UsableKeys, data_keys: Sequence[tuple[str, DataKey]]
    ) -> list[bytes]:
        """Like `wrap_all`, with a key that `usable_version` returned in an earlier transaction."""
        with _translated(KmsKeyDeleted):
            return await self._vault.wrap_under(usable, _bound(data_keys))

    def wrap_if_open(self, usable: UsableKeys, stored_id: str, data_key: DataKey) -> bytes | None:
        """Like `wrap_under` for one data key, but return None if the KMS key is not open here."""
        return self._vault.wrap_if_open(usable, data_key.plaintext, _aad(stored_id))

    async def open(
        self, account_id: str, kms_key_id: str, wrapped: bytes, stored_id: str
    ) -> DataKey:
        """Unwrap the data key of the bytes `stored_id`.

        Raise `WrapBroken` if `wrapped` was not made under this KMS key for these bytes.
        """
        return (await self.open_all(account_id, [WrappedKey(kms_key_id, wrapped, stored_id)]))[0]

    async def open_all(self, account_id: str, wraps: Sequence[WrappedKey]) -> list[DataKey]:
        """Unwrap the data keys of one account's bytes; their KMS keys are read in one query.

        Raise `WrapBroken` if one of the wraps does not open.
        """
        with _translated():
            opened = await self._vault.unwrap_all(account_id, _wraps(wraps))
        return _made(account_id, opened)

    def usable_for(
        self, tx: Connection, account_id: str, wraps: Sequence[WrappedKey]
    ) -> UsableKeys:
        """Return the KMS keys of these wraps, if usable, for unwrapping after `tx` has ended.

        Raise `WrapBroken` if one of the wraps is malformed.
        """
        with _translated():
            return self._vault.usable_for(tx, account_id, _wraps(wraps))

    def opened_until(self, usable: UsableKeys) -> int:
        """Return until when these KMS keys stay open here (µs since the epoch); 0 if not open."""
        return self._vault.opened_until(usable)

    async def open_under(
        self, account_id: str, usable: UsableKeys, wraps: Sequence[WrappedKey]
    ) -> list[DataKey]:
        """Like `open_all`, with keys that `usable_for` returned in an earlier transaction."""
        with _translated():
            opened = await self._vault.unwrap_under(usable, _wraps(wraps))
        return _made(account_id, opened)


def _bound(data_keys: Sequence[tuple[str, DataKey]]) -> list[tuple[bytes, bytes]]:
    return [(data_key.plaintext, _aad(stored_id)) for stored_id, data_key in data_keys]


def _wraps(wraps: Sequence[WrappedKey]) -> list[Wrapped]:
    return [Wrapped(each.kms_key_id, each.wrapped, _aad(each.stored_id)) for each in wraps]


def _aad(stored_id: str) -> bytes:
    return b"blob:" + stored_id.encode("ascii")


def _made(account_id: str, opened: Sequence[bytes]) -> list[DataKey]:
    try:
        return [DataKey(plaintext, account_id.encode("ascii")) for plaintext in opened]
    except ValueError:
        raise WrapBroken from None


@contextmanager
def _translated(invalid: type[Exception] = WrapBroken) -> Iterator[None]:
    """Translate errors of the KMS in the block; `CiphertextInvalid` becomes `invalid`.

    When wrapping, `CiphertextInvalid` means that the key's version was erased after it was read.
    """
    try:
        yield
    except KeyMissing:
        raise KmsKeyDeleted from None
    except KeyUnusable:
        raise KmsKeyDisabled from None
    except CiphertextInvalid:
        raise invalid from None
