"""Make keys: their material, wrapped before any transaction begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cloudcore.db.base import Connection, Database
from cloudcore.errors import KeyBeingMade
from cloudcore.kms.key import Key, KeyOrigin, KeySpec, KeyUsage
from cloudcore.kms.providers import Providers, VersionRef
from cloudcore.kms.rows import KeyVersion, list_accounts_without_platform_key
from cloudcore.kms.services import PLATFORM_NAME, add_platform_key
from cloudcore.kms.specs import SLOW, new_material
from cloudcore.threads import SLOW_KEYS

_BATCH: Final = 100
_SLOW_SECONDS: Final = 5
"""When to ask again while another slow key is made."""


class KeyMaker:
    """Makes the material of keys in one region."""

    def __init__(self, providers: Providers, region: str, new_id: Callable[[], str]) -> None:
        self._providers = providers
        self._region = region
        self._new_id = new_id
        self._accounts: set[str] = set()
        """Whose slow keys are made or wait for it."""

    async def new_key(
        self,
        account_id: str,
        name: str,
        now: int,
        *,
        spec: KeySpec = "aes-256",
        usage: KeyUsage = "encrypt_decrypt",
        origin: KeyOrigin = "customer",
        description: str = "",
        tags: dict[str, str] | None = None,
    ) -> tuple[Key, KeyVersion]:
        """Return a new key and its first version, for a transaction to insert.

        Raises:
            KeyBeingMade: another RSA key of the account is being made.
            Unavailable: the provider of material cannot be reached.

        """
        key = Key(
            id=self._new_id(),
            account_id=account_id,
            region=self._region,
            name=name,
            description=description,
            tags=tags or {},
            key_spec=spec,
            key_usage=usage,
            state="enabled",
            origin=origin,
            current_version=1,
            deletion_at=None,
            created_at=now,
            updated_at=now,
        )
        return key, await self.new_version(key, 1, now)

    async def new_version(self, key: Key, number: int, now: int) -> KeyVersion:
        """Return a version of a key with new material, for a transaction to insert.

        Raises:
            Unavailable: the provider of material cannot be reached.

        """
        assert key.name is not None
        material = await self._material(key.account_id, key.key_spec)
        ref = VersionRef(key.account_id, key.id, number)
        provider = self._providers.current
        wrapped = await provider.wrap(material, ref)
        return KeyVersion(
            key.id, number, key.name, key.account_id, provider.name, wrapped, created_at=now
        )

    async def prepare_platform_key(self, account_id: str, now: int) -> Callable[[Connection], None]:
        """Return the change that inserts the platform key of an account, unless it has one."""
        key, version = await self.new_key(
            account_id,
            PLATFORM_NAME,
            now,
            origin="platform",
            description="Made with the account; used where no other key is set.",
        )
        return lambda tx: add_platform_key(tx, key, version)

    async def add_missing_platform_keys(self, database: Database, now: int) -> None:
        """Insert the platform keys of accounts that are older than keys; others have theirs."""
        before: list[str] = []
        while found := await database.read(list_accounts_without_platform_key, _BATCH):
            assert found != before, "a platform key could not be inserted"
            for account_id in found:
                await database.write(await self.prepare_platform_key(account_id, now))
            before = found

    async def _material(self, account_id: str, spec: KeySpec) -> bytes:
        if spec not in SLOW:
            return new_material(spec)
        if account_id in self._accounts:
            raise KeyBeingMade(
                "another RSA key of the account is being made; they are made one at a time",
                retry_after=_SLOW_SECONDS,
            )
        self._accounts.add(account_id)
        try:
            return await SLOW_KEYS.run(account_id, new_material, spec)
        finally:
            self._accounts.discard(account_id)
