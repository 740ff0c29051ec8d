"""Keys of accounts over a database, without a server: maker, vault and one account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, text

from cloudcore.clock import Clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.keyring import Keyring
from cloudcore.kms import services
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.rows import KEY_ROWS
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import Vault
from tests.inprocess import ManualClock

KEYRING: Final = Keyring(bytes(range(32)))
ACME: Final = "0189a000-0000-7000-8000-00000000000a"
GLOBEX: Final = "0189a000-0000-7000-8000-00000000000b"
_ADD_ACCOUNT: Final = Statement(
    accounts.insert().values(
        id=bindparam("id"),
        handle=bindparam("handle"),
        status=text("'active'"),
        auto_create_repositories=text("true"),
        created_at=text("0"),
    )
)


def add_account(tx: Connection, account_id: str, handle: str = "account") -> None:
    """Insert an account with this id."""
    tx.execute(_ADD_ACCOUNT, id=account_id, handle=handle)


class KeyChanges:
    """What is done to keys of accounts; a subclass has the database, the clock and the maker."""

    database: Database
    clock: Clock
    maker: KeyMaker

    async def make(self, name: str, account_id: str = ACME, **options: Any) -> Key:  # noqa: ANN401
        """Create a key of an account."""
        key, version = await self.maker.new_key(account_id, name, self.clock(), **options)
        return await self.database.write(services.create_key, key, version)

    async def rotate(self, key: Key) -> Key:
        """Rotate a key."""
        version = await self.maker.new_version(key, key.current_version + 1, self.clock())
        return await self.database.write(services.rotate_key, version, self.clock())

    async def disable(self, key: Key) -> Key:
        """Disable a key."""
        return await self.database.write(services.disable_key, key, self.clock())

    async def enable(self, key: Key) -> Key:
        """Enable a key."""
        return await self.database.write(services.enable_key, key, self.clock())

    async def schedule_deletion(self, key: Key) -> Key:
        """Let a key be deleted in a week."""
        return await self.database.write(services.schedule_deletion, key, 7, self.clock())

    async def delete(self, key: Key) -> Key:
        """Delete a key at once, as if its time had come."""
        pending = await self.schedule_deletion(key)
        assert pending.deletion_at is not None
        ids = (key.account_id, key.id)
        await self.database.write(services.delete_due_key, *ids, pending.deletion_at)
        return await self.database.read(KEY_ROWS.get, key.account_id, key.region, key.id)


@dataclass
class KmsWorld(KeyChanges):
    """Two accounts, ``acme`` and ``globex``, and what makes and uses their keys."""

    database: Database
    providers: Providers
    clock: ManualClock

    def __post_init__(self) -> None:
        self.maker = KeyMaker(self.providers, "local", uuid7)
        self.vault = Vault(self.database, self.providers, self.clock)


async def make_kms_world(database: Database, providers: Providers | None = None) -> KmsWorld:
    """Add both accounts to an empty database; without `providers`, with a root key."""

    def add(tx: Connection) -> None:
        add_account(tx, ACME, "acme")
        add_account(tx, GLOBEX, "globex")

    await database.write(add)
    return KmsWorld(database, providers or Providers(EmbeddedProvider(KEYRING)), ManualClock())
