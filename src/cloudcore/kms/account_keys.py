"""Seal short secrets of accounts, for other families."""

from __future__ import annotations

from cloudcore.db.base import Database
from cloudcore.kms.rows import find_platform_key
from cloudcore.kms.rules import KeyMissing
from cloudcore.kms.vault import Vault


class PlatformKeys:
    """Seals under the platform keys of accounts."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        """Return the id of the account's platform key, and a secret sealed under it."""
        key = await self._database.read(find_platform_key, account_id)
        if key is None:
            raise KeyMissing
        return key.id, await self._vault.wrap(account_id, key.id, secret, context.encode())

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        """Return a secret that was sealed for the same `context`."""
        return await self._vault.unwrap(account_id, kms_key_id, sealed, context.encode())
